/* Results of EXPIRED_FLOWS: a flows_stat, followed by flows_stat.sent structures flow_data. */
#ifndef _MAPI_EXPIREDFLOWSHASH_H
#define _MAPI_EXPIREDFLOWSHASH_H 1

#include <sys/types.h>

typedef struct flows_stat {
    unsigned int sent;     /* flows that follow */
    unsigned int received; /* flows seen */
    unsigned int expired;
    unsigned int ignored; /* expired, but possibly incomplete, or with too few packets */
    unsigned int dropped; /* expired, but discarded before they were read */
    struct {
        unsigned int sent;
        unsigned int received;
        unsigned int expired;
        unsigned int ignored;
        unsigned int dropped;
    } packets;
} flows_stat;

typedef struct ip_addr {
    unsigned char byte1;
    unsigned char byte2;
    unsigned char byte3;
    unsigned char byte4;
} ip_addr;

/* Ports are in host byte order. Of IPv6 addresses, the last four bytes are reported. */
typedef struct flow_data {
    unsigned long long timestamp;
    unsigned long long packets_count;
    unsigned long long bytes_count;
    ip_addr saddr;
    ip_addr daddr;
    unsigned short sport;
    unsigned short dport;
    unsigned char ptcl;
    unsigned char ttl_pkt1;
} flow_data;

#endif
