/*
 * Packet delivery: the packets behind each chunk, as they were captured: in their order, with duplicates and
 * retransmissions, so that what a normalised stream hides can be looked at, too.
 *
 *   packets trace.pcap
 *
 * Prints a line per stream with data: its packets with payload, the bytes in them, how many came behind a later one,
 * and the bytes of the stream itself.
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <scap.h>

static scap_t *sc;

/* What is counted for a stream. */
struct counts {
    uint64_t packets;
    uint64_t payload;
    uint64_t late; /* packets that begin before the end of one that was captured earlier */
    uint64_t bytes;
    int64_t end;
};

static int complete = 1;

static void stream_process(stream_t *sd)
{
    struct counts *counts = sd->user_state;
    struct scap_pkthdr header;

    if (counts == NULL) {
        counts = sd->user_state = calloc(1, sizeof *counts);
        if (counts == NULL) {
            complete = 0;
            return;
        }
    }
    counts->bytes += sd->data_len;
    while (scap_next_stream_packet(sd, &header) != NULL) {
        counts->packets++;
        counts->payload += header.payload_len;
        if (header.offset < counts->end)
            counts->late++;
        else
            counts->end = header.offset + (int64_t)header.payload_len;
    }
}

static void stream_close(stream_t *sd)
{
    struct counts *counts = sd->user_state;
    char src[SCAP_ADDRESS_BYTES], dst[SCAP_ADDRESS_BYTES];

    if (counts == NULL)
        return;
    scap_address_text(sd->hdr.src_ip, src, sizeof src);
    scap_address_text(sd->hdr.dst_ip, dst, sizeof dst);
    printf("%s %u %s %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", src, (unsigned)sd->hdr.src_port, dst,
           (unsigned)sd->hdr.dst_port, (unsigned)sd->hdr.protocol, counts->packets, counts->payload, counts->late,
           counts->bytes);
    free(counts);
    sd->user_state = NULL;
}

/* Ctrl-C ends the capture; what it has found until then is told as at its end. */
static void on_signal(int number)
{
    (void)number;
    scap_stop_capture(sc);
}

int main(int argc, char **argv)
{
    int failed;

    if (argc != 2) {
        fprintf(stderr, "usage: %s INTERFACE|FILE\n", argv[0]);
        return 2;
    }
    sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_WAIT, 1);
    if (sc == NULL) {
        fprintf(stderr, "%s\n", scap_errbuf(NULL));
        return 2;
    }
    scap_set_filter(sc, "tcp or udp");
    scap_dispatch_data(sc, stream_process);
    scap_dispatch_termination(sc, stream_close);
    /* (signal() would take only the first one where it is that of System V.) */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    failed = scap_start_capture(sc);
    if (failed)
        fprintf(stderr, "%s\n", scap_errbuf(sc));
    scap_close(sc);
    return failed || !complete ? EXIT_FAILURE : EXIT_SUCCESS;
}
