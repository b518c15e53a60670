/* Threads, fork, and a sensor that is killed, started again and stopped. argv: a device that holds, a trace */
#include "check.h"
#include <mapi/function.h>
#include <mapi/threshold.h>
#include <pthread.h>
#include <sys/wait.h>

static const char *device, *trace;
static volatile int done;

/* Says that it is ready, and waits until it is told to go on. */
static void say(const char *what)
{
    puts(what);
    fflush(stdout);
    if (getchar() == EOF)
        exit(3);
}

static void *count_trace(void *unused)
{
    int fd, fid;
    (void)unused;
    fd = mapi_create_offline_flow(trace, MFF_PCAP);
    OK(fd > 0);
    fid = mapi_apply_function(fd, "PKT_COUNTER");
    OK(mapi_connect(fd) == 0);
    finish(fd);
    printf("packets %llu\n", number(fd, fid));
    OK(mapi_close_flow(fd) == 0);
    done = 1;
    return NULL;
}

static void *read_often(void *fd)
{
    int at;
    for (at = 0; at < 10000; at++)
        OK(mapi_read_results(*(int *)fd, 1) != NULL);
    return NULL;
}

/* An error of one thread is none of another. */
static void *read_wrong(void *unused)
{
    int at;
    (void)unused;
    for (at = 0; at < 10000; at++)
        FAILS(mapi_read_results(9999, 1) != NULL, 6145);
    return NULL;
}

static void take(const struct mapipkt *packet)
{
    (void)packet;
}

static int see(void *state, const struct mapipkt *packet)
{
    (void)packet;
    return state == NULL;
}

static void nothing(void *state, void *result)
{
    (void)state;
    memset(result, 0, 8);
}

static const mapi_function_t functions[] = {{"SEE", "sees packets", "", 0, 8, NULL, see, nothing, NULL}};

static void *wait_for_packet(void *fd)
{
    FAILS(mapi_get_next_pkt(*(int *)fd, 2) != NULL, 5123);
    return NULL;
}

static void *wait_for_loop(void *fd)
{
    FAILS(mapi_loop(*(int *)fd, 2, -1, take) >= 0, 5123);
    return NULL;
}

static void *wait_for_bucket(void *fd)
{
    FAILS(mapi_read_results(*(int *)fd, 2) != NULL, 5123);
    return NULL;
}

static void *wait_for_threshold(void *fd)
{
    FAILS(mapi_read_results(*(int *)fd, 3) != NULL, 5123);
    return NULL;
}

static void *wait_for_own(void *fd)
{
    FAILS(mapi_get_next_pkt(*(int *)fd, 5) != NULL, 5123);
    FAILS(mapi_read_results(*(int *)fd, 4) != NULL, 5123);
    return NULL;
}

/* A flow on which all that waits in a program can wait. */
static int open_waiting(void)
{
    static const mapi_library_t library = {MAPI_LIBRARY_VERSION, "lifelib", functions, 1};
    int fd = mapi_create_flow(device);
    OK(mapi_add_library(&library) > 0);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 1);
    OK(mapi_apply_function(fd, "BUCKET", fd, 1, "1s", 1) == 2);
    OK(mapi_apply_function(fd, "THRESHOLD", TYPE_ULL, fd, 1, 1000000ULL, GT_BOUND) == 3);
    OK(mapi_apply_function(fd, "SEE") == 4);
    OK(mapi_apply_function(fd, "TO_BUFFER", WAIT) == 5);
    OK(mapi_connect(fd) == 0);
    return fd;
}

static int open_flow(void)
{
    int fd = mapi_create_flow(device);
    OK(fd > 0 && mapi_apply_function(fd, "PKT_COUNTER") == 1);
    OK(mapi_apply_function(fd, "TO_BUFFER", WAIT) == 2 && mapi_connect(fd) == 0);
    return fd;
}

static pthread_barrier_t together;

/* Each flow is opened once, whoever connects at that moment, too. */
static void *connect_together(void *unused)
{
    unsigned long long packets = 0;
    int fd, fid;
    (void)unused;
    fd = mapi_create_offline_flow(trace, MFF_PCAP);
    OK(fd > 0 && mapi_apply_function(fd, "PKT_COUNTER") == 1);
    fid = mapi_apply_function(fd, "TO_BUFFER", WAIT);
    pthread_barrier_wait(&together);
    OK(mapi_connect(fd) == 0);
    while (mapi_get_next_pkt(fd, fid) != NULL)
        packets++;
    OK(packets == number(fd, 1));
    OK(mapi_close_flow(fd) == 0);
    return NULL;
}

