/* Intrusion detection by rules in Snort's syntax: a libpcap program that knows nothing of locality buffering.
 *
 *   nids [-q] [-c PACKETS] [-B MEGABYTES] -r FILE | -i INTERFACE RULES
 *
 * Like Snort it has an automaton for each group of rules, by source or destination port, and one for rules of any port. A packet's
 * payload goes through that of its destination port, of its source port, and that of any. Each packet is looked at for itself.
 * Prints an alert per rule and packet: time, rule, protocol, addresses and ports. With -q, only counts, on standard error. */
#include <arpa/inet.h>
#include <ctype.h>
#include <netinet/in.h>
#include <pcap/pcap.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nids.h"

#define PORTS 65536
#define WIDE 1024 /* rules for more ports than these are with those for any */
#define PROTOCOLS 2
#define TAIL 4 /* bytes of a content that automata have behind those by which it differs from the others */

/* Rules that payloads are compared with together. */
struct group {
    uint32_t *ids; /* of rules */
    size_t count;
    uint64_t sum; /* equal where the rules are */
    struct automaton *automaton;
};

static struct rules rules;
static struct group *groups[PROTOCOLS][2][PORTS];
static struct group any[PROTOCOLS];
static size_t automata, table_bytes;
static bool quiet;
static unsigned long packets, payload_bytes, alerts;
static pcap_t *handle;

/* The packet that is looked at. */
static struct {
    const struct pcap_pkthdr *header;
    const unsigned char *payload;
    size_t length;
    int family;
    const unsigned char *addresses[2];
    uint16_t ports[2];
    uint8_t protocol;
} packet;

static void group_add(struct group *group, uint32_t id)
{
    group->ids = grown(group->ids, group->count, sizeof *group->ids);
    group->ids[group->count++] = id;
    group->sum = (group->sum ^ id) * 1099511628211U + id;
}

static size_t in_common(const struct pattern *one, const struct pattern *other)
{
    size_t same = 0, most = one->length < other->length ? one->length : other->length;
    while (same < most && tolower(one->bytes[same]) == tolower(other->bytes[same]))
        same++;
    return same;
}

static int by_bytes(const void *first, const void *second)
{
    const struct pattern *one = first, *other = second;
    size_t same = in_common(one, other);
    if (same == one->length || same == other->length)
        return one->length < other->length ? -1 : one->length > other->length;
    return tolower(one->bytes[same]) - tolower(other->bytes[same]);
}

/* Leaves of each pattern what tells it from the others: the rest is compared when that is there. */
static void shorten(struct pattern *patterns, size_t count)
{
    qsort(patterns, count, sizeof *patterns, by_bytes);
    size_t before = 0;
    for (size_t i = 0; i < count; i++) {
        size_t behind = i + 1 < count ? in_common(&patterns[i], &patterns[i + 1]) : 0;
        size_t needed = (before > behind ? before : behind) + TAIL;
        if (patterns[i].length > needed)
            patterns[i].length = needed;
        before = behind;
    }
}

/* Makes the automaton of a group, or takes that of an equal one. */
static void group_finish(struct group *group)
{
    static struct group *made[2 * PROTOCOLS * PORTS + PROTOCOLS];
    for (size_t i = 0; i < automata; i++)
        if (made[i]->sum == group->sum && made[i]->count == group->count &&
            memcmp(made[i]->ids, group->ids, group->count * sizeof *group->ids) == 0) {
            group->automaton = made[i]->automaton;
            return;
        }
    struct pattern *patterns = allocated(group->count * sizeof *patterns);
    for (size_t i = 0; i < group->count; i++) {
        const struct rule *rule = &rules.list[group->ids[i]];
        const struct content *content = &rule->contents[rule->longest];
        patterns[i] = (struct pattern){content->bytes, content->length, group->ids[i]};
    }
    shorten(patterns, group->count);
    group->automaton = automaton_new(patterns, group->count);
    free(patterns);
    if (group->automaton == NULL) {
        fprintf(stderr, "nids: the patterns of %zu rules are too long for one automaton\nhint: take fewer rules\n",
                group->count);
        exit(2);
    }
    table_bytes += automaton_bytes(group->automaton);
    made[automata++] = group;
}

