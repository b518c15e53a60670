/* Arguments of PKTINFO. */
#ifndef _MAPI_PKTINFO_H
#define _MAPI_PKTINFO_H 1

#define PKT_TS 0
#define PKT_SIZE 1

#endif
