/* Functions that look at frames as they are, over any traces: the test compares them with a model of its own. */
#include "check.h"
#include <mapi/binop.h>
#include <mapi/burst.h>
#include <mapi/dist.h>
#include <mapi/pktinfo.h>
#include <mapi/stats.h>
#include "print.h"

static void counted(const char *trace)
{
    int fd = mapi_create_offline_flow(trace, MFF_PCAP);
    int packets = mapi_apply_function(fd, "PKT_COUNTER");
    int bytes = mapi_apply_function(fd, "BYTE_COUNTER");
    int difference = mapi_apply_function(fd, "BINOP", SUB, fd, bytes, fd, packets);
    int size = mapi_apply_function(fd, "PKTINFO", PKT_SIZE);
    int time = mapi_apply_function(fd, "PKTINFO", PKT_TS);
    int gap = mapi_apply_function(fd, "GAP");
    int hash = mapi_apply_function(fd, "HASH", 0);
    int sizes = mapi_apply_function(fd, "STATS", fd, size, "0");
    int gaps = mapi_apply_function(fd, "STATS", fd, gap, "1");
    int hashes = mapi_apply_function(fd, "STATS", fd, hash);
    int lengths = mapi_apply_function(fd, "DIST", fd, size, "100", "1400", "130");
    int pauses = mapi_apply_function(fd, "DIST", fd, gap, "10us", "1ms", "100us");
    int bursts = mapi_apply_function(fd, "BURST", 0, 4096, 1024, 96, 1000, 1000, 1000);
    OK(fd > 0 && mapi_connect(fd) == 0);
    finish(fd);
    printf("packets %llu\n", number(fd, packets));
    printf("bytes %llu\n", number(fd, bytes));
    printf("difference %llu\n", number(fd, difference));
    printf("time %llu\n", number(fd, time));
    print_stats("sizes", fd, sizes);
    print_stats("gaps", fd, gaps);
    print_stats("hashes", fd, hashes);
    print_dist("lengths", fd, lengths);
    print_dist("pauses", fd, pauses);
    print_bursts(fd, bursts);
    OK(mapi_close_flow(fd) == 0);
}

/* How many packets a filter lets through. */
static void passed(const char *trace, const char *function, const char *text)
{
    int fd = mapi_create_offline_flow(trace, MFF_PCAP);
    OK(mapi_apply_function(fd, function, text) == 1 && mapi_apply_function(fd, "PKT_COUNTER") == 2);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    printf("%s %llu\n", text, number(fd, 2));
    OK(mapi_close_flow(fd) == 0);
}

int main(int argc, char *argv[])
{
    int at;
    for (at = 1; at < argc; at++) {
        printf("trace %s\n", argv[at]);
        counted(argv[at]);
        passed(argv[at], "BPF_FILTER", "tcp");
        passed(argv[at], "BPF_FILTER", "udp and greater 100 or ip6");
        passed(argv[at], "STR_SEARCH", "HTTP/1");
    }
    return 0;
}
