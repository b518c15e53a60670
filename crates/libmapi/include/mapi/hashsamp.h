/* Results of HASHSAMP: one packet with each read, which waits for it. */
#ifndef _MAPI_HASHSAMP_H
#define _MAPI_HASHSAMP_H 1

/* Addresses are in network byte order (of IPv6 a hash), ports in host byte order. */
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

#define HASHSAMP_SYN 1
#define HASHSAMP_ACK 2
#define HASHSAMP_RST 4
#define HASHSAMP_FIN 8
#define HASHSAMP_PSH 16

#endif
