/*
 * A stream whose processing costs too much must not take the memory that all others need. This program measures
 * what each stream costs per chunk (processing_time / chunks) and lowers the priority of those that cost far more than
 * the others, so that under overload their packets are dropped first.
 *
 *   slow_stream trace.pcap
 *
 * Prints a line for each stream that was lowered, and at the end what was lost. Every stream begins with
 * priority 1; a slow one gets 0. To have something slow, streams that contain the word given as second argument are
 * searched over and over.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <scap.h>

/* A stream is slow that takes this many times what is usual per chunk, and a millisecond at least, once there is
 * something to compare. */
#define SLOW 20
#define SLOW_NANOSECONDS 1000000
#define ENOUGH_CHUNKS 3

static scap_t *sc;
static const char *heavy;
static uint64_t ended_time, ended_chunks;

/* Stands for the work: one pass over the data, or two thousand. */
static volatile unsigned work_done;

static void work(const char *data, uint32_t len, int passes)
{
    unsigned sum = 0;
    uint32_t i;

    while (passes-- > 0)
        for (i = 0; i < len; i++)
            sum = sum * 31 + (unsigned char)data[i];
    work_done += sum;
}

static int contains(const char *data, uint32_t len, const char *word)
{
    size_t length = strlen(word);
    uint32_t i;

    for (i = 0; length > 0 && i + length <= len; i++)
        if (memcmp(data + i, word, length) == 0)
            return 1;
    return 0;
}

static void stream_process(stream_t *sd)
{
    /* The chunks before this one, as processing_time is the time before it. */
    uint64_t chunks = sd->chunks - 1;

    if (sd->user_state == NULL && heavy != NULL && contains(sd->data, sd->len, heavy))
        sd->user_state = &heavy;
    if (sd->priority > 0 && chunks >= ENOUGH_CHUNKS && ended_chunks >= ENOUGH_CHUNKS) {
        uint64_t per_chunk = sd->processing_time / chunks;

        if (per_chunk > SLOW_NANOSECONDS && per_chunk > SLOW * (ended_time / ended_chunks)
            && scap_set_stream_priority(sc, sd, 0) == 0) {
            char src[SCAP_ADDRESS_BYTES], dst[SCAP_ADDRESS_BYTES];

            scap_address_text(sd->hdr.src_ip, src, sizeof src);
            scap_address_text(sd->hdr.dst_ip, dst, sizeof dst);
            printf("slow: %s %u %s %u\n", src, (unsigned)sd->hdr.src_port, dst, (unsigned)sd->hdr.dst_port);
        }
    }
    work(sd->data, sd->len, sd->user_state == NULL ? 1 : 2000);
}

static void stream_close(stream_t *sd)
{
    /* What is usual is learned from streams that have ended and were not slow. */
    if (sd->priority > 0) {
        ended_time += sd->processing_time;
        ended_chunks += sd->chunks;
    }
}

/* Ctrl-C ends the capture; what it has found until then is told as at its end. */
static void on_signal(int number)
{
    (void)number;
    scap_stop_capture(sc);
}

int main(int argc, char **argv)
{
    scap_stats_t stats;
    int failed;

    if (argc < 2 || argc > 3) {
        fprintf(stderr, "usage: %s INTERFACE|FILE [WORD]\n", argv[0]);
        return 2;
    }
    heavy = argc == 3 ? argv[2] : NULL;
    sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_FAST, 0);
    if (sc == NULL) {
        fprintf(stderr, "%s\n", scap_errbuf(NULL));
        return 2;
    }
    scap_add_priority_class(sc, 1, "ip or ip6");
    scap_set_parameter(sc, SCAP_BASE_THRESHOLD, 50);
    scap_dispatch_data(sc, stream_process);
    scap_dispatch_termination(sc, stream_close);
    /* (signal() would take only the first one where it is that of System V.) */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    failed = scap_start_capture(sc);
    if (failed)
        fprintf(stderr, "%s\n", scap_errbuf(sc));
    else if (scap_get_stats(sc, &stats) == 0)
        printf("%" PRIu64 " streams, %" PRIu64 " chunks, %" PRIu64 " packets dropped\n", stats.streams_created,
               stats.chunks, stats.dropped.pkts);
    scap_close(sc);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
