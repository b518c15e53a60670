/* Every misuse is answered by an error. Run with a capture file that has TCP data, under valgrind and ASan, too. */
#include <limits.h>
#include <stdlib.h>

#include "check.h"

static scap_t *sc;
static stream_t *kept, *ended;
static int created, data_events, terminated;
static const char *path;

static void nothing(stream_t *sd)
{
    (void)sd;
}

/* What no callback may do. */
static void forbidden(stream_t *sd)
{
    scap_stats_t stats;

    CHECK(scap_start_capture(sc) == SCAP_ESTATE);
    CHECK_MESSAGE(sc, "scap_start_capture", "runs already");
    scap_close(sc);
    CHECK(scap_error(sc) == SCAP_ESTATE);
    CHECK_MESSAGE(sc, "scap_close", "the capture runs");
    CHECK(scap_set_filter(sc, "tcp") == SCAP_ESTATE);
    CHECK_MESSAGE(sc, "scap_set_filter", "runs already");
    CHECK(scap_set_memory(sc, 1 << 30) == SCAP_ESTATE);
    CHECK(scap_set_worker_threads(sc, 2) == SCAP_ESTATE);
    CHECK(scap_set_parameter(sc, SCAP_SHARE, 0) == SCAP_ESTATE);
    CHECK(scap_set_parameter(sc, SCAP_OFFLOAD, 0) == SCAP_ESTATE);
    CHECK(scap_dispatch_data(sc, nothing) == SCAP_ESTATE);
    CHECK(scap_get_stats(sc, &stats) == 0);
    CHECK(scap_get_stats(sc, NULL) == SCAP_EARGUMENT);

    CHECK(scap_set_stream_cutoff(NULL, sd, 10) == SCAP_EHANDLE);
    CHECK(scap_set_stream_cutoff(sc, NULL, 10) == SCAP_ESTREAM);
    CHECK(scap_set_stream_cutoff(sc, (stream_t *)(void *)&stats, 10) == SCAP_ESTREAM);
    CHECK(scap_set_stream_cutoff(sc, (stream_t *)((char *)sd + 8), 10) == SCAP_ESTREAM);
    CHECK(scap_set_stream_cutoff(sc, sd + 2, 10) == SCAP_ESTREAM || sd + 2 == kept);
    CHECK(scap_set_stream_cutoff(sc, sd, -2) == SCAP_EARGUMENT);
    CHECK(scap_set_stream_priority(sc, sd, -1) == SCAP_EARGUMENT);
    CHECK(scap_set_stream_priority(sc, sd, 256) == SCAP_EARGUMENT);
    CHECK(scap_set_stream_parameter(sc, sd, 99, 1) == SCAP_EPARAMETER);
    CHECK(scap_set_stream_parameter(sc, sd, SCAP_BASE_THRESHOLD, 1) == SCAP_EPARAMETER);
    CHECK(scap_set_stream_parameter(sc, sd, SCAP_INACTIVITY_TIMEOUT, 0) == SCAP_EARGUMENT);
    CHECK(scap_set_stream_parameter(sc, sd, SCAP_REASSEMBLY_POLICY, 77) == SCAP_EARGUMENT);
    CHECK(scap_set_stream_parameter(sc, sd, SCAP_OVERLAP_SIZE, sd->chunk_size) == SCAP_EARGUMENT);
    CHECK_MESSAGE(sc, "scap_set_stream_parameter", "overlap");
    CHECK(scap_set_stream_parameter(sc, sd, SCAP_REASSEMBLY_POLICY, SCAP_POLICY_LINUX) == 0);
    /* Only until its memory is used again can it be told that it has ended. */
    if (ended != NULL && ended != sd) {
        CHECK(scap_set_stream_cutoff(sc, ended, 10) == SCAP_ESTREAM);
        scap_discard_stream(sc, ended);
        CHECK(scap_error(sc) == SCAP_ESTREAM);
    }
    ended = NULL;
}

static void on_created(stream_t *sd)
{
    created++;
    CHECK(sd->opposite != NULL && sd->opposite->opposite == sd);
    CHECK(sd->data == NULL && sd->data_len == 0);
    CHECK(sd->user_state == NULL);
    sd->user_state = sd;
    CHECK(scap_keep_stream_chunk(sc, sd) == SCAP_ESTATE);
    CHECK_MESSAGE(sc, "scap_keep_stream_chunk", "no chunk");
    CHECK(scap_next_stream_packet(sd, NULL) == NULL);
    CHECK(scap_error(sc) == SCAP_EPACKETS);
    CHECK_MESSAGE(sc, "scap_next_stream_packet", "need_pkts");
    if (kept == NULL)
        kept = sd;
    forbidden(sd);
}

