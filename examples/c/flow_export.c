/*
 * Flow export: a line per stream when it ends, without looking at a single byte of payload.
 * The first listing of the Scap paper (section 3.3.1), with the callee filled in.
 *
 *   flow_export eth0
 *   flow_export trace.pcap
 */
#define _POSIX_C_SOURCE 200809L

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include <scap.h>

static scap_t *sc;

static void export_flow(const stream_t *sd)
{
    char src[SCAP_ADDRESS_BYTES], dst[SCAP_ADDRESS_BYTES];

    scap_address_text(sd->hdr.src_ip, src, sizeof src);
    scap_address_text(sd->hdr.dst_ip, dst, sizeof dst);
    printf("%s %u %s %u %u %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %s\n", src, (unsigned)sd->hdr.src_port,
           dst, (unsigned)sd->hdr.dst_port, (unsigned)sd->hdr.protocol, sd->stats.bytes, sd->stats.pkts,
           sd->stats.start, sd->stats.end, scap_status_name(sd->status));
}

static void stream_close(stream_t *sd)
{
    /* Of a connection in which one side never said anything, that side has no packets. */
    if (sd->stats.pkts > 0)
        export_flow(sd);
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
    sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_FAST, 0);
    if (sc == NULL) {
        fprintf(stderr, "%s\n", scap_errbuf(NULL));
        return 2;
    }
    scap_set_cutoff(sc, 0);
    scap_dispatch_termination(sc, stream_close);
    /* (signal() would take only the first one where it is that of System V.) */
    struct sigaction action = {.sa_handler = on_signal};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    failed = scap_start_capture(sc);
    if (failed)
        fprintf(stderr, "%s\n", scap_errbuf(sc));
    scap_close(sc);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
