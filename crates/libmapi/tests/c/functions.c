/* Each function that has a result, over a trace. Prints results; the test compares them with a model of its own. */
#include "check.h"
#include <arpa/inet.h>
#include <mapi/binop.h>
#include <mapi/bucket.h>
#include <mapi/burst.h>
#include <mapi/dist.h>
#include <mapi/expiredflowshash.h>
#include <mapi/hashsamp.h>
#include <mapi/pktinfo.h>
#include <mapi/sample.h>
#include <mapi/stats.h>
#include <mapi/threshold.h>
#include <mapi/topx.h>
#include "print.h"

static const char *trace;

static int open_flow(void)
{
    int fd = mapi_create_offline_flow(trace, MFF_PCAP);
    OK(fd > 0);
    return fd;
}

static void counters(void)
{
    int fd = open_flow();
    int packets = mapi_apply_function(fd, "PKT_COUNTER");
    int bytes = mapi_apply_function(fd, "stdflib:BYTE_COUNTER!1");
    int sum = mapi_apply_function(fd, "BINOP", ADD, fd, packets, fd, bytes);
    int difference = mapi_apply_function(fd, "BINOP", SUB, fd, bytes, fd, packets);
    int counted = mapi_apply_function(fd, "STATS", fd, packets, "0");
    int spread = mapi_apply_function(fd, "DIST", fd, bytes, "1000000", "5000000", "500000");
    int size = mapi_apply_function(fd, "PKTINFO", PKT_SIZE);
    int time = mapi_apply_function(fd, "PKTINFO", PKT_TS);
    int gap = mapi_apply_function(fd, "GAP");
    int hash = mapi_apply_function(fd, "HASH", 0);
    int ttl = mapi_apply_function(fd, "PROTINFO", "ip.ttl");
    int sizes = mapi_apply_function(fd, "STATS", fd, size, "0");
    int gaps = mapi_apply_function(fd, "STATS", fd, gap, "1");
    int hashes = mapi_apply_function(fd, "STATS", fd, hash);
    int ttls = mapi_apply_function(fd, "STATS", fd, ttl, "0");
    int lengths = mapi_apply_function(fd, "DIST", fd, size, "100", "1400", "130");
    int pauses = mapi_apply_function(fd, "DIST", fd, gap, "10us", "1ms", "100us");
    int tcp = mapi_apply_function(fd, "BPF_FILTER", "tcp");
    int tcp_packets = mapi_apply_function(fd, "PKT_COUNTER");
    mapi_function_info_t info;
    mapi_flow_info_t flow;
    OK(tcp_packets == tcp + 1 && tcp_packets == 19);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    printf("packets %llu\n", number(fd, packets));
    printf("bytes %llu\n", number(fd, bytes));
    printf("sum %llu\n", number(fd, sum));
    printf("difference %llu\n", number(fd, difference));
    printf("size %llu\n", number(fd, size));
    printf("time %llu\n", number(fd, time));
    printf("gap %llu\n", number(fd, gap));
    printf("hash %u\n", *(unsigned *)result(fd, hash));
    printf("tcp %llu\n", number(fd, tcp_packets));
    print_stats("counted", fd, counted);
    print_stats("sizes", fd, sizes);
    print_stats("gaps", fd, gaps);
    print_stats("hashes", fd, hashes);
    print_stats("ttls", fd, ttls);
    print_dist("lengths", fd, lengths);
    print_dist("pauses", fd, pauses);
    print_dist("spread", fd, spread);
    OK(mapi_get_function_info(fd, tcp, &info) == 0);
    OK(strcmp(info.name, "BPF_FILTER") == 0 && strcmp(info.libname, "stdflib") == 0);
    printf("filtered %llu %llu\n", info.pkts, info.passed_pkts);
    OK(mapi_get_next_function_info(fd, tcp, &info) == 0 && info.fid == tcp_packets && info.result_size == 8);
    OK(mapi_get_next_function_info(fd, tcp_packets, &info) == -1);
    OK(mapi_get_next_flow_info(0, &flow) == 0 && flow.fd == fd && flow.num_functions == 19);
    OK(mapi_close_flow(fd) == 0);
}

