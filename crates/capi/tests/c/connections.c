/*
 * Connections that are all open at the same time, through libscap, none of which may be lost:
 *
 *   connections COUNT MEMORY [DATA]
 *
 * A child writes a capture to a pipe: the handshakes of COUNT connections, then DATA segments (default 1) of each, one
 * connection after the other. MEMORY is the memory_size in bytes. What is printed: connections, packets, the library's CPU time per
 * packet in nanoseconds (the pipe's reading included), resident bytes and bytes of the memory_size per connection, streams that were
 * evicted. Where there are none it fails if a stream does not have all of its packets and bytes, or ended before the input did.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <scap.h>

#define HEADERS 54
#define PAYLOAD 64

static uint64_t data, ended, evicted, wrong;

static void stream_close(stream_t *sd)
{
    const int is_client = sd->hdr.direction == SCAP_CLIENT_TO_SERVER;
    const uint64_t pkts = is_client ? 2 + data : 1, bytes = is_client ? data * PAYLOAD : 0;

    ended++;
    if (sd->status == SCAP_STATUS_EVICTED)
        evicted++;
    else if (sd->status != SCAP_STATUS_END_OF_INPUT || sd->stats.pkts != pkts || sd->stats.bytes != bytes)
        wrong++;
}

static uint32_t sum(uint32_t start, const unsigned char *bytes, size_t len)
{
    for (; len > 0; bytes += 2, len -= 2)
        start += (uint32_t)bytes[0] << 8 | bytes[1];
    return start;
}

static void put(unsigned char *at, uint32_t value, int bytes)
{
    while (bytes-- > 0) {
        at[bytes] = (unsigned char)value;
        value >>= 8;
    }
}

static void put_checksum(unsigned char *at, uint32_t sum)
{
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    put(at, ~sum & 0xffff, 2);
}

/* A packet of the connection with this number, a microsecond after the one before. */
static void packet(FILE *out, uint32_t number, int from_client, uint32_t seq, uint32_t ack, int flags, int payload)
{
    static uint64_t now = 1700000000000000;
    static unsigned char frame[HEADERS + PAYLOAD];
    const uint32_t client = 0x0a000000 | number >> 8, server = 0xc0a80101;
    const uint32_t client_port = 1024 + (number & 0xff);
    uint32_t record[4];

    put(frame + 12, 0x08004500, 4);
    put(frame + 16, 40 + payload, 2);
    put(frame + 22, 64 << 8 | 6, 2);
    put(frame + 24, 0, 2);
    put(frame + 26, from_client ? client : server, 4);
    put(frame + 30, from_client ? server : client, 4);
    put_checksum(frame + 24, sum(0, frame + 14, 20));
    put(frame + 34, from_client ? client_port : 80, 2);
    put(frame + 36, from_client ? 80 : client_port, 2);
    put(frame + 38, seq, 4);
    put(frame + 42, ack, 4);
    put(frame + 46, 0x5000ffff | flags << 16, 4);
    put(frame + 50, 0, 4);
    put_checksum(frame + 50, sum(6 + 20 + payload, frame + 26, HEADERS - 26 + payload));
    now++;
    record[0] = (uint32_t)(now / 1000000);
    record[1] = (uint32_t)(now % 1000000);
    record[2] = record[3] = (uint32_t)(HEADERS + payload);
    fwrite(record, sizeof record, 1, out);
    fwrite(frame, 1, HEADERS + payload, out);
}

static void write_capture(FILE *out, uint32_t count)
{
    const uint32_t header[] = {0xa1b2c3d4, 4 << 16 | 2, 0, 0, 65535, 1};
    uint32_t number, round;

    fwrite(header, sizeof header, 1, out);
    for (number = 0; number < count; number++) {
        packet(out, number, 1, 0, 0, 2, 0);
        packet(out, number, 0, 0, 1, 18, 0);
        packet(out, number, 1, 1, 1, 16, 0);
    }
    for (round = 0; round < data; round++)
        for (number = 0; number < count; number++)
            packet(out, number, 1, 1 + round * PAYLOAD, 1, 24, PAYLOAD);
    fclose(out);
}

static double cpu_seconds(void)
{
    struct rusage used;

    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv)
{
    int ends[2], failed;
    uint32_t count;
    uint64_t packets;
    struct rusage used;
    scap_stats_t stats;
    scap_t *sc;
    pid_t child;

    if (argc < 3) {
        fprintf(stderr, "usage: %s COUNT MEMORY [DATA]\n", argv[0]);
        return 2;
    }
    count = (uint32_t)strtoul(argv[1], NULL, 10);
    data = argc > 3 ? strtoull(argv[3], NULL, 10) : 1;
    packets = (3 + data) * count;
    if (pipe(ends) != 0 || (child = fork()) < 0) {
        perror("pipe or fork");
        return 1;
    }
    if (child == 0) {
        close(ends[0]);
        write_capture(fdopen(ends[1], "wb"), count);
        _exit(0);
    }
    dup2(ends[0], 0);
    close(ends[0]);
    close(ends[1]);
    sc = scap_create("file:-", SCAP_DEFAULT, SCAP_TCP_FAST, 0);
    failed = sc == NULL || scap_set_memory(sc, strtoull(argv[2], NULL, 10)) != SCAP_OK ||
             scap_dispatch_termination(sc, stream_close) != SCAP_OK || scap_start_capture(sc) != SCAP_OK ||
             scap_get_stats(sc, &stats) != SCAP_OK;
    if (failed) {
        fprintf(stderr, "%s\n", scap_errbuf(sc));
        return 1;
    }
    getrusage(RUSAGE_SELF, &used);
    printf("%" PRIu32 " connections, %" PRIu64 " packets: %.0f ns per packet, %.0f bytes resident and %.0f of memory_size per "
           "connection; %" PRIu64 " streams evicted\n",
           count, packets, cpu_seconds() * 1e9 / (double)packets, (double)used.ru_maxrss * 1024 / count,
           (double)stats.memory_high / count, evicted);
    scap_close(sc);
    waitpid(child, NULL, 0);
    if (stats.pkts_delivered != packets || (evicted == 0 && (wrong != 0 || ended != 2 * (uint64_t)count))) {
        fprintf(stderr, "%" PRIu64 " streams ended, %" PRIu64 " of them wrong; %" PRIu64 " packets delivered\n", ended, wrong,
                stats.pkts_delivered);
        return 1;
    }
    return 0;
}
