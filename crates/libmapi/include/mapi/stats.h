/* Results of STATS. */
#ifndef _MAPI_STATS_H
#define _MAPI_STATS_H 1

typedef struct stats {
    unsigned long long count;
    long double sum;
    long double sum2;
    double max;
    double min;
} stats_t;

#endif
