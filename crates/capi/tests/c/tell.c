/* Captures until SIGTERM, or to the end of a file, and tells of each direction of each connection what came of it:
 * addresses, number of bytes and a hash of them, and the same of its packets if they are wanted. Usage:
 * tell DEVICE [THREADS [packets]] */
#define _POSIX_C_SOURCE 200809L
#include <scap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct story {
    unsigned long long bytes, hash, packets, packet_bytes, packet_hash;
};

static scap_t *sc;
static int need_pkts;

static void on_signal(int number)
{
    (void)number;
    scap_stop_capture(sc);
}

static void on_creation(stream_t *sd)
{
    struct story *story = malloc(sizeof *story);

    if (story == NULL)
        abort();
    story->bytes = story->packets = story->packet_bytes = 0;
    story->hash = story->packet_hash = 14695981039346656037ULL;
    sd->user_state = story;
}

static void on_packets(stream_t *sd, struct story *story)
{
    struct scap_pkthdr header;
    const char *payload;
    uint32_t at;

    while ((payload = scap_next_stream_packet(sd, &header)) != NULL) {
        for (at = 0; at < header.headers_len; at++)
            story->packet_hash = (story->packet_hash ^ (unsigned char)header.headers[at]) * 1099511628211ULL;
        for (at = 0; at < header.payload_len; at++)
            story->packet_hash = (story->packet_hash ^ (unsigned char)payload[at]) * 1099511628211ULL;
        story->packet_hash = (story->packet_hash ^ (unsigned long long)header.offset) * 1099511628211ULL;
        story->packet_bytes += header.len;
        story->packets++;
    }
}

static void on_data(stream_t *sd)
{
    struct story *story = sd->user_state;
    const unsigned char *bytes = (const unsigned char *)sd->data;
    unsigned at;

    for (at = sd->repeated; at < sd->data_len; at++) {
        story->hash = (story->hash ^ bytes[at]) * 1099511628211ULL;
        story->bytes++;
    }
    if (need_pkts)
        on_packets(sd, story);
}

static void on_termination(stream_t *sd)
{
    struct story *story = sd->user_state;
    char from[64], to[64];

    printf("stream %s:%u > %s:%u %u | %llu %016llx %llu %llu %016llx\n", scap_address_text(sd->hdr.src_ip, from, sizeof from),
        (unsigned)sd->hdr.src_port, scap_address_text(sd->hdr.dst_ip, to, sizeof to), (unsigned)sd->hdr.dst_port,
        (unsigned)sd->hdr.protocol, story->bytes, story->hash, story->packets, story->packet_bytes,
        story->packet_hash);
    free(story);
}

int main(int argc, char **argv)
{
    struct sigaction action;
    scap_stats_t stats;
    int started;

    if (argc < 2 || argc > 4)
        return 100;
    need_pkts = argc == 4;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    if (sigaction(SIGTERM, &action, NULL) != 0)
        return 101;
    sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_WAIT, need_pkts);
    if (sc == NULL) {
        fprintf(stderr, "%s\n", scap_errbuf(NULL));
        return 1;
    }
    if (argc > 2 && scap_set_worker_threads(sc, atoi(argv[2])) != 0)
        return 103;
    scap_dispatch_creation(sc, on_creation);
    scap_dispatch_data(sc, on_data);
    scap_dispatch_termination(sc, on_termination);
    started = scap_start_capture(sc);
    printf("returned %d\n", started);
    printf("error %d\n", scap_error(sc));
    printf("message %s\n", scap_errbuf(sc));
    if (scap_get_stats(sc, &stats) != 0)
        return 102;
    printf("created %llu terminated %llu lost %llu\n", (unsigned long long)stats.streams_created,
        (unsigned long long)stats.streams_terminated, (unsigned long long)stats.chunks_lost);
    scap_close(sc);
    return 0;
}
