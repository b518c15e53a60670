/* Results of HASHSAMP: each read returns one packet, and blocks until there is one. */
#ifndef _MAPI_TCP_H
#define _MAPI_TCP_H 1

/* Addresses are in network byte order (IPv6: a hash), ports in host byte order. */
struct sample {
    unsigned int source_ip;
    unsigned int dest_ip;
    unsigned int sourceport;
    unsigned int destport;
    unsigned int sequence;
    unsigned int tcp_flags;
    unsigned int protocol;
    unsigned long long timestamp;
};

#define TCP_SYN 1
#define TCP_ACK 2
#define TCP_RST 4
#define TCP_FIN 8
#define TCP_PSH 16

#endif
