/* Results of BURST: an array of (max - min) / step + 2 classes; the first is below min, the last is max and above. */
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
