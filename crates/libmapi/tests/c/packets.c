/* Packets of a TO_BUFFER: by a loop, one after the other, behind COOKING and ANONYMIZEIP; files. argv: trace */
#include "check.h"
#include <mapi/res2file.h>
#include <mapi/pktinfo.h>

static unsigned long long hash, count;

static void mix(const void *bytes, unsigned len)
{
    const unsigned char *at = bytes;
    while (len-- > 0)
        hash = (hash ^ *at++) * 1099511628211ULL;
}

static void take(const struct mapipkt *packet)
{
    mix(&packet->ts, 8);
    mix(&packet->caplen, 4);
    mix(&packet->wlen, 4);
    mix(&packet->pkt, packet->caplen);
    count++;
}

static int ends_itself;

static void close_fifth(const struct mapipkt *packet)
{
    take(packet);
    if (count == 5)
        OK(mapi_close_flow(ends_itself) == 0);
}

static void begin(void)
{
    hash = 14695981039346656037ULL;
    count = 0;
}

static int open_flow(const char *trace)
{
    int fd = mapi_create_offline_flow(trace, MFF_PCAP);
    OK(fd > 0);
    return fd;
}

int main(int argc, char *argv[])
{
    struct mapipkt *packet;
    char *device, lists[64], types[16], *file[] = {"1", NULL, "LINE", "array.txt", "-1", "0"};
    int fd, fid, other, gap, written, at;
    if (argc != 2)
        return 2;

    /* All packets of a loop; the count may be more than there are. */
    fd = open_flow(argv[1]);
    fid = mapi_apply_function(fd, "TO_BUFFER");
    OK(fid == 1 && mapi_connect(fd) == 0);
    begin();
    OK(mapi_loop(fd, fid, -1, take) == 0);
    printf("loop %llu %llx\n", count, hash);
    OK(mapi_get_next_pkt(fd, fid) == NULL);
    OK(mapi_close_flow(fd) == 0);

    /* Nothing comes of a flow that its handler closed. */
    ends_itself = open_flow(argv[1]);
    fid = mapi_apply_function(ends_itself, "TO_BUFFER");
    OK(fid == 1 && mapi_connect(ends_itself) == 0);
    begin();
    OK(mapi_loop(ends_itself, fid, -1, close_fifth) == 0 && count == 5);

    /* So many of one flow, and all selected ones of another on the same device. */
    device = mapi_create_offline_device(argv[1], MFF_PCAP);
    OK(device != NULL);
    fd = mapi_create_flow(device);
    other = mapi_create_flow(device);
    OK(mapi_apply_function(fd, "TO_BUFFER", WAIT) == 1);
    OK(mapi_apply_function(other, "BPF_FILTER", "udp port 53") == 1);
    OK(mapi_apply_function(other, "TO_BUFFER", NOWAIT) == 2);
    OK(mapi_connect(fd) == 0 && mapi_connect(other) == 0);
    OK(mapi_get_next_pkt(other, 2) == NULL);
    OK(mapi_start_offline_device(device) == 0);
    begin();
    OK(mapi_loop(fd, 1, 100, take) == 0 && count == 100);
    packet = mapi_get_next_packet(fd, 1);
    OK(packet != NULL);
    take(packet);
    printf("some %llu %llx\n", count, hash);
    while (mapi_get_next_pkt(fd, 1) != NULL)
        ;
    begin();
    finish(other);
    while ((packet = mapi_get_next_pkt(other, 2)) != NULL)
        take(packet);
    printf("dns %llu %llx\n", count, hash);
    OK(mapi_close_flow(fd) == 0 && mapi_close_flow(other) == 0);
    OK(mapi_delete_offline_device(device) == 0);

    /* Two buffers of one flow, read in turn: of what one keeps while the other is read nothing is lost. */
    fd = open_flow(argv[1]);
    OK(mapi_apply_function(fd, "TO_BUFFER", WAIT) == 1);
    OK(mapi_apply_function(fd, "BPF_FILTER", "udp port 53") == 2);
    OK(mapi_apply_function(fd, "TO_BUFFER", WAIT) == 3);
    OK(mapi_connect(fd) == 0);
    begin();
    OK(mapi_loop(fd, 3, 10, take) == 0 && count == 10);
    begin();
    OK(mapi_loop(fd, 1, -1, take) == 0);
    printf("loop %llu %llx\n", count, hash);
    begin();
    OK(mapi_loop(fd, 3, -1, take) == 0);
    printf("rest %llu\n", count);
    OK(mapi_get_next_pkt(fd, 1) == NULL && mapi_get_next_pkt(fd, 3) == NULL);
    OK(mapi_close_flow(fd) == 0);

    /* What streams are, and with other addresses. */
    fd = open_flow(argv[1]);
    OK(mapi_apply_function(fd, "COOKING", 1000, 30, 0, BOTH_SIDE) == 1);
    OK(mapi_apply_function(fd, "BPF_FILTER", "tcp") == 2);
    OK(mapi_apply_function(fd, "ANONYMIZEIP", "0123456789abcdef0123456789abcdef") == 3);
    fid = mapi_apply_function(fd, "TO_BUFFER", WAIT);
    OK(mapi_connect(fd) == 0);
    for (at = 0; (packet = mapi_get_next_pkt(fd, fid)) != NULL; at++)
        if (packet->caplen > 1000 + 60 || packet->wlen != packet->caplen)
            failed("COOKING", __LINE__);
    printf("cooked %d\n", at);
    OK(mapi_close_flow(fd) == 0);

    /* Streams as packets, and as segments again. */
    fd = open_flow(argv[1]);
    OK(mapi_apply_function(fd, "COOKING", 20000, 30, 0, BOTH_SIDE) == 1);
    OK(mapi_apply_function(fd, "BPF_FILTER", "tcp") == 2);
    OK(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "cooked.pcap", 0ULL) == 3);
    OK(mapi_apply_function(fd, "UNCOOK") == 4);
    OK(mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "uncooked.pcap", 0ULL) == 5);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    OK(mapi_close_flow(fd) == 0);

    /* A filter for another link type than the trace's, which has no Ethernet. */
    fd = open_flow("cooked.pcap");
    FAILS(mapi_apply_function(fd, "BPF_FILTER", "ether host 2:0:0:0:0:1") != -1, 1025);
    OK(mapi_apply_function(fd, "BPF_FILTER", "tcp port 80") == 1);
    OK(mapi_close_flow(fd) == 0);

    /* Files. */
    fd = open_flow(argv[1]);
    OK(mapi_apply_function(fd, "BPF_FILTER", "tcp") == 1);
    written = mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "some.pcap", 100ULL);
    fid = mapi_apply_function(fd, "TO_FILE", MFF_PCAP, "all.pcap", 0ULL);
    OK(mapi_apply_function(fd, "PKT_COUNTER") == 4);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    OK(*(int *)result(fd, written) == 0 && *(int *)result(fd, fid) == 0);
    printf("written %llu\n", number(fd, 4));
    OK(mapi_close_flow(fd) == 0);

    fd = open_flow(argv[1]);
    fid = mapi_apply_function(fd, "PKT_COUNTER");
    gap = mapi_apply_function(fd, "GAP");
    other = mapi_apply_function(fd, "PKTINFO", PKT_SIZE);
    at = mapi_apply_function(fd, "STATS", fd, other, "0");
    sprintf(lists, "%d@%d,%d@%d,%d", fid, fd, gap, fd, other);
    sprintf(types, "%d,%d,%d", R2F_ULLSTR, R2F_ULLSEC, R2F_ULLSTR);
    OK(mapi_apply_function(fd, "RES2FILE", types, lists, "packets\tgap\nsize", "each.txt", "0") > 0);
    sprintf(lists, "%d@%d", fid, fd);
    OK(mapi_apply_function(fd, "RES2FILE", "1", lists, "PER SECOND", "second.txt", "1s", 1) > 0);
    file[1] = lists;
    OK(mapi_apply_function_array(fd, "RES2FILE", file, 6) > 0);
    sprintf(types, "%d", R2F_STATS);
    sprintf(lists, "%d@%d", at, fd);
    OK(mapi_apply_function(fd, "RES2FILE", types, lists, "", "stats.txt", "-1", 0) > 0);
    OK(mapi_connect(fd) == 0);
    finish(fd);
    OK(mapi_close_flow(fd) == 0);
    return 0;
}
