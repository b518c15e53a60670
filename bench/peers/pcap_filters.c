// Many libpcap handles in one process: packets and bytes that pass each filter on an interface, until SIGTERM.
//
// cc -O2 -o pcap_filters pcap_filters.c -lpcap
#include <pcap/pcap.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static volatile sig_atomic_t stopped;

static void stop(int signal) {
    (void)signal;
    stopped = 1;
}

static void count(u_char *counts, const struct pcap_pkthdr *header, const u_char *bytes) {
    unsigned long long *of = (unsigned long long *)counts;
    (void)bytes;
    of[0] += 1;
    of[1] += header->len;
}

static void fail(const char *what, const char *why) {
    fprintf(stderr, "pcap_filters: %s: %s\n", what, why);
    exit(1);
}

int main(int argc, char **argv) {
    if (argc < 3) {
        fprintf(stderr, "usage: pcap_filters INTERFACE FILTER...\n");
        return 2;
    }
    int filters = argc - 2;
    pcap_t **handles = calloc(filters, sizeof *handles);
    struct pollfd *ready = calloc(filters, sizeof *ready);
    unsigned long long (*counts)[2] = calloc(filters, sizeof *counts);
    struct bpf_program program;
    char error[PCAP_ERRBUF_SIZE];
    if (!handles || !ready || !counts) fail("memory", "none left");
    for (int at = 0; at < filters; at++) {
        pcap_t *handle = pcap_create(argv[1], error);
        if (!handle) fail(argv[1], error);
        pcap_set_snaplen(handle, 262144);
        pcap_set_promisc(handle, 1);
        pcap_set_timeout(handle, 100);
        if (pcap_activate(handle) < 0) fail(argv[1], pcap_geterr(handle));
        if (pcap_compile(handle, &program, argv[at + 2], 1, PCAP_NETMASK_UNKNOWN) < 0 ||
            pcap_setfilter(handle, &program) < 0)
            fail(argv[at + 2], pcap_geterr(handle));
        pcap_freecode(&program);
        if (pcap_setnonblock(handle, 1, error) < 0) fail(argv[1], error);
        ready[at].fd = pcap_get_selectable_fd(handle);
        ready[at].events = POLLIN;
        handles[at] = handle;
    }
    signal(SIGTERM, stop);
    puts("ready");
    fflush(stdout);
    // What is in the rings at the end is taken, too.
    for (int last = 0; !last;) {
        last = stopped;
        if (!last) poll(ready, filters, 100);
        for (int at = 0; at < filters; at++)
            if (last || ready[at].revents) pcap_dispatch(handles[at], -1, count, (u_char *)counts[at]);
    }
    unsigned long long packets = 0, dropped = 0;
    for (int at = 0; at < filters; at++) {
        struct pcap_stat statistics;
        packets += counts[at][0];
        if (pcap_stats(handles[at], &statistics) == 0) dropped += statistics.ps_drop;
    }
    printf("%llu packets, %llu dropped\n", packets, dropped);
    return 0;
}
