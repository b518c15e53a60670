/* Worker threads: every connection on one of them, nothing lost, the same result; and what other threads may and may
 * not do meanwhile. */
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

struct sums {
    uint64_t streams;
    uint64_t ended;
    uint64_t bytes;
    uint64_t check;
};

struct state {
    pthread_t thread;
    uint64_t bytes;
    uint64_t check;
    uint64_t chunks;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sums sums;
static pthread_t seen[16];
static int threads_seen;
static scap_t *sc;
static stream_t *some;
static int meddle;

static void note_thread(void)
{
    int i;

    for (i = 0; i < threads_seen; i++)
        if (pthread_equal(seen[i], pthread_self()))
            return;
    if (threads_seen < 16)
        seen[threads_seen++] = pthread_self();
}

static void *meddler(void *unused)
{
    scap_stats_t stats;

    CHECK(scap_get_stats(sc, &stats) == 0);
    CHECK(scap_start_capture(sc) == SCAP_ESTATE);
    CHECK(scap_set_filter(sc, "tcp") == SCAP_ESTATE);
    scap_close(sc);
    CHECK(scap_error(NULL) == SCAP_ESTATE);
    CHECK(scap_set_stream_cutoff(sc, some, 1) == SCAP_ESTATE);
    scap_discard_stream(sc, some);
    CHECK(scap_error(NULL) == SCAP_ESTATE);
    CHECK(scap_next_stream_packet(some, NULL) == NULL);
    CHECK(scap_error(NULL) == SCAP_ESTATE);
    return unused;
}

static void on_created(stream_t *sd)
{
    struct state *state = calloc(1, sizeof *state);
    struct state *other = sd->opposite->user_state;

    sd->user_state = state;
    if (state == NULL)
        return;
    state->thread = pthread_self();
    pthread_mutex_lock(&lock);
    sums.streams++;
    note_thread();
    CHECK(other == NULL || pthread_equal(other->thread, state->thread));
    if (meddle && some == NULL) {
        pthread_t thread;

        some = sd;
        CHECK(pthread_create(&thread, NULL, meddler, NULL) == 0);
        CHECK(pthread_join(thread, NULL) == 0);
    }
    pthread_mutex_unlock(&lock);
}

static void on_data(stream_t *sd)
{
    struct state *state = sd->user_state;
    uint32_t i;

    if (state == NULL || !pthread_equal(state->thread, pthread_self())) {
        pthread_mutex_lock(&lock);
        CHECK(!"the thread that created the stream");
        pthread_mutex_unlock(&lock);
        return;
    }
    state->chunks++;
    state->bytes += sd->data_len;
    for (i = 0; i < sd->data_len; i++)
        state->check = state->check * 31 + (unsigned char)sd->data[i];
    if (sd->chunks != state->chunks || (sd->processing_time == 0) != (state->chunks == 1)) {
        pthread_mutex_lock(&lock);
        CHECK(sd->chunks == state->chunks);
        /* Of a chunk or two the clock may not see anything. */
        CHECK(sd->processing_time == 0 || state->chunks > 1);
        pthread_mutex_unlock(&lock);
    }
}

static void on_terminated(stream_t *sd)
{
    struct state *state = sd->user_state;

    pthread_mutex_lock(&lock);
    CHECK(state != NULL && pthread_equal(state->thread, pthread_self()));
    if (state != NULL) {
        sums.ended++;
        sums.bytes += state->bytes;
        sums.check += state->check;
    }
    pthread_mutex_unlock(&lock);
    free(state);
}

static struct sums capture(const char *path, int workers)
{
    scap_stats_t stats;

    memset(&sums, 0, sizeof sums);
    threads_seen = 0;
    some = NULL;
    sc = scap_create(path, 4*1024*1024, SCAP_TCP_WAIT, 0);
    CHECK(sc != NULL);
    CHECK(scap_set_filter(sc, "tcp or udp") == 0);
    CHECK(scap_set_worker_threads(sc, workers) == 0);
    CHECK(scap_dispatch_creation(sc, on_created) == 0);
    CHECK(scap_dispatch_data(sc, on_data) == 0);
    CHECK(scap_dispatch_termination(sc, on_terminated) == 0);
    CHECK(scap_start_capture(sc) == 0);
    CHECK(scap_get_stats(sc, &stats) == 0);
    CHECK(stats.streams_created == sums.streams && stats.streams_terminated == sums.ended);
    CHECK(stats.chunk_bytes == sums.bytes && stats.chunks_lost == 0);
    CHECK(stats.memory_used == 0 && stats.memory_high <= stats.memory_size);
    scap_close(sc);
    return sums;
}

int main(int argc, char **argv)
{
    struct sums alone, together;
    int workers;

    if (argc != 2)
        return 100;
    alone = capture(argv[1], 0);
    CHECK(alone.streams > 50 && alone.bytes > 10000 && alone.ended == alone.streams);
    CHECK(threads_seen == 1 && pthread_equal(seen[0], pthread_self()));
    for (workers = 1; workers <= 8; workers = workers * 2 + (workers == 1)) {
        meddle = workers > 1;
        together = capture(argv[1], workers);
        CHECK(memcmp(&alone, &together, sizeof alone) == 0);
        CHECK(threads_seen >= 1 && threads_seen <= workers);
        if (workers > 1)
            CHECK(threads_seen > 1 && !pthread_equal(seen[0], pthread_self()));
    }
    return failures > 99 ? 99 : failures;
}