static void on_data(stream_t *sd)
{
    struct scap_pkthdr header;
    uint32_t start, length;

    data_events++;
    CHECK(sd->data != NULL && sd->data_len > 0 && sd->len == sd->data_len);
    CHECK(sd->user_state == sd);
    /* NULL: it has ended. */
    CHECK(sd->opposite->user_state == sd->opposite || sd->opposite->user_state == NULL);
    CHECK(scap_next_stream_packet(sd, &header) == NULL);
    CHECK(scap_error(sc) == SCAP_EPACKETS);
    CHECK(scap_next_stream_hole(sd->opposite, &start, &length) == SCAP_ESTREAM);
    CHECK(scap_next_stream_hole(NULL, NULL, NULL) == SCAP_ESTREAM);
    if (sd->opposite->user_state != NULL) {
        CHECK(scap_keep_chunk(sc, sd->opposite) == SCAP_ESTATE);
        CHECK(scap_set_stream_priority(sc, sd->opposite, 3) == 0 && sd->opposite->priority == 3);
    } else {
        CHECK(scap_keep_chunk(sc, sd->opposite) == SCAP_ESTREAM);
    }
    forbidden(sd);
}

static void on_terminated(stream_t *sd)
{
    terminated++;
    CHECK(sd->status != SCAP_STATUS_ACTIVE);
    CHECK(sd->data == NULL);
    CHECK(sd->user_state == sd);
    if (kept == sd)
        kept = NULL;
    forbidden(sd);
    sd->user_state = NULL;
    ended = sd;
}

static void handles(void)
{
    scap_stats_t stats;
    scap_t *wild = (scap_t *)(void *)&stats;
    scap_t *closed = scap_create(path, SCAP_DEFAULT, SCAP_TCP_FAST, 0);
    scap_t *handle[3];
    int i;

    CHECK(closed != NULL);
    scap_close(closed);
    CHECK(scap_set_cutoff(closed, 0) == SCAP_EHANDLE);
    CHECK_MESSAGE(NULL, "scap_set_cutoff", "not open");
    handle[0] = NULL;
    handle[1] = closed;
    handle[2] = wild;
    for (i = 0; i < 3; i++) {
        scap_t *bad = handle[i];

        CHECK(scap_set_memory(bad, 1 << 30) == SCAP_EHANDLE);
        CHECK(scap_set_filter(bad, "tcp") == SCAP_EHANDLE);
        CHECK(scap_set_cutoff(bad, 0) == SCAP_EHANDLE);
        CHECK(scap_add_cutoff_direction(bad, 0, SCAP_CLIENT_TO_SERVER) == SCAP_EHANDLE);
        CHECK(scap_add_cutoff_class(bad, 0, "tcp") == SCAP_EHANDLE);
        CHECK(scap_add_priority_class(bad, 1, "tcp") == SCAP_EHANDLE);
        CHECK(scap_add_policy(bad, "10.0.0.0/8", SCAP_POLICY_LINUX) == SCAP_EHANDLE);
        CHECK(scap_set_worker_threads(bad, 1) == SCAP_EHANDLE);
        CHECK(scap_set_parameter(bad, SCAP_CHUNK_SIZE, 100) == SCAP_EHANDLE);
        CHECK(scap_dispatch_creation(bad, nothing) == SCAP_EHANDLE);
        CHECK(scap_dispatch_data(bad, nothing) == SCAP_EHANDLE);
        CHECK(scap_dispatch_termination(bad, nothing) == SCAP_EHANDLE);
        CHECK(scap_start_capture(bad) == SCAP_EHANDLE);
        CHECK(scap_stop_capture(bad) == SCAP_EHANDLE);
        CHECK(scap_get_stats(bad, &stats) == SCAP_EHANDLE);
        CHECK(scap_set_stream_cutoff(bad, NULL, 0) == SCAP_EHANDLE);
        CHECK(scap_set_stream_priority(bad, NULL, 0) == SCAP_EHANDLE);
        CHECK(scap_set_stream_parameter(bad, NULL, SCAP_CHUNK_SIZE, 1) == SCAP_EHANDLE);
        CHECK(scap_keep_stream_chunk(bad, NULL) == SCAP_EHANDLE);
        CHECK(scap_keep_chunk(bad, NULL) == SCAP_EHANDLE);
        scap_discard_stream(bad, NULL);
        CHECK(scap_error(bad) == SCAP_EHANDLE);
        scap_close(bad);
        CHECK(scap_error(bad) == SCAP_EHANDLE);
    }
}

