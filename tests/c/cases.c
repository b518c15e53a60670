/*
 * Prints a line for every data event of a capture: number of the stream, time of its first packet, sender's address,
 * position of the first new byte, bytes missing before it, the new bytes in hexadecimal with "--" for those that are missing.
 *
 *   cases FILE MODE POLICY CHUNK OVERLAP WORKERS
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <scap.h>

static void stream_process(stream_t *sd)
{
    char src[SCAP_ADDRESS_BYTES];
    uint32_t at = sd->repeated, start = 0, length = 0;
    int more = scap_next_stream_hole(sd, &start, &length);

    scap_address_text(sd->hdr.src_ip, src, sizeof src);
    flockfile(stdout);
    printf("%" PRIu64 " %" PRIu64 " %s %" PRIu64 " %" PRIu64 " ", sd->uid, sd->stats.start, src, sd->offset + at, sd->missing);
    for (; at < sd->data_len; at++) {
        while (more == 1 && at >= start + length)
            more = scap_next_stream_hole(sd, &start, &length);
        if (more == 1 && at >= start)
            printf("--");
        else
            printf("%02x", (unsigned)(unsigned char)sd->data[at]);
    }
    printf("\n");
    funlockfile(stdout);
}

int main(int argc, char **argv)
{
    scap_t *sc;
    int failed;

    if (argc != 7) {
        fprintf(stderr, "usage: %s FILE MODE POLICY CHUNK OVERLAP WORKERS\n", argv[0]);
        return 2;
    }
    sc = scap_create(argv[1], SCAP_DEFAULT, atoi(argv[2]), 0);
    if (sc == NULL) {
        fprintf(stderr, "%s\n", scap_errbuf(NULL));
        return 2;
    }
    failed = scap_set_parameter(sc, SCAP_REASSEMBLY_POLICY, atoi(argv[3])) != SCAP_OK ||
             scap_set_parameter(sc, SCAP_CHUNK_SIZE, atoi(argv[4])) != SCAP_OK ||
             scap_set_parameter(sc, SCAP_OVERLAP_SIZE, atoi(argv[5])) != SCAP_OK ||
             scap_set_worker_threads(sc, atoi(argv[6])) != SCAP_OK ||
             scap_dispatch_data(sc, stream_process) != SCAP_OK || scap_start_capture(sc) != SCAP_OK;
    if (failed)
        fprintf(stderr, "%s\n", scap_errbuf(sc));
    scap_close(sc);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
