/* Results of BUCKET: one interval with each read, which waits for it. */
#ifndef _MAPI_BUCKET_H
#define _MAPI_BUCKET_H 1

/* When the interval began (32.32), and the result in it. */
struct bucket_data {
    unsigned long long timestamp;
    unsigned long long data;
};

#endif
