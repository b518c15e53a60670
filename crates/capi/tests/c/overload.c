/*
 * A program that is too slow for an interface: its data callback takes NANOSECONDS for each byte. Streams from and to port PORT are
 * important. Ends with SIGTERM, and says what came of streams that are, and of those that are not:
 *
 *   overload INTERFACE NANOSECONDS PORT
 *
 *   high|low STREAMS ENDED-BY-FIN INCOMPLETE-HANDSHAKES PACKETS DROPPED BYTES MISSING
 *   lost KERNEL STREAMS CHUNKS
 */
#define _POSIX_C_SOURCE 200112L
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <scap.h>

static scap_t *sc;
static long nanoseconds_per_byte;
static long due;

static struct {
    unsigned long long streams, closed, incomplete, pkts, dropped, bytes, missing;
} sums[2];

static void on_signal(int signal)
{
    (void)signal;
    scap_stop_capture(sc);
}

static void on_creation(stream_t *sd)
{
    sums[sd->priority != 0].streams++;
}

static void on_data(stream_t *sd)
{
    sums[sd->priority != 0].bytes += sd->data_len;
    sums[sd->priority != 0].missing += sd->missing;
    due += (long)sd->data_len * nanoseconds_per_byte;
    if (due >= 1000000) {
        struct timespec pause = {due / 1000000000, due % 1000000000}, from, to;

        clock_gettime(CLOCK_MONOTONIC, &from);
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_MONOTONIC, &to);
        /* What it slept too long it need not sleep later. */
        due -= (long)(to.tv_sec - from.tv_sec) * 1000000000 + (to.tv_nsec - from.tv_nsec);
    }
}

static void on_termination(stream_t *sd)
{
    const int which = sd->priority != 0;

    sums[which].closed += sd->status == SCAP_STATUS_CLOSED_FIN;
    sums[which].incomplete += (sd->error & SCAP_ERROR_INCOMPLETE_HANDSHAKE) != 0;
    sums[which].pkts += sd->stats.pkts;
    sums[which].dropped += sd->stats.dropped.pkts;
    sums[which].missing += sd->missing_at_end;
}

int main(int argc, char **argv)
{
    struct sigaction action;
    scap_stats_t stats;
    char filter[64];
    int which;

    if (argc != 4)
        return 100;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    if (sigaction(SIGTERM, &action, NULL) != 0)
        return 101;
    nanoseconds_per_byte = atol(argv[2]);
    snprintf(filter, sizeof filter, "port %s", argv[3]);
    sc = scap_create(argv[1], 8 << 20, SCAP_TCP_FAST, 0);
    if (sc == NULL || scap_add_priority_class(sc, 9, filter) != 0 ||
        scap_dispatch_creation(sc, on_creation) != 0 || scap_dispatch_data(sc, on_data) != 0 ||
        scap_dispatch_termination(sc, on_termination) != 0 || scap_start_capture(sc) != 0 || scap_get_stats(sc, &stats) != 0) {
        fprintf(stderr, "%s\n", scap_errbuf(sc));
        return 1;
    }
    for (which = 1; which >= 0; which--)
        printf("%s %llu %llu %llu %llu %llu %llu %llu\n", which ? "high" : "low", sums[which].streams, sums[which].closed,
               sums[which].incomplete, sums[which].pkts, sums[which].dropped, sums[which].bytes, sums[which].missing);
    printf("lost %lld %llu %llu\n", (long long)stats.pkts_lost - (long long)stats.dropped.pkts, (unsigned long long)stats.streams_lost,
           (unsigned long long)stats.chunks_lost);
    scap_close(sc);
    return 0;
}
