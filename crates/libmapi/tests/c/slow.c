/* A program that reads slower than its trace is played: it gets every result. argv: trace */
#include "check.h"
#include <mapi/bucket.h>
#include <mapi/hashsamp.h>

static int open_flow(const char *trace)
{
    int fd = mapi_create_offline_flow(trace, MFF_PCAP);
    OK(fd > 0);
    return fd;
}

int main(int argc, char *argv[])
{
    mapi_results_t *read;
    unsigned long long sum = 0, before = 0;
    int fd, fid, count, at;
    if (argc != 2)
        return 2;

    fd = open_flow(argv[1]);
    OK(mapi_apply_function(fd, "HASHSAMP", 1024, 1) == 1);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 2);
    OK(mapi_connect(fd) == 0);
    usleep(500000);
    /* The trace waits. */
    OK(number(fd, 2) >= 1000);
    count = (int)number(fd, 2);
    for (at = 0; (read = mapi_read_results(fd, 1)) != NULL; at++) {
        struct sample *sample = read->res;
        OK(sample->timestamp >= before);
        before = sample->timestamp;
        if (at % 500 == 0)
            usleep(20000);
    }
    printf("samples %d %llu %d\n", at, number(fd, 2), count < at);
    OK(mapi_close_flow(fd) == 0);

    fd = open_flow(argv[1]);
    fid = mapi_apply_function(fd, "PKT_COUNTER");
    OK(mapi_apply_function(fd, "BUCKET", fd, fid, "100us", 1) == 2);
    OK(mapi_connect(fd) == 0);
    usleep(500000);
    before = 0;
    for (at = 0; (read = mapi_read_results(fd, 2)) != NULL; at++) {
        struct bucket_data *bucket = read->res;
        OK(bucket->timestamp > before);
        before = bucket->timestamp;
        sum += bucket->data;
        if (at % 1000 == 0)
            usleep(20000);
    }
    printf("buckets %d %llu\n", at, sum);
    OK(mapi_close_flow(fd) == 0);
    return 0;
}
