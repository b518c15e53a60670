/* Arguments and results of THRESHOLD [ours]. */
#ifndef _MAPI_THRESHOLD_H
#define _MAPI_THRESHOLD_H 1

#define TYPE_CHAR 0
#define TYPE_INT 1
#define TYPE_ULL 2
#define TR_POLL 64
#define TR_MW 128

#define EQUAL_BOUND 0
#define GT_BOUND 1
#define LT_BOUND 2
#define EQUAL_D_BOUND 4
#define GT_D_BOUND 8
#define LT_D_BOUND 16

/* Time at which the condition was met (32.32), and the value that met it. */
struct threshold_result {
    unsigned long long timestamp;
    unsigned long long value;
};

#endif
