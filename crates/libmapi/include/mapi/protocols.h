/* Names of protocol fields for PROTINFO [ours]; docs/display-filter.md lists all. */
#ifndef _MAPI_PROTOCOLS_H
#define _MAPI_PROTOCOLS_H 1

#define PROTINFO_IP_TTL "ip.ttl"
#define PROTINFO_IP_LENGTH "ip.len"
#define PROTINFO_IP_PROTOCOL "ip.proto"
#define PROTINFO_IP_SRCIP "ip.src"
#define PROTINFO_IP_DSTIP "ip.dst"
#define PROTINFO_TCP_SRCPORT "tcp.srcport"
#define PROTINFO_TCP_DSTPORT "tcp.dstport"
#define PROTINFO_UDP_SRCPORT "udp.srcport"
#define PROTINFO_UDP_DSTPORT "udp.dstport"

#endif
