/* Results of BUCKET: each read returns one interval, and blocks until it has ended. */
#ifndef _MAPI_BUCKET_H
#define _MAPI_BUCKET_H 1

/* Start of the interval (32.32), and the result in it. */
struct bucket_data {
    unsigned long long timestamp;
    unsigned long long data;
};

#endif