static void creation(void)
{
    CHECK(scap_create(NULL, SCAP_DEFAULT, SCAP_TCP_FAST, 0) == NULL);
    CHECK(scap_error(NULL) == SCAP_EARGUMENT);
    CHECK_MESSAGE(NULL, "scap_create", "NULL");
    CHECK(scap_create("no-such-thing", SCAP_DEFAULT, SCAP_TCP_FAST, 0) == NULL);
    CHECK(scap_error(NULL) == SCAP_EDEVICE);
    CHECK_MESSAGE(NULL, "scap_create", "no-such-thing");
    CHECK(scap_create("", SCAP_DEFAULT, SCAP_TCP_FAST, 0) == NULL);
    CHECK(scap_create("file:", SCAP_DEFAULT, SCAP_TCP_FAST, 0) == NULL);
    CHECK(scap_create("file:/no/such/file", SCAP_DEFAULT, SCAP_TCP_FAST, 0) == NULL);
    CHECK_MESSAGE(NULL, "scap_create", "/no/such/file");
    CHECK(scap_create("/", SCAP_DEFAULT, SCAP_TCP_FAST, 0) == NULL);
    CHECK(scap_error(NULL) == SCAP_EDEVICE);
    CHECK(scap_create(path, -1, SCAP_TCP_FAST, 0) == NULL);
    CHECK(scap_error(NULL) == SCAP_EARGUMENT);
    CHECK(scap_create(path, 1000, SCAP_TCP_FAST, 0) == NULL);
    CHECK_MESSAGE(NULL, "scap_create", "too small");
    CHECK(scap_create(path, SCAP_DEFAULT, 99, 0) == NULL);
    CHECK_MESSAGE(NULL, "scap_create", "mode 99");
    CHECK(scap_create("\xff\xfe", SCAP_DEFAULT, SCAP_TCP_FAST, 0) == NULL);
}

