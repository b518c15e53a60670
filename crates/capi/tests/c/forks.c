/* Processes that fork: a child may take a handle over before the capture starts (as daemons do), and one that is made in
 * the middle of a capture disturbs nobody, whatever it calls before it ends, and whatever other threads did just then. */
#define _POSIX_C_SOURCE 200809L
#include <pthread.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static scap_t *sc;
static uint64_t bytes, data_events, children;
static volatile int over;

/* Holds the handle's locks most of the time. */
static void *ask(void *handle)
{
    scap_stats_t stats;

    while (!over)
        scap_get_stats(handle, &stats);
    return NULL;
}

/* What the child ended with. */
static int wait_for(pid_t child)
{
    int status = -1;

    CHECK(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void count(stream_t *sd)
{
    bytes += sd->data_len - sd->repeated;
    data_events++;
}

static void count_and_fork(stream_t *sd)
{
    scap_stats_t stats;
    pid_t child;

    count(sd);
    if (data_events % 50 != 1)
        return;
    children++;
    child = fork();
    if (child == 0) {
        /* The capture runs, here as there: it is the parent's. Whatever hangs is ended. */
        alarm(30);
        CHECK(scap_set_cutoff(sc, 1) == SCAP_ESTATE);
        CHECK(scap_get_stats(sc, &stats) == SCAP_ESTATE);
        scap_discard_stream(sc, sd);
        CHECK(scap_stop_capture(sc) == SCAP_ESTATE);
        scap_close(sc);
        CHECK(scap_error(sc) == SCAP_ESTATE);
        _exit(failures);
    }
    CHECK(wait_for(child) == 0);
}

static scap_t *create(const char *path, void (*callback)(stream_t *))
{
    scap_t *handle = scap_create(path, SCAP_DEFAULT, SCAP_TCP_WAIT, 0);

    CHECK(handle != NULL && scap_dispatch_data(handle, callback) == 0);
    bytes = data_events = 0;
    return handle;
}

int main(int argc, char **argv)
{
    uint64_t all;
    pid_t child;
    pthread_t thread;

    if (argc != 2)
        return 100;
    sc = create(argv[1], count);
    CHECK(scap_start_capture(sc) == 0);
    scap_close(sc);
    all = bytes;
    CHECK(all > 0);

    sc = create(argv[1], count);
    child = fork();
    if (child == 0) {
        CHECK(scap_start_capture(sc) == 0);
        CHECK(bytes == all);
        scap_close(sc);
        _exit(failures);
    }
    CHECK(wait_for(child) == 0);
    scap_close(sc);

    sc = create(argv[1], count_and_fork);
    CHECK(pthread_create(&thread, NULL, ask, sc) == 0);
    CHECK(scap_start_capture(sc) == 0);
    over = 1;
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(bytes == all && children > 1);
    scap_close(sc);
    return failures > 99 ? 99 : failures;
}