static bool wide(const struct ports *ports)
{
    size_t all = 0;
    for (size_t i = 0; i < ports->count; i++)
        all += (size_t)ports->ranges[i].high - ports->ranges[i].low + 1;
    return ports->count == 0 || all > WIDE;
}

static void group_rules(void)
{
    for (uint32_t id = 0; id < rules.count; id++) {
        const struct rule *rule = &rules.list[id];
        size_t protocol = rule->protocol == IPPROTO_UDP;
        int side = wide(&rule->ports[DESTINATION]) ? SOURCE : DESTINATION;
        const struct ports *ports = &rule->ports[side];
        if (wide(ports)) {
            group_add(&any[protocol], id);
            continue;
        }
        for (size_t i = 0; i < ports->count; i++)
            for (size_t port = ports->ranges[i].low; port <= ports->ranges[i].high; port++) {
                struct group **group = &groups[protocol][side][port];
                if (*group == NULL)
                    *group = allocated(sizeof **group);
                group_add(*group, id);
            }
    }
    for (size_t protocol = 0; protocol < PROTOCOLS; protocol++) {
        for (int side = 0; side < 2; side++)
            for (size_t port = 0; port < PORTS; port++)
                if (groups[protocol][side][port])
                    group_finish(groups[protocol][side][port]);
        if (any[protocol].count)
            group_finish(&any[protocol]);
    }
}

static void alert(const struct rule *rule)
{
    alerts++;
    if (quiet)
        return;
    char source[INET6_ADDRSTRLEN], destination[INET6_ADDRSTRLEN];
    inet_ntop(packet.family, packet.addresses[SOURCE], source, sizeof source);
    inet_ntop(packet.family, packet.addresses[DESTINATION], destination, sizeof destination);
    printf("%ld.%06ld %u %s %s %u > %s %u\n", (long)packet.header->ts.tv_sec, (long)packet.header->ts.tv_usec, rule->sid,
           packet.protocol == IPPROTO_UDP ? "udp" : "tcp", source, packet.ports[SOURCE], destination,
           packet.ports[DESTINATION]);
}

/* The longest content of a rule is there: are the others, and the ports? */
static void found(void *user, uint32_t id)
{
    (void)user;
    struct rule *rule = &rules.list[id];
    if (rule->checked == packets)
        return;
    rule->checked = packets;
    for (int side = 0; side < 2; side++)
        if (!ports_have(&rule->ports[side], packet.ports[side]))
            return;
    if (rule_matches(rule, packet.payload, packet.length))
        alert(rule);
}

static void search(const struct group *group)
{
    if (group && group->automaton)
        automaton_search(group->automaton, packet.payload, packet.length, found, NULL);
}

static unsigned two(const unsigned char *bytes)
{
    return (unsigned)bytes[0] << 8 | bytes[1];
}

/* Finds the ports and the payload of a packet over Ethernet. Fragments, tunnels and extension headers are not for this example. */
static bool decode(const unsigned char *bytes, size_t length)
{
    size_t at = 12;
    while (length >= at + 4 && (two(bytes + at) == 0x8100 || two(bytes + at) == 0x88a8))
        at += 4;
    if (length < at + 2)
        return false;
    unsigned type = two(bytes + at);
    const unsigned char *ip = bytes + at + 2;
    length -= at + 2;
    size_t head, total;
    if (type == 0x0800 && length >= 20) {
        head = (ip[0] & 15u) * 4u;
        total = two(ip + 2);
        packet.family = AF_INET;
        packet.protocol = ip[9];
        packet.addresses[SOURCE] = ip + 12;
        packet.addresses[DESTINATION] = ip + 16;
        if (head < 20 || (two(ip + 6) & 0x3fff) != 0)
            return false;
    } else if (type == 0x86dd && length >= 40) {
        head = 40;
        total = head + two(ip + 4);
        packet.family = AF_INET6;
        packet.protocol = ip[6];
        packet.addresses[SOURCE] = ip + 8;
        packet.addresses[DESTINATION] = ip + 24;
    } else {
        return false;
    }
    if (total < length)
        length = total;
    const unsigned char *transport = ip + head;
    size_t least = packet.protocol == IPPROTO_TCP ? 20 : 8;
    if ((packet.protocol != IPPROTO_TCP && packet.protocol != IPPROTO_UDP) || length < head + least)
        return false;
    size_t own = packet.protocol == IPPROTO_TCP ? (transport[12] >> 4) * 4u : 8;
    if (own < least || length <= head + own)
        return false;
    packet.ports[SOURCE] = (uint16_t)two(transport);
    packet.ports[DESTINATION] = (uint16_t)two(transport + 2);
    packet.payload = transport + own;
    packet.length = length - head - own;
    return true;
}

