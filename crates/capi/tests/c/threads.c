/* Calls from other threads while a capture runs, and several threads that close at once: errors, or what scap.h allows. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

#define CLOSERS 8
#define HANDLES 50

static scap_t *sc;
static uint64_t data_events, asked, terminated, one_way;
static stream_t *of_callback;
static pthread_barrier_t together;

/* What a thread may do that is not the one callbacks run in, with a stream it got from a callback. */
static void *stranger(void *nothing)
{
    scap_stats_t stats;
    struct scap_pkthdr header;
    uint32_t start, length;

    (void)nothing;
    CHECK(scap_get_stats(sc, &stats) == 0 && stats.pkts_received >= stats.pkts_delivered);
    CHECK(scap_set_stream_cutoff(sc, of_callback, 10) == SCAP_ESTATE);
    CHECK_MESSAGE(NULL, "scap_set_stream_cutoff", "in this thread");
    CHECK(scap_error(sc) == SCAP_ESTATE);
    CHECK(scap_set_stream_priority(sc, of_callback, 1) == SCAP_ESTATE);
    CHECK(scap_set_stream_parameter(sc, of_callback, SCAP_CHUNK_SIZE, 10) == SCAP_ESTATE);
    CHECK(scap_keep_stream_chunk(sc, of_callback) == SCAP_ESTATE);
    CHECK(scap_next_stream_packet(of_callback, &header) == NULL && scap_error(NULL) == SCAP_ESTATE);
    CHECK(scap_next_stream_hole(of_callback, &start, &length) == SCAP_ESTATE);
    scap_discard_stream(sc, of_callback);
    CHECK(scap_error(NULL) == SCAP_ESTATE);
    CHECK(scap_start_capture(sc) == SCAP_ESTATE);
    CHECK(scap_set_filter(sc, "tcp") == SCAP_ESTATE);
    CHECK(scap_set_cutoff(sc, SCAP_UNLIMITED) == 0);
    CHECK(scap_dispatch_data(sc, NULL) == SCAP_ESTATE);
    scap_close(sc);
    CHECK_MESSAGE(sc, "scap_close", "the capture runs");
    asked++;
    return NULL;
}

static void on_data(stream_t *sd)
{
    pthread_t thread;

    data_events++;
    CHECK(sd->cutoff == SCAP_UNLIMITED && sd->priority == 0);
    of_callback = sd;
    if (data_events % 16 == 1 && pthread_create(&thread, NULL, stranger, NULL) == 0)
        pthread_join(thread, NULL);
}

static void on_terminated(stream_t *sd)
{
    terminated++;
    if (sd->opposite->stats.pkts == 0) {
        /* As of one-way UDP: nothing else tells of it. */
        one_way++;
        CHECK(sd->opposite->status == sd->status && sd->status != SCAP_STATUS_ACTIVE);
        CHECK(sd->opposite->hdr.src_port == sd->hdr.dst_port && sd->opposite->user_state == NULL);
    }
}

/* Exactly one thread closes each; the others are told. */
static scap_t *handles[HANDLES];

static void *closer(void *refused)
{
    uint64_t *count = refused;
    scap_stats_t stats;
    int i;

    pthread_barrier_wait(&together);
    for (i = 0; i < HANDLES; i++) {
        int code = scap_get_stats(handles[i], &stats);

        CHECK(code == 0 || code == SCAP_EHANDLE);
        scap_close(handles[i]);
        *count += scap_set_cutoff(handles[i], 0) == SCAP_EHANDLE;
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[CLOSERS];
    uint64_t refused[CLOSERS] = {0};
    scap_stats_t stats;
    int i;

    if (argc != 2)
        return 100;
    sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_FAST, 0);
    CHECK(scap_set_parameter(sc, SCAP_CHUNK_SIZE, 512) == 0);
    CHECK(scap_dispatch_data(sc, on_data) == 0);
    CHECK(scap_dispatch_termination(sc, on_terminated) == 0);
    CHECK(scap_start_capture(sc) == 0);
    CHECK(asked > 5 && terminated > 0 && one_way > 0);
    CHECK(scap_get_stats(sc, &stats) == 0 && stats.chunks == data_events);
    scap_close(sc);

    for (i = 0; i < HANDLES; i++) {
        handles[i] = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_FAST, 0);
        CHECK(handles[i] != NULL);
    }
    pthread_barrier_init(&together, NULL, CLOSERS);
    for (i = 0; i < CLOSERS; i++)
        CHECK(pthread_create(&threads[i], NULL, closer, &refused[i]) == 0);
    for (i = 0; i < CLOSERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK(refused[i] == HANDLES);
    }
    pthread_barrier_destroy(&together);
    return failures > 99 ? 99 : failures;
}
