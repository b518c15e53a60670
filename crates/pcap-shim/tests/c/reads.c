/*
 * Reads a handle as it is told to, and prints what libpcap returns and every packet.
 *
 * Usage: reads -r FILE | -i INTERFACE STEP...
 *
 *   d:N  pcap_dispatch of N packets       D:N  the same until it returns less than 1
 *   l:N  pcap_loop of N packets
 *   n    pcap_next                        N    the same until there is no packet
 *   x    pcap_next_ex                     X    the same until it returns less than 1
 *   b:N  from now on, the Nth packet from here breaks the loop
 *   B    pcap_breakloop
 *   f:E  pcap_setfilter
 *   s    pcap_stats
 *   S    the same, and prints what it says
 *   o:N  pcap_setdirection
 *   w    waits for a line of standard input, once "waits" was printed
 *   t    pcap_setnonblock
 *   p    remembers where the file is (pcap_file)
 *   P    goes back there
 *
 * SNAPLEN in the environment is the snap length of an interface, NANO asks for nanoseconds, BYTES is the size of the ring, and OWN
 * makes the file the program's. UNBUFFERED prints each line at once.
 */
#include <pcap/pcap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pcap_t *handle;
static long break_at = -1;
static long position;

static void print(const struct pcap_pkthdr *header, const u_char *data)
{
    unsigned hash = 2166136261u;
    for (bpf_u_int32 at = 0; at < header->caplen; at++)
        hash = (hash ^ data[at]) * 16777619u;
    printf("packet %ld.%06ld %u %u %08x\n", (long)header->ts.tv_sec, (long)header->ts.tv_usec, header->caplen,
           header->len, hash);
}

static void each(u_char *user, const struct pcap_pkthdr *header, const u_char *data)
{
    if (user != (u_char *)&handle)
        abort();
    print(header, data);
    if (break_at > 0 && --break_at == 0)
        pcap_breakloop(handle);
}

static void set_filter(const char *expression)
{
    struct bpf_program program;
    if (pcap_compile(handle, &program, expression, 1, PCAP_NETMASK_UNKNOWN) != 0) {
        fprintf(stderr, "%s\n", pcap_geterr(handle));
        exit(2);
    }
    printf("returned %d\n", pcap_setfilter(handle, &program));
    /* The program may go once it is set. */
    memset(program.bf_insns, 0xff, program.bf_len * sizeof *program.bf_insns);
    pcap_freecode(&program);
}

static int next_ex(void)
{
    struct pcap_pkthdr *header;
    const u_char *data;
    int status = pcap_next_ex(handle, &header, &data);
    if (status == 1)
        print(header, data);
    return status;
}

static int next(void)
{
    struct pcap_pkthdr header;
    const u_char *data = pcap_next(handle, &header);
    if (data != NULL)
        print(&header, data);
    return data != NULL;
}

static int step(const char *what)
{
    int count = what[0] != '\0' && what[1] == ':' ? atoi(what + 2) : 0;
    char message[PCAP_ERRBUF_SIZE];
    struct pcap_stat stat;
    switch (what[0]) {
    case 'd':
    case 'D':
        return pcap_dispatch(handle, count, each, (u_char *)&handle);
    case 'l':
        return pcap_loop(handle, count, each, (u_char *)&handle);
    case 'n':
    case 'N':
        return next();
    case 'x':
    case 'X':
        return next_ex();
    case 's':
        return pcap_stats(handle, &stat);
    case 'S':
        if (pcap_stats(handle, &stat) != 0)
            return -1;
        printf("received %u dropped %u\n", stat.ps_recv, stat.ps_drop);
        return 0;
    case 'o':
        return pcap_setdirection(handle, count);
    case 't':
        return pcap_setnonblock(handle, 1, message);
    case 'w':
        puts("waits");
        fflush(stdout);
        return getchar() == EOF;
    default:
        fprintf(stderr, "no step %s\n", what);
        exit(2);
    }
}

static int number(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? atoi(text) : otherwise;
}

int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE] = "";
    if (count < 3)
        return 2;
    if (getenv("UNBUFFERED") != NULL)
        setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(arguments[1], "-i") == 0) {
        handle = pcap_create(arguments[2], message);
        if (handle == NULL || pcap_set_snaplen(handle, number("SNAPLEN", 65535)) != 0 ||
            pcap_set_promisc(handle, 1) != 0 || pcap_set_timeout(handle, 10) != 0 ||
            pcap_set_buffer_size(handle, number("BYTES", 64 << 20)) != 0 ||
            (getenv("NANO") != NULL && pcap_set_tstamp_precision(handle, PCAP_TSTAMP_PRECISION_NANO) != 0) ||
            pcap_activate(handle) < 0)
            return 2;
    } else if (getenv("OWN") != NULL)
        handle = pcap_fopen_offline(fopen(arguments[2], "r"), message);
    else
        handle = pcap_open_offline(arguments[2], message);
    if (handle == NULL) {
        fprintf(stderr, "%s\n", message);
        return 2;
    }
    for (int at = 3; at < count; at++) {
        const char *what = arguments[at];
        int status;
        if (what[0] == 'b') {
            break_at = atol(what + 2);
            continue;
        }
        if (what[0] == 'B') {
            pcap_breakloop(handle);
            continue;
        }
        if (what[0] == 'p') {
            position = ftell(pcap_file(handle));
            continue;
        }
        if (what[0] == 'P') {
            fseek(pcap_file(handle), position, SEEK_SET);
            continue;
        }
        if (what[0] == 'f') {
            set_filter(what + 2);
            continue;
        }
        do {
            status = step(what);
            printf("returned %d\n", status);
            if (status == -1)
                printf("error %s\n", pcap_geterr(handle));
        } while (strchr("DNX", what[0]) != NULL && status > 0);
    }
    pcap_close(handle);
    return 0;
}
