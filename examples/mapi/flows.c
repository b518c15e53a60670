/* Prints flows as they end, and the largest at the end: a top of flows with MAPI.
 *
 *   flows eth0               an interface of the sensor
 *   flows -r trace.pcap      a trace file
 */
#include <mapi/expiredflowshash.h>
#include <mapi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST 10

static volatile sig_atomic_t is_over;

static void stop(int signal)
{
    (void)signal;
    is_over = 1;
}

static int fail(const char *what)
{
    char text[MAPI_ERRORSTR_LENGTH];
    int number;
    mapi_read_error(&number, text);
    fprintf(stderr, "%s: %d %s\n", what, number, text);
    return 1;
}

static void print(const flow_data *flow)
{
    printf("%10llu.%06llu %3u %u.%u.%u.%u:%u > %u.%u.%u.%u:%u %llu packets %llu bytes ttl %u\n", flow->timestamp >> 32,
           ((flow->timestamp & 0xffffffffULL) * 1000000) >> 32, flow->ptcl, flow->saddr.byte1, flow->saddr.byte2,
           flow->saddr.byte3, flow->saddr.byte4, flow->sport, flow->daddr.byte1, flow->daddr.byte2, flow->daddr.byte3,
           flow->daddr.byte4, flow->dport, flow->packets_count, flow->bytes_count, flow->ttl_pkt1);
}

int main(int argc, char *argv[])
{
    flow_data largest[MOST + 1];
    mapi_flow_info_t info;
    int is_trace = argc == 3 && strcmp(argv[1], "-r") == 0;
    int fd, fid, found = 0, at, is_last = 0;
    unsigned long long flows = 0, ignored = 0;
    if (argc != 2 && !is_trace) {
        fprintf(stderr, "usage: %s INTERFACE | -r TRACE\n", argv[0]);
        return 2;
    }
    fd = is_trace ? mapi_create_offline_flow(argv[2], MFF_PCAP) : mapi_create_flow(argv[1]);
    if (fd < 0)
        return fail("mapi_create_flow");
    fid = mapi_apply_function(fd, "EXPIRED_FLOWS", 1000, 100000, 1);
    if (fid < 0)
        return fail("EXPIRED_FLOWS");
    if (mapi_connect(fd) < 0)
        return fail("mapi_connect");
    signal(SIGINT, stop);
    do {
        flows_stat *stat;
        flow_data *flow;
        mapi_results_t *result;
        unsigned n;
        /* Before the results, so that nothing comes behind the last of them. */
        if (mapi_get_flow_info(fd, &info) < 0)
            return fail("mapi_get_flow_info");
        is_last = is_over || info.status == FLOW_FINISHED;
        do {
            result = mapi_read_results(fd, fid);
            if (result == NULL)
                return fail("mapi_read_results");
            stat = result->res;
            flow = (flow_data *)(stat + 1);
            ignored += stat->ignored;
            for (n = 0; n < stat->sent; n++, flow++) {
                flows++;
                print(flow);
                for (at = found; at > 0 && largest[at - 1].bytes_count < flow->bytes_count; at--)
                    largest[at] = largest[at - 1];
                largest[at] = *flow;
                if (found < MOST)
                    found++;
            }
        } while (stat->sent == 1000);
        if (!is_last)
            usleep(100000);
    } while (!is_last);
    printf("%llu flows, %llu left out, largest:\n", flows, ignored);
    for (at = 0; at < found; at++)
        print(&largest[at]);
    return mapi_close_flow(fd) < 0 ? fail("mapi_close_flow") : 0;
}
