/*
 * Prints a line for each stream of a capture: the port it goes to, packets of it that were dropped, discarded, and captured.
 *
 *   priorities FILE MEMORY [PRIORITY FILTER]
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <scap.h>

static void stream_close(stream_t *sd)
{
    printf("%u %" PRIu64 " %" PRIu64 " %" PRIu64 "\n", (unsigned)sd->hdr.dst_port, sd->stats.dropped.pkts,
           sd->stats.discarded.pkts, sd->stats.captured.pkts);
}

static void stream_process(stream_t *sd)
{
    (void)sd;
}

int main(int argc, char **argv)
{
    scap_t *sc;
    int failed;

    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s FILE MEMORY [PRIORITY FILTER]\n", argv[0]);
        return 2;
    }
    sc = scap_create(argv[1], atoi(argv[2]), SCAP_TCP_WAIT, 0);
    if (sc == NULL) {
        fprintf(stderr, "%s\n", scap_errbuf(NULL));
        return 2;
    }
    failed = (argc == 5 && scap_add_priority_class(sc, atoi(argv[3]), argv[4]) != SCAP_OK) ||
             scap_dispatch_data(sc, stream_process) != SCAP_OK ||
             scap_dispatch_termination(sc, stream_close) != SCAP_OK || scap_start_capture(sc) != SCAP_OK;
    if (failed)
        fprintf(stderr, "%s\n", scap_errbuf(sc));
    scap_close(sc);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
