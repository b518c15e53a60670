/* Two captures in one process: side by side in threads, and one inside a callback of the other. Each sees its own
 * streams, whole, and neither disturbs the other. */
#include <pthread.h>
#include <stdlib.h>

#include "check.h"

struct total {
    uint64_t streams;
    uint64_t bytes;
};

static const char *path;
static pthread_key_t key;
static scap_t *outer;
static int nested;

static void on_created(stream_t *sd)
{
    struct total *total = pthread_getspecific(key);

    total->streams++;
    sd->user_state = total;
}

static void on_data(stream_t *sd)
{
    struct total *total = sd->user_state;

    CHECK(total == pthread_getspecific(key));
    total->bytes += sd->data_len;
}

static int capture(struct total *total, const char *filter)
{
    scap_t *sc = scap_create(path, 8*1024*1024, SCAP_TCP_WAIT, 0);
    void *before = pthread_getspecific(key);
    int failed;

    if (sc == NULL)
        return -1;
    pthread_setspecific(key, total);
    failed = scap_set_filter(sc, filter) != 0 || scap_dispatch_creation(sc, on_created) != 0 ||
             scap_dispatch_data(sc, on_data) != 0 || scap_start_capture(sc) != 0;
    scap_close(sc);
    pthread_setspecific(key, before);
    return failed;
}

static struct total in_thread[2];

static void *thread(void *argument)
{
    struct total *total = argument;

    return capture(total, total == &in_thread[0] ? "tcp" : "udp") == 0 ? total : NULL;
}

static void nest(stream_t *sd)
{
    struct total inner = {0, 0};

    if (nested++ > 0)
        return;
    CHECK(capture(&inner, "tcp") == 0);
    CHECK(inner.streams > 0 && inner.bytes == in_thread[0].bytes);
    /* The outer callback's stream is the current one again. */
    CHECK(scap_set_stream_cutoff(outer, sd, 1) == 0 && sd->cutoff == 1);
}

int main(int argc, char **argv)
{
    pthread_t threads[2];
    struct total all = {0, 0};
    void *result;
    int i;

    if (argc != 2)
        return 100;
    path = argv[1];
    pthread_key_create(&key, NULL);
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&threads[i], NULL, thread, &in_thread[i]) == 0);
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(threads[i], &result) == 0 && result == &in_thread[i]);
    CHECK(in_thread[0].bytes > 0 && in_thread[1].bytes > 0);

    CHECK(capture(&all, "tcp or udp") == 0);
    CHECK(all.bytes == in_thread[0].bytes + in_thread[1].bytes);
    CHECK(all.streams == in_thread[0].streams + in_thread[1].streams);

    outer = scap_create(path, SCAP_DEFAULT, SCAP_TCP_FAST, 0);
    CHECK(scap_dispatch_creation(outer, nest) == 0);
    CHECK(scap_start_capture(outer) == 0);
    CHECK(nested > 0);
    scap_close(outer);
    return failures > 99 ? 99 : failures;
}
