/* Arguments and results of TOP. */
#ifndef _MAPI_TOPX_H
#define _MAPI_TOPX_H 1

#include <netinet/in.h>
#include <sys/socket.h>

#define TOPX_IP 1
#define TOPX_TCP 2
#define TOPX_UDP 3
#define TOPX_ICMP 4

#define TOPX_IP_TOS 1
#define TOPX_IP_LENGTH 2
#define TOPX_IP_ID 3
#define TOPX_IP_OFFSET 4
#define TOPX_IP_TTL 5
#define TOPX_IP_PROTOCOL 6
#define TOPX_IP_CHECKSUM 7
#define TOPX_IP_SRCIP 8
#define TOPX_IP_DSTIP 9
#define TOPX_TCP_SRCPORT 10
#define TOPX_TCP_DSTPORT 11
#define TOPX_TCP_SEQ 12
#define TOPX_TCP_ACK 13
#define TOPX_TCP_FLAGS 14
#define TOPX_TCP_WIN 15
#define TOPX_TCP_CRC 16
#define TOPX_TCP_URGENT 17
#define TOPX_UDP_SRCPORT 18
#define TOPX_UDP_DSTPORT 19
#define TOPX_UDP_LENGTH 20
#define TOPX_UDP_CHECKSUM 21

#define SORT_BY_PACKETS 1
#define SORT_BY_BYTES 2

/* The result is an unsigned, the number of entries, followed at offset 4 by the entries. */
struct topx_result {
    unsigned value; /* IPv4 addresses are in network byte order */
    struct in6_addr addr6;
    sa_family_t family; /* of addresses: AF_INET, AF_INET6 */
    unsigned count;     /* packets */
    unsigned long long bytecount;
    unsigned last_rst_secs; /* start of counting: microseconds modulo 2^32 */
};

#endif
