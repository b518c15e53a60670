/* Types of results for RES2FILE. */
#ifndef _MAPI_RES2FILE_H
#define _MAPI_RES2FILE_H 1

#define R2F_RAW 0    /* the size of the result (unsigned long) and its bytes */
#define R2F_ULLSTR 1 /* an unsigned long long in decimal */
#define R2F_ULLSEC 2 /* an unsigned long long in 32.32 fixed point, in seconds */
#define R2F_STATS 3  /* a stats_t */

#endif
