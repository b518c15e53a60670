/* Modes of SAMPLE. */
#ifndef _MAPI_SAMPLE_H
#define _MAPI_SAMPLE_H 1

#define DETERMINISTIC 2
#define PERIODIC 2
#define PROBABILISTIC 3

#endif
