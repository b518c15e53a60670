/* Captures until SIGTERM, or to the end of a file, and tells of each direction of each connection what came of it:
 * addresses, number of bytes and a hash of them, and the same of its packets if they are wanted. Usage:
 * tell DEVICE [THREADS [packets]]
 * With TELL_CUTOFF in the environment that is the cutoff, and it also tells the statistics of streams, how many packets it has
 * seen whenever that changes, and how many were kept away. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <scap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct story {
    unsigned long long bytes, hash, packets, packet_bytes, packet_hash;
};

static scap_t *sc;
static int need_pkts;
static const char *cutoff;

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
    if (cutoff != NULL)
        printf("stream %s:%u > %s:%u statistics | %llu %llu %llu %llu %llu %llu %d\n", from, (unsigned)sd->hdr.src_port, to,
            (unsigned)sd->hdr.dst_port, (unsigned long long)sd->stats.bytes, (unsigned long long)sd->stats.pkts,
            (unsigned long long)sd->stats.dropped.pkts, (unsigned long long)sd->stats.discarded.pkts,
            (unsigned long long)sd->stats.discarded.bytes, (unsigned long long)sd->stats.captured.bytes, sd->status);
    free(story);
}

/* Tells how many packets were seen. */
static void *watch(void *unused)
{
    const struct timespec nap = {0, 1000000};
    scap_stats_t stats;
    unsigned long long seen = 0;

    for (;;) {
        if (scap_get_stats(sc, &stats) == 0 && stats.pkts_received != seen) {
            seen = stats.pkts_received;
            printf("seen %llu\n", seen);
            fflush(stdout);
        }
        nanosleep(&nap, NULL);
        pthread_testcancel();
    }
    return unused;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    scap_stats_t stats;
    pthread_t watcher;
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
    cutoff = getenv("TELL_CUTOFF");
    if (cutoff != NULL && (scap_set_cutoff(sc, atoi(cutoff)) != 0 || pthread_create(&watcher, NULL, watch, NULL) != 0))
        return 104;
    scap_dispatch_creation(sc, on_creation);
    scap_dispatch_data(sc, on_data);
    scap_dispatch_termination(sc, on_termination);
    started = scap_start_capture(sc);
    if (cutoff != NULL) {
        pthread_cancel(watcher);
        pthread_join(watcher, NULL);
    }
    printf("returned %d\n", started);
    printf("error %d\n", scap_error(sc));
    printf("message %s\n", scap_errbuf(sc));
    if (scap_get_stats(sc, &stats) != 0)
        return 102;
    printf("created %llu terminated %llu lost %llu\n", (unsigned long long)stats.streams_created,
        (unsigned long long)stats.streams_terminated, (unsigned long long)stats.chunks_lost);
    if (cutoff != NULL)
        printf("stream all | %llu %llu %llu %llu %llu\nkept %llu\n", (unsigned long long)stats.pkts,
            (unsigned long long)stats.pkts_received, (unsigned long long)stats.pkts_delivered,
            (unsigned long long)stats.pkts_refused, (unsigned long long)stats.discarded.pkts,
            (unsigned long long)stats.pkts_kept_away);
    scap_close(sc);
    return 0;
}