static void filters(void)
{
    static const struct {
        const char *name, *function, *text;
    } one[] = {
        {"udp53", "BPF_FILTER", "udp port 53\n"},
        {"get", "STR_SEARCH", "GET /"},
        {"hex", "STR_SEARCH", "|47 45 54 20|/"},
        {"either", "STR_SEARCH", "GET /||POST /"},
        {"syn", "ETHEREAL", "tcp.flags.syn == 1"},
        {"regexp", "REGEXP", "GET /[a-z]"},
    };
    unsigned at;
    int fd, fid;
    FILE *rules;
    for (at = 0; at < sizeof one / sizeof *one; at++) {
        fd = open_flow();
        OK(mapi_apply_function(fd, one[at].function, one[at].text) == 1);
        fid = mapi_apply_function(fd, "PKT_COUNTER");
        OK(mapi_connect(fd) == 0);
        finish(fd);
        printf("%s %llu\n", one[at].name, number(fd, fid));
        OK(mapi_close_flow(fd) == 0);
    }
    /* Requests with other addresses, by rules in a file. */
    rules = fopen("www.rl", "w");
    OK(rules != NULL);
    fputs("include \"layouts.rli\"\n\nfilter www\n  eh:Ethernet_IPv4 ih:IPv4_TCP th:TCP with [dest=80~2] p:*\n     =>\n"
          "  eh with [e_dest=0#6,e_src=0#6]\n  ih with [src=0~4,dest=0~4]\n  th\n  p;\n", rules);
    fclose(rules);
    fd = open_flow();
    OK(mapi_apply_function(fd, "RULER", "no.rl") == -1);
    OK(mapi_apply_function(fd, "RULER", "filter f * => nothing;") == -1);
    OK(mapi_apply_function(fd, "RULER", "www.rl") == 1);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 2);
    OK(mapi_apply_function(fd, "BYTE_COUNTER") == 3);
    OK(mapi_apply_function(fd, "BPF_FILTER", "tcp dst port 80 and src host 0.0.0.0 and ether src 0:0:0:0:0:0") == 4);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 5);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    printf("rewritten %llu %llu %llu\n", number(fd, 2), number(fd, 5), number(fd, 3));
    OK(mapi_close_flow(fd) == 0);

    fd = open_flow();
    OK(mapi_apply_function(fd, "STR_SEARCH", "GET /", 66, 5) == 1);
    fid = mapi_apply_function(fd, "PKT_COUNTER");
    OK(mapi_apply_function(fd, "SAMPLE", 7, PERIODIC) == 3);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 4);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    printf("at66 %llu\n", number(fd, fid));
    printf("sampled %llu\n", number(fd, 4));
    OK(mapi_close_flow(fd) == 0);
}

static void times(void)
{
    unsigned long long *time;
    int fd = open_flow();
    int fid = mapi_apply_function(fd, "STARTSTOP", "+1s", "+2s");
    int count = mapi_apply_function(fd, "PKT_COUNTER");
    OK(fid == 1 && mapi_connect(fd) == 0);
    finish(fd);
    time = result(fd, fid);
    printf("times %llu %llu %llu %llu\n", time[0], time[1], time[2], number(fd, count));
    OK(mapi_close_flow(fd) == 0);
}

/* Buckets and samples come one by one, until the trace has ended. */
static void series(void)
{
    mapi_results_t *read;
    int fd = open_flow();
    int fid = mapi_apply_function(fd, "PKT_COUNTER");
    fid = mapi_apply_function(fd, "BUCKET", fd, fid, "100ms", 1);
    OK(fid == 2 && mapi_connect(fd) == 0);
    while ((read = mapi_read_results(fd, fid)) != NULL) {
        struct bucket_data *bucket = read->res;
        OK(read->size == sizeof *bucket);
        printf("bucket %llu %llu\n", bucket->timestamp, bucket->data);
    }
    OK(mapi_close_flow(fd) == 0);
    fd = open_flow();
    OK(mapi_apply_function(fd, "BPF_FILTER", "tcp[tcpflags] & tcp-syn != 0") == 1);
    fid = mapi_apply_function(fd, "PKT_COUNTER");
    OK(mapi_apply_function(fd, "HASHSAMP", 1024, 1) == 3);
    OK(mapi_connect(fd) == 0);
    while ((read = mapi_read_results(fd, 3)) != NULL) {
        struct sample *sample = read->res;
        struct in_addr address;
        char source[16];
        address.s_addr = sample->source_ip;
        strcpy(source, inet_ntoa(address));
        printf("sample %llu %s %u %u %u %u %u\n", sample->timestamp, source, sample->sourceport, sample->destport,
               sample->sequence, sample->tcp_flags, sample->protocol);
    }
    OK(mapi_close_flow(fd) == 0);
}