static void look_at(u_char *user, const struct pcap_pkthdr *header, const u_char *bytes)
{
    (void)user;
    packets++;
    packet.header = header;
    if (!decode(bytes, header->caplen))
        return;
    payload_bytes += packet.length;
    size_t protocol = packet.protocol == IPPROTO_UDP;
    search(groups[protocol][DESTINATION][packet.ports[DESTINATION]]);
    search(groups[protocol][SOURCE][packet.ports[SOURCE]]);
    search(&any[protocol]);
}

static void stop(int signal)
{
    (void)signal;
    pcap_breakloop(handle);
}

static int usage(void)
{
    fprintf(stderr, "usage: nids [-q] [-c PACKETS] [-B MEGABYTES] -r FILE | -i INTERFACE RULES\n");
    return 2;
}

static bool open_interface(const char *name, int megabytes, char *message)
{
    handle = pcap_create(name, message);
    if (handle == NULL)
        return false;
    pcap_set_snaplen(handle, 65535);
    pcap_set_promisc(handle, 1);
    pcap_set_timeout(handle, 10);
    pcap_set_buffer_size(handle, megabytes << 20);
    int status = pcap_activate(handle);
    if (status < 0)
        snprintf(message, PCAP_ERRBUF_SIZE, "%s: %s", name, pcap_statustostr(status));
    return status >= 0;
}

int main(int count, char **arguments)
{
    char message[PCAP_ERRBUF_SIZE] = "";
    const char *path = NULL, *interface = NULL;
    int most = -1, megabytes = 2;
    for (int letter; (letter = getopt(count, arguments, "qc:B:r:i:")) != -1;) {
        switch (letter) {
        case 'q': quiet = true; break;
        case 'c': most = atoi(optarg); break;
        case 'B': megabytes = atoi(optarg); break;
        case 'r': path = optarg; break;
        case 'i': interface = optarg; break;
        default: return usage();
        }
    }
    if (optind + 1 != count || (path == NULL) == (interface == NULL) || most == 0 || megabytes <= 0 || megabytes > 1024)
        return usage();
    rules = rules_read(arguments[optind]);
    group_rules();
    fprintf(stderr, "%zu rules (%zu left out), %zu automata of %.1f MB\n", rules.count, rules.left_out, automata,
            (double)table_bytes / 1e6);
    if (path ? (handle = pcap_open_offline(path, message)) == NULL : !open_interface(interface, megabytes, message)) {
        fprintf(stderr, "nids: %s\n", message);
        return 1;
    }
    if (pcap_datalink(handle) != DLT_EN10MB) {
        fprintf(stderr, "nids: the packets are not of Ethernet\nhint: this example reads no other link type\n");
        return 1;
    }
    struct sigaction action = {.sa_handler = stop};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    if (pcap_loop(handle, most, look_at, NULL) == PCAP_ERROR) {
        fprintf(stderr, "nids: %s\n", pcap_geterr(handle));
        return 1;
    }
    struct pcap_stat stat;
    if (interface && pcap_stats(handle, &stat) == 0)
        fprintf(stderr, "%u received, %u dropped\n", stat.ps_recv, stat.ps_drop);
    fprintf(stderr, "%lu packets, %lu bytes of payload, %lu alerts\n", packets, payload_bytes, alerts);
    pcap_close(handle);
    return 0;
}
