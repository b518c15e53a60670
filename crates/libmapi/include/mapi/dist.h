/* Results of DIST. */
#ifndef _MAPI_DIST_H
#define _MAPI_DIST_H 1

/* data has intervals + 2 counters: the first is below min, the last is max and above. */
typedef struct dist {
    unsigned long long min;
    unsigned long long max;
    unsigned long long intervals;
#if defined(__STDC_VERSION__) && __STDC_VERSION__ >= 199901L
    unsigned long long data[];
#else
    unsigned long long data[1];
#endif
} dist_t;

#endif