static void tops(void)
{
    int fd = open_flow();
    int ports = mapi_apply_function(fd, "TOP", 5, TOPX_TCP, TOPX_TCP_DSTPORT);
    int hosts = mapi_apply_function(fd, "TOP", 3, TOPX_IP, TOPX_IP_SRCIP, SORT_BY_PACKETS, 0);
    char *bytes;
    unsigned at, n;
    OK(hosts == 2 && mapi_connect(fd) == 0);
    finish(fd);
    bytes = result(fd, ports);
    memcpy(&n, bytes, 4);
    for (at = 0; at < n; at++) {
        struct topx_result top;
        memcpy(&top, bytes + 4 + at * sizeof top, sizeof top);
        printf("port %u %u %llu\n", top.value, top.count, top.bytecount);
    }
    bytes = result(fd, hosts);
    memcpy(&n, bytes, 4);
    for (at = 0; at < n; at++) {
        struct topx_result top;
        struct in_addr address;
        memcpy(&top, bytes + 4 + at * sizeof top, sizeof top);
        address.s_addr = top.value;
        printf("host %s %u %llu\n", inet_ntoa(address), top.count, top.bytecount);
    }
    OK(mapi_close_flow(fd) == 0);
}

static void bursts(void)
{
    int fd = open_flow();
    int fid = mapi_apply_function(fd, "BURST", 0, 4096, 1024, 96, 1000, 1000, 1000);
    OK(fid == 1 && mapi_connect(fd) == 0);
    finish(fd);
    print_bursts(fd, fid);
    OK(mapi_close_flow(fd) == 0);
}

/* Read in parts: each flow is told once, and all counts add up. */
static void expired(const char *name, int kept)
{
    int fd = open_flow();
    int fid = mapi_apply_function(fd, "EXPIRED_FLOWS", 100, kept, 2);
    unsigned long long sums[10] = {0};
    unsigned sent, at;
    OK(fid == 1 && mapi_connect(fd) == 0);
    finish(fd);
    do {
        flows_stat *stats = result(fd, fid);
        flow_data *flow = (flow_data *)(stats + 1);
        unsigned *counts = (unsigned *)stats;
        for (at = 0; at < 10; at++)
            sums[at] += counts[at];
        sent = stats->sent;
        OK(sent <= 100);
        for (at = 0; at < sent; at++, flow++)
            if (kept > 1000)
                printf("flow %llu %llu %llu %u.%u.%u.%u:%u %u.%u.%u.%u:%u %u %u\n", flow->timestamp, flow->packets_count,
                       flow->bytes_count, flow->saddr.byte1, flow->saddr.byte2, flow->saddr.byte3, flow->saddr.byte4, flow->sport,
                       flow->daddr.byte1, flow->daddr.byte2, flow->daddr.byte3, flow->daddr.byte4, flow->dport, flow->ptcl,
                       flow->ttl_pkt1);
    } while (sent > 0);
    printf("%s", name);
    for (at = 0; at < 10; at++)
        printf(" %llu", sums[at]);
    printf("\n");
    OK(mapi_close_flow(fd) == 0);
}

static void threshold(void)
{
    struct threshold_result *reached;
    int fd = open_flow();
    int fid = mapi_apply_function(fd, "PKT_COUNTER");
    fid = mapi_apply_function(fd, "THRESHOLD", TYPE_ULL | TR_POLL, fd, fid, 1000ULL, GT_BOUND, 0, 1, 1);
    OK(fid == 2 && mapi_connect(fd) == 0);
    reached = result(fd, fid);
    printf("threshold %llu %llu\n", reached->timestamp, reached->value);
    OK(mapi_close_flow(fd) == 0);
}

int main(int argc, char *argv[])
{
    if (argc != 3)
        return 2;
    trace = argv[1];
    counters();
    filters();
    times();
    series();
    tops();
    bursts();
    threshold();
    trace = argv[2];
    expired("expired", 5000);
    expired("forgotten", 20);
    return 0;
}
