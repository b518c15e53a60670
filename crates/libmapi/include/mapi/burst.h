/* Results of BURST: (max - min) / step + 2 of these; the first for less than min, the last for max and more. */
#ifndef _MAPI_BURST_H
#define _MAPI_BURST_H 1

typedef struct burst_category {
    unsigned long bytes;
    unsigned long packets;
    unsigned long bursts;
    unsigned long gap_bytes;
    unsigned long gaps;
} burst_category_t;

#endif