static void threads(int fd)
{
    pthread_t all[6];
    int at, round;
    OK(pthread_barrier_init(&together, NULL, 4) == 0);
    for (round = 0; round < 3; round++) {
        for (at = 0; at < 4; at++)
            OK(pthread_create(&all[at], NULL, connect_together, NULL) == 0);
        for (at = 0; at < 4; at++)
            OK(pthread_join(all[at], NULL) == 0);
    }
    for (at = 0; at < 6; at++)
        OK(pthread_create(&all[at], NULL, at < 2 ? count_trace : at < 5 ? read_often : read_wrong, &fd) == 0);
    for (at = 0; at < 6; at++)
        OK(pthread_join(all[at], NULL) == 0);
}

static void forks(int fd)
{
    mapi_flow_info_t info;
    int status, own;
    pid_t child;
    fflush(stdout);
    child = fork();
    OK(child >= 0);
    if (child == 0) {
        FAILS(mapi_read_results(fd, 1) != NULL, 6145);
        FAILS(mapi_connect(fd) == 0, 6145);
        FAILS(mapi_close_flow(fd) == 0, 6145);
        FAILS(mapi_get_next_flow_info(0, &info) == 0, 6149);
        own = open_flow();
        OK(own > fd && number(own, 1) == 0);
        count_trace(NULL);
        fflush(stdout);
        _exit(0);
    }
    OK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    OK(number(fd, 1) == 0);
}

static void dies(int fd)
{
    mapi_flow_info_t info;
    mapi_device_info_t of_device;
    struct mapi_stat stat;
    void *(*const waits[])(void *) = {wait_for_bucket, wait_for_threshold, wait_for_own};
    pthread_t waiting, looping, all[3];
    char *offline;
    int at, held = open_waiting(), looped = open_flow();
    int other = mapi_create_flow(device);
    OK(other > fd && mapi_apply_function(other, "PKT_COUNTER") == 1);
    OK(pthread_create(&waiting, NULL, wait_for_packet, &fd) == 0);
    OK(pthread_create(&looping, NULL, wait_for_loop, &looped) == 0);
    for (at = 0; at < 3; at++)
        OK(pthread_create(&all[at], NULL, waits[at], &held) == 0);
    OK((offline = mapi_create_offline_device(trace, MFF_PCAP)) != NULL);
    say("kill");
    OK(pthread_join(waiting, NULL) == 0);
    OK(pthread_join(looping, NULL) == 0);
    for (at = 0; at < 3; at++)
        OK(pthread_join(all[at], NULL) == 0);
    FAILS(mapi_start_offline_device(offline) != -1, 5123);
    FAILS(mapi_delete_offline_device(offline) != -1, 5123);
    FAILS(mapi_create_offline_device(trace, MFF_PCAP) != NULL, 5123);
    FAILS(mapi_close_flow(held) == 0, 5123);
    FAILS(mapi_close_flow(looped) == 0, 5123);
    FAILS(mapi_read_results(fd, 1) != NULL, 5123);
    FAILS(mapi_get_next_pkt(fd, 2) != NULL, 5123);
    FAILS(mapi_get_flow_info(fd, &info) == 0, 5123);
    FAILS(mapi_apply_function(other, "BYTE_COUNTER") != -1, 5123);
    FAILS(mapi_connect(other) != -2, 5123);
    FAILS(mapi_create_flow(device) != -1, 5123);
    FAILS(mapi_create_offline_flow(trace, MFF_PCAP) != -1, 5123);
    FAILS(mapi_get_next_device_info(0, &of_device) == 0, 5123);
    FAILS(mapi_stats(device, &stat) != -1, 5123);
    OK(mapi_is_sensor_down(fd) == 1);
    say("start");
    FAILS(mapi_read_results(fd, 1) != NULL, 5123);
    FAILS(mapi_connect(other) != -2, 5123);
    FAILS(mapi_close_flow(fd) == 0, 5123);
    FAILS(mapi_close_flow(fd) == 0, 6145);
    FAILS(mapi_start_offline_device(offline) != -1, 3200);
    fd = open_flow();
    OK(mapi_is_sensor_down(fd) == 0 && number(fd, 1) == 0);
    OK(mapi_close_flow(fd) == 0);
}

static void stops(void)
{
    pthread_t counting;
    done = 0;
    say("stop");
    OK(pthread_create(&counting, NULL, count_trace, NULL) == 0);
    usleep(300000);
    OK(!done);
    say("continue");
    OK(pthread_join(counting, NULL) == 0);
}

int main(int argc, char *argv[])
{
    int fd;
    if (argc != 3)
        return 2;
    device = argv[1];
    trace = argv[2];
    fd = open_flow();
    threads(fd);
    forks(fd);
    dies(fd);
    stops();
    return 0;
}
