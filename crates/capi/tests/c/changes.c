/* What is wanted of streams changes while the capture runs. */
#include "check.h"

static scap_t *sc;
static int phase, asked;
static uint64_t timed_out, created, changed, data;

static void on_created(stream_t *sd)
{
    created++;
    if (sd->cutoff == 7) {
        CHECK(asked && sd->chunk_size == 100);
        changed++;
    }
    if (phase == 1)
        CHECK(scap_set_stream_parameter(sc, sd, SCAP_INACTIVITY_TIMEOUT, 1) == 0);
}

static void on_data(stream_t *sd)
{
    data++;
    if (sd->cutoff == 7)
        CHECK(sd->offset + sd->data_len <= 7);
    if (phase != 2 || asked)
        return;
    asked = 1;
    CHECK(scap_set_cutoff(sc, 7) == 0);
    CHECK(scap_set_parameter(sc, SCAP_CHUNK_SIZE, 100) == 0);
    CHECK(scap_set_parameter(sc, SCAP_FLUSH_TIMEOUT, 1000) == 0);
    CHECK(scap_set_parameter(sc, SCAP_INACTIVITY_TIMEOUT, 1) == 0);
    CHECK(scap_add_cutoff_class(sc, 7, "tcp") == 0);
    CHECK(scap_add_priority_class(sc, 3, "udp") == 0);
    CHECK(scap_set_parameter(sc, SCAP_BASE_THRESHOLD, 10) == 0);
    CHECK(scap_set_parameter(sc, SCAP_OVERLOAD_CUTOFF, 1000) == 0);
    CHECK(scap_set_parameter(sc, SCAP_REASSEMBLY_POLICY, SCAP_POLICY_LAST) == 0);
    CHECK(scap_add_policy(sc, "10.0.0.0/8", SCAP_POLICY_LINUX) == 0);
    /* What is wrong changes nothing. */
    CHECK(scap_set_parameter(sc, SCAP_BASE_THRESHOLD, 101) == SCAP_EARGUMENT);
    CHECK(scap_add_policy(sc, "10.0.0.0/99", SCAP_POLICY_LINUX) == SCAP_EARGUMENT);
    CHECK(scap_set_parameter(sc, SCAP_OVERLAP_SIZE, 100) == SCAP_EARGUMENT);
    CHECK(scap_add_cutoff_class(sc, 9, "tcp prt 80") == SCAP_EFILTER);
    CHECK(scap_set_cutoff(sc, -2) == SCAP_EARGUMENT);
    /* The rest cannot be changed any more. */
    CHECK(scap_set_filter(sc, "tcp") == SCAP_ESTATE);
    CHECK(scap_set_parameter(sc, SCAP_SHARE, 0) == SCAP_ESTATE);
    CHECK(scap_set_worker_threads(sc, 2) == SCAP_ESTATE);
}

static void on_terminated(stream_t *sd)
{
    if (sd->status == SCAP_STATUS_CLOSED_TIMEOUT)
        timed_out++;
}

static void capture(const char *path, int which, int threads)
{
    phase = which;
    timed_out = created = changed = data = 0;
    asked = 0;
    sc = scap_create(path, SCAP_DEFAULT, SCAP_TCP_WAIT, 0);
    CHECK(sc != NULL);
    CHECK(scap_set_parameter(sc, SCAP_INACTIVITY_TIMEOUT, 1000) == 0);
    CHECK(scap_set_worker_threads(sc, threads) == 0);
    CHECK(scap_dispatch_creation(sc, on_created) == 0);
    CHECK(scap_dispatch_data(sc, on_data) == 0);
    CHECK(scap_dispatch_termination(sc, on_terminated) == 0);
    CHECK(scap_start_capture(sc) == 0);
    CHECK(scap_set_cutoff(sc, 7) == SCAP_ESTATE);
    CHECK_MESSAGE(sc, "scap_set_cutoff", "is over");
    scap_close(sc);
    CHECK(created > 0 && data > 0);
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 100;
    capture(argv[1], 0, 0);
    CHECK(timed_out == 0 && changed == 0);
    capture(argv[1], 1, 0);
    CHECK(timed_out > 0 && changed == 0);
    capture(argv[1], 2, 0);
    CHECK(timed_out > 0 && changed > 0 && changed < created);
    return failures > 99 ? 99 : failures;
}
