/* scap_stop_capture in a signal handler: nothing but what was asked for before comes after it. */
#define _POSIX_C_SOURCE 200809L
#include <signal.h>

#include "check.h"

static scap_t *sc;
static int stopped, data_events;

static void on_signal(int number)
{
    (void)number;
    stopped = scap_stop_capture(sc);
}

static void on_data(stream_t *sd)
{
    if (data_events++ == 0) {
        CHECK(sd->status == SCAP_STATUS_ACTIVE || sd->flags != 0);
        CHECK(raise(SIGINT) == 0);
        CHECK(stopped == 0);
    }
}

int main(int argc, char **argv)
{
    struct sigaction action;
    scap_stats_t stats;

    if (argc != 2)
        return 100;
    memset(&action, 0, sizeof action);
    action.sa_handler = on_signal;
    CHECK(sigaction(SIGINT, &action, NULL) == 0);
    sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_WAIT, 0);
    CHECK(sc != NULL);
    stopped = 1;
    CHECK(scap_stop_capture(sc) == SCAP_ESTATE);
    CHECK(scap_dispatch_data(sc, on_data) == 0);
    CHECK(scap_set_parameter(sc, SCAP_CHUNK_SIZE, 0) == 0);
    CHECK(scap_start_capture(sc) == 0);
    CHECK(data_events > 0);
    CHECK(scap_get_stats(sc, &stats) == 0);
    /* One batch of packets, where the capture has thousands. */
    CHECK(stats.pkts_received > 0 && stats.pkts_received <= 512);
    CHECK(stats.streams_created == stats.streams_terminated);
    CHECK(scap_stop_capture(sc) == SCAP_ESTATE);
    scap_close(sc);
    return failures > 99 ? 99 : failures;
}
