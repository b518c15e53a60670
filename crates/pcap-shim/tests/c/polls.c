/*
 * Reads so many packets of an interface, and waits for each portion on the handle's descriptor without a limit.
 *
 * Usage: polls INTERFACE WAY PACKETS
 *
 *   next       poll; one pcap_next_ex
 *   drain      non-blocking; poll; pcap_next_ex until there is none
 *   dispatch   non-blocking; select; one pcap_dispatch of 5
 *   all        non-blocking; epoll on pcap_fileno; one pcap_dispatch of all
 */
#include <pcap/pcap.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>

static long left;

static void fail(const char *what)
{
    fprintf(stderr, "%s\n", what);
    exit(1);
}

static void print(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    unsigned hash = 2166136261u;
    (void)user;
    for (bpf_u_int32 at = 0; at < header->caplen; at++)
        hash = (hash ^ data[at]) * 16777619u;
    printf("%u %u %08x\n", header->caplen, header->len, hash);
    left--;
}

static int next(pcap_t *handle)
{
    struct pcap_pkthdr *header;
    const u_char *data;
    int status = pcap_next_ex(handle, &header, &data);
    if (status == 1)
        print(NULL, header, data);
    return status;
}

int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE];
    if (count != 4)
        return 2;
    const char *way = arguments[2];
    left = atol(arguments[3]);
    pcap_t *handle = pcap_create(arguments[1], message);
    if (handle == NULL)
        fail(message);
    pcap_set_snaplen(handle, 65535);
    pcap_set_promisc(handle, 1);
    pcap_set_timeout(handle, 10);
    pcap_set_buffer_size(handle, 64 << 20);
    if (pcap_activate(handle) != 0)
        fail(pcap_geterr(handle));
    int is_next = strcmp(way, "next") == 0;
    if (pcap_getnonblock(handle, message) != 0)
        fail("not blocking");
    if (!is_next && pcap_setnonblock(handle, 1, message) != 0)
        fail(message);
    int fd = pcap_get_selectable_fd(handle);
    if (fd < 0 || pcap_getnonblock(handle, message) != !is_next)
        fail("it does not say what it was told");
    int set = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN};
    if (epoll_ctl(set, EPOLL_CTL_ADD, pcap_fileno(handle), &event) != 0)
        fail("epoll");
    while (left > 0) {
        int status;
        if (is_next || strcmp(way, "drain") == 0) {
            struct pollfd polled = {.fd = fd, .events = POLLIN};
            if (poll(&polled, 1, -1) != 1 || polled.revents != POLLIN)
                fail("poll");
            do
                status = next(handle);
            while (!is_next && status == 1 && left > 0);
        } else if (strcmp(way, "dispatch") == 0) {
            fd_set readable;
            FD_ZERO(&readable);
            FD_SET(fd, &readable);
            if (select(fd + 1, &readable, NULL, NULL, NULL) != 1)
                fail("select");
            status = pcap_dispatch(handle, 5, print, NULL);
        } else {
            if (epoll_wait(set, &event, 1, -1) != 1)
                fail("epoll");
            status = pcap_dispatch(handle, -1, print, NULL);
        }
        if (status < 0)
            fail(pcap_geterr(handle));
    }
    struct pcap_stat stat;
    if (pcap_stats(handle, &stat) != 0)
        fail(pcap_geterr(handle));
    fprintf(stderr, "dropped %u\n", stat.ps_drop);
    pcap_close(handle);
    return 0;
}