static void settings(void)
{
    scap_stats_t stats;

    sc = scap_create(path, SCAP_DEFAULT, SCAP_TCP_FAST, 0);
    CHECK(sc != NULL);
    CHECK(scap_error(sc) == SCAP_OK && scap_errbuf(sc)[0] == 0);
    CHECK(scap_set_cutoff(sc, -2) == SCAP_EARGUMENT);
    CHECK_MESSAGE(sc, "scap_set_cutoff", "-2");
    CHECK(scap_error(sc) == SCAP_EARGUMENT);
    CHECK(scap_set_cutoff(sc, INT_MIN) == SCAP_EARGUMENT);
    CHECK(scap_add_cutoff_direction(sc, 1, 2) == SCAP_EARGUMENT);
    CHECK(scap_add_cutoff_direction(sc, 1, -1) == SCAP_EARGUMENT);
    CHECK(scap_add_cutoff_direction(sc, -5, SCAP_CLIENT_TO_SERVER) == SCAP_EARGUMENT);
    CHECK(scap_set_filter(sc, "tcp port") == SCAP_EFILTER);
    CHECK_MESSAGE(sc, "scap_set_filter", "tcp port");
    CHECK(scap_add_cutoff_class(sc, 1, "nonsense nonsense") == SCAP_EFILTER);
    CHECK(scap_add_cutoff_class(sc, 1, NULL) == SCAP_EARGUMENT);
    CHECK(scap_add_cutoff_class(sc, 1, " ") == SCAP_EARGUMENT);
    CHECK(scap_add_priority_class(sc, 256, "tcp") == SCAP_EARGUMENT);
    CHECK(scap_add_policy(sc, NULL, SCAP_POLICY_LINUX) == SCAP_EARGUMENT);
    CHECK(scap_add_policy(sc, "10.0.0.0/99", SCAP_POLICY_LINUX) == SCAP_EARGUMENT);
    CHECK(scap_add_policy(sc, "10.0.0.0/8", 14) == SCAP_EARGUMENT);
    CHECK(scap_set_worker_threads(sc, -1) == SCAP_EARGUMENT);
    CHECK(scap_set_worker_threads(sc, INT_MAX) == SCAP_EARGUMENT);
    CHECK(scap_set_worker_threads(sc, 257) == SCAP_EARGUMENT);
    CHECK_MESSAGE(sc, "scap_set_worker_threads", "257 worker threads");
    CHECK(scap_set_worker_threads(sc, 256) == 0 && scap_set_worker_threads(sc, 0) == 0);
    CHECK(scap_set_memory(sc, 1) == SCAP_EARGUMENT);
    CHECK(scap_set_parameter(sc, 0, 1) == SCAP_EPARAMETER);
    CHECK_MESSAGE(sc, "scap_set_parameter", "no parameter 0");
    CHECK(scap_set_parameter(sc, SCAP_INACTIVITY_TIMEOUT, 0) == SCAP_EARGUMENT);
    CHECK(scap_set_parameter(sc, SCAP_BASE_THRESHOLD, 101) == SCAP_EARGUMENT);
    CHECK(scap_set_parameter(sc, SCAP_CHUNK_SIZE, -1) == SCAP_EARGUMENT);
    CHECK(scap_set_parameter(sc, SCAP_OVERLAP_SIZE, 16384) == SCAP_EARGUMENT);
    CHECK(scap_stop_capture(sc) == SCAP_ESTATE);
    CHECK(scap_get_stats(sc, &stats) == 0 && stats.pkts == 0);

    /* Outside of callbacks there are no streams. */
    CHECK(scap_set_stream_cutoff(sc, NULL, 1) == SCAP_ESTREAM);
    CHECK(scap_set_stream_cutoff(sc, (stream_t *)(void *)&stats, 1) == SCAP_ESTATE);
    CHECK(scap_next_stream_packet(NULL, NULL) == NULL);
    CHECK(scap_error(NULL) == SCAP_ESTATE);
    CHECK(scap_next_stream_packet((stream_t *)(void *)&stats, NULL) == NULL);

    /* Texts. */
    CHECK(scap_strerror(SCAP_ESTATE)[0] != 0);
    CHECK(strcmp(scap_strerror(12345), "unknown error code") == 0);
    CHECK(strcmp(scap_status_name(-3), "unknown") == 0);
    CHECK(scap_address_text(kept != NULL ? kept->hdr.src_ip : (scap_ip_t){{0}}, NULL, 10) == NULL);
    {
        char small[4] = "xyz";
        scap_ip_t zero = {{0}};

        CHECK(scap_address_text(zero, small, 0) == NULL && small[0] == 'x');
        CHECK(strcmp(scap_address_text(zero, small, 2), ":") == 0);
        CHECK(strcmp(scap_address_text(zero, small, sizeof small), "::") == 0);
    }
}

int main(int argc, char **argv)
{
    scap_stats_t stats;

    if (argc != 2)
        return 100;
    path = argv[1];
    handles();
    creation();
    settings();
    CHECK(scap_dispatch_creation(sc, on_created) == 0);
    CHECK(scap_dispatch_data(sc, on_data) == 0);
    CHECK(scap_dispatch_termination(sc, on_terminated) == 0);
    CHECK(scap_set_parameter(sc, SCAP_CHUNK_SIZE, 1024) == 0);
    CHECK(scap_start_capture(sc) == 0);
    CHECK(created > 0 && data_events > 0 && terminated == created);
    CHECK(scap_get_stats(sc, &stats) == 0);
    CHECK(stats.streams_created == (uint64_t)created && stats.chunks == (uint64_t)data_events);
    CHECK(stats.pkts_received == stats.pkts_delivered + stats.pkts_lost + stats.pkts_refused);

    /* After the capture. */
    CHECK(scap_start_capture(sc) == SCAP_ESTATE);
    CHECK_MESSAGE(sc, "scap_start_capture", "over");
    CHECK(scap_stop_capture(sc) == SCAP_ESTATE);
    CHECK(scap_set_cutoff(sc, 1) == SCAP_ESTATE);
    CHECK(scap_set_stream_cutoff(sc, ended, 1) == SCAP_ESTATE);
    CHECK(scap_error(sc) == SCAP_ESTATE);
    scap_close(sc);
    CHECK(scap_get_stats(sc, &stats) == SCAP_EHANDLE);
    scap_close(sc);
    return failures > 99 ? 99 : failures;
}
