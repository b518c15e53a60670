/* Packets come with their chunk, in the order of capture, and agree with it. */
#include <stdlib.h>

#include "check.h"

static scap_t *sc;
static uint64_t packets, payload, chunk_bytes, inside, differing, late;

static void on_data(stream_t *sd)
{
    struct scap_pkthdr header;
    char *packet, *first = NULL, copy[64];
    const char *place;
    uint64_t before = 0;
    uint32_t copied = 0;

    chunk_bytes += sd->data_len - sd->repeated;
    while ((packet = scap_next_stream_packet(sd, &header)) != NULL) {
        packets++;
        payload += header.payload_len;
        CHECK(header.caplen == header.headers_len + header.payload_len && header.caplen <= header.len);
        CHECK(header.headers_len > 20 && header.headers != NULL);
        CHECK(header.time >= before);
        CHECK((uint64_t)header.ts.tv_sec * 1000000000u + (uint64_t)header.ts.tv_usec * 1000u == header.time / 1000 * 1000);
        before = header.time;
        if (header.offset != INT64_MIN && header.offset >= (int64_t)sd->offset &&
            header.offset + (int64_t)header.payload_len <= (int64_t)(sd->offset + sd->data_len)) {
            /* Copies that lost against others differ; most are the stream's bytes, where those are. */
            place = sd->data + (header.offset - (int64_t)sd->offset);
            if (memcmp(packet, place, header.payload_len) != 0)
                differing++;
            inside += header.payload_len != 0 && packet == place;
        } else {
            late++;
        }
        if (first == NULL) {
            first = packet;
            copied = header.payload_len < sizeof copy ? header.payload_len : (uint32_t)sizeof copy;
            memcpy(copy, packet, copied);
        }
    }
    /* The first one is where it was. */
    CHECK(first == NULL || memcmp(first, copy, copied) == 0);
    CHECK(scap_next_stream_packet(sd, NULL) == NULL);
    CHECK(scap_error(sc) == SCAP_OK);
}

static void on_created(stream_t *sd)
{
    CHECK(scap_next_stream_packet(sd, NULL) == NULL);
    CHECK(scap_error(NULL) == SCAP_ESTATE);
}

static void capture(const char *path, int chunk, int workers)
{
    packets = payload = chunk_bytes = inside = differing = late = 0;
    sc = scap_create(path, SCAP_DEFAULT, SCAP_TCP_WAIT, 1);
    CHECK(sc != NULL);
    CHECK(scap_set_filter(sc, "tcp or udp") == 0);
    CHECK(scap_set_parameter(sc, SCAP_CHUNK_SIZE, chunk) == 0);
    CHECK(scap_set_worker_threads(sc, workers) == 0);
    CHECK(scap_dispatch_data(sc, on_data) == 0);
    CHECK(scap_start_capture(sc) == 0);
    scap_close(sc);
}

int main(int argc, char **argv)
{
    uint64_t all_packets, all_payload;

    if (argc != 2)
        return 100;
    capture(argv[1], 16384, 0);
    all_packets = packets;
    all_payload = payload;
    CHECK(packets > 100 && payload >= chunk_bytes);
    CHECK(differing * 100 < packets);
    CHECK(inside * 10 > packets);
    capture(argv[1], 1000, 0);
    CHECK(packets == all_packets && payload == all_payload);

    sc = scap_create(argv[1], SCAP_DEFAULT, SCAP_TCP_WAIT, 1);
    CHECK(scap_dispatch_creation(sc, on_created) == 0);
    CHECK(scap_start_capture(sc) == 0);
    scap_close(sc);
    return failures > 99 ? 99 : failures;
}
