/* What a program sets and what its callbacks ask for is done. */
#include <stdlib.h>

#include "check.h"

#define CUTOFF 1000

static scap_t *sc;
static int phase;
static uint64_t events, bytes, longest, cut, shown, discarded, kept, contiguous;

/* Of a stream: what came so far. */
struct state {
    uint64_t bytes;
    uint64_t events;
    int was_kept;
    unsigned char last[16];
};

static void on_created(stream_t *sd)
{
    sd->user_state = calloc(1, sizeof(struct state));
    CHECK(sd->hdr.direction == SCAP_CLIENT_TO_SERVER || sd->hdr.direction == SCAP_SERVER_TO_CLIENT);
    CHECK(sd->hdr.direction != sd->opposite->hdr.direction);
    CHECK(memcmp(&sd->hdr.src_ip, &sd->opposite->hdr.dst_ip, sizeof sd->hdr.src_ip) == 0);
    CHECK(sd->hdr.src_port == sd->opposite->hdr.dst_port);
    CHECK(sd->hdr.ip_version == 4 || sd->hdr.ip_version == 6);
    if (sd->hdr.ip_version == 4)
        CHECK(IN6_IS_ADDR_V4MAPPED(&sd->hdr.src_ip.in6));
}

static void on_data(stream_t *sd)
{
    struct state *state = sd->user_state;
    uint64_t fresh = sd->data_len - sd->repeated;

    CHECK(state != NULL && sd->chunks == state->events + 1);
    CHECK(sd->data_len >= sd->repeated);
    events++;
    bytes += fresh;
    state->bytes += fresh;
    state->events++;
    if (state->bytes > longest)
        longest = state->bytes;
    switch (phase) {
    case 1: /* a cutoff for all, and none for a direction */
        if (sd->hdr.direction == SCAP_SERVER_TO_CLIENT)
            CHECK(state->bytes <= CUTOFF && sd->cutoff == CUTOFF);
        else
            CHECK(sd->cutoff == SCAP_UNLIMITED);
        if (sd->flags & SCAP_CHUNK_CUTOFF) {
            cut++;
            CHECK(sd->status != SCAP_STATUS_ACTIVE && sd->opposite->status != SCAP_STATUS_CUTOFF);
            shown += sd->status == SCAP_STATUS_CUTOFF;
        } else {
            CHECK(sd->status != SCAP_STATUS_CUTOFF);
        }
        break;
    case 2: /* discarded after the first chunk */
        CHECK(state->events == 1);
        scap_discard_stream(sc, sd);
        discarded++;
        break;
    case 3: /* another cutoff for a stream, from its first chunk on */
        if (state->events == 1)
            CHECK(scap_set_stream_cutoff(sc, sd, 600) == 0 && sd->cutoff == 600);
        else
            CHECK(sd->cutoff == 600);
        CHECK(state->bytes <= 600 || state->events == 1);
        break;
    case 4: /* every first chunk is kept: the second begins with it */
        if (state->was_kept) {
            CHECK(sd->flags & SCAP_CHUNK_KEPT);
            CHECK(sd->repeated > 0 && memcmp(sd->data, state->last, sizeof state->last) == 0);
            state->was_kept = 0;
            contiguous++;
        } else if (state->events == 1 && sd->data_len >= sizeof state->last && !(sd->flags & SCAP_CHUNK_LAST)) {
            memcpy(state->last, sd->data, sizeof state->last);
            CHECK(scap_keep_stream_chunk(sc, sd) == 0);
            state->was_kept = 1;
            kept++;
        }
        break;
    case 5: /* chunks overlap */
        if (state->events > 1 && sd->missing == 0) {
            CHECK(sd->repeated == sizeof state->last);
            CHECK(memcmp(sd->data, state->last, sizeof state->last) == 0);
            contiguous++;
        }
        if (sd->data_len >= sizeof state->last)
            memcpy(state->last, sd->data + sd->data_len - sizeof state->last, sizeof state->last);
        break;
    }
}

static void on_terminated(stream_t *sd)
{
    CHECK(sd->stats.bytes == sd->stats.dropped.bytes + sd->stats.discarded.bytes + sd->stats.captured.bytes);
    CHECK(sd->stats.pkts == sd->stats.dropped.pkts + sd->stats.discarded.pkts + sd->stats.captured.pkts);
    CHECK(sd->stats.start <= sd->stats.end || sd->stats.pkts == 0);
    free(sd->user_state);
    sd->user_state = NULL;
}

static void capture(const char *path, int which, int chunk)
{
    scap_stats_t stats;

    phase = which;
    events = bytes = longest = 0;
    sc = scap_create(path, 64*1024*1024, SCAP_TCP_WAIT, 0);
    CHECK(sc != NULL);
    CHECK(scap_set_filter(sc, "tcp") == 0);
    CHECK(scap_set_parameter(sc, SCAP_CHUNK_SIZE, chunk) == 0);
    if (phase == 1) {
        CHECK(scap_set_cutoff(sc, CUTOFF) == 0);
        CHECK(scap_add_cutoff_direction(sc, SCAP_UNLIMITED, SCAP_CLIENT_TO_SERVER) == 0);
    }
    if (phase == 5)
        CHECK(scap_set_parameter(sc, SCAP_OVERLAP_SIZE, 16) == 0);
    if (phase == 6)
        CHECK(scap_add_cutoff_class(sc, 0, "ip or ip6") == 0);
    CHECK(scap_dispatch_creation(sc, on_created) == 0);
    CHECK(scap_dispatch_data(sc, on_data) == 0);
    CHECK(scap_dispatch_termination(sc, on_terminated) == 0);
    CHECK(scap_start_capture(sc) == 0);
    CHECK(scap_get_stats(sc, &stats) == 0);
    CHECK(stats.chunks == events && stats.streams_created == stats.streams_terminated);
    CHECK(stats.bytes == stats.dropped.bytes + stats.discarded.bytes + stats.captured.bytes);
    CHECK(stats.pkts_received == stats.pkts_delivered + stats.pkts_lost + stats.pkts_refused);
    CHECK(stats.memory_used == 0 && stats.memory_size == 64*1024*1024);
    scap_close(sc);
}

int main(int argc, char **argv)
{
    uint64_t all;

    if (argc != 2)
        return 100;
    capture(argv[1], 0, 512);
    all = bytes;
    CHECK(events > 100 && longest > 2 * CUTOFF);
    capture(argv[1], 1, 512);
    CHECK(cut > 0 && shown > 0 && bytes > 0 && bytes < all);
    capture(argv[1], 2, 512);
    CHECK(discarded > 0 && discarded == events && bytes < all);
    capture(argv[1], 3, 512);
    CHECK(longest <= 600 && bytes < all);
    capture(argv[1], 4, 512);
    CHECK(kept > 0 && kept == contiguous && bytes == all);
    contiguous = 0;
    capture(argv[1], 5, 512);
    CHECK(contiguous > 100 && bytes == all);
    capture(argv[1], 6, 512);
    CHECK(events == 0);
    return failures > 99 ? 99 : failures;
}
