/* What a program reads of each member of a scope; of a device here there is one. argv: device, "pushed": results come by
 * themselves, packets by their time */
#include "check.h"
#include <mapi/dist.h>
#include <mapi/expiredflowshash.h>
#include <mapi/function.h>
#include <mapi/hashsamp.h>
#include <mapi/pktinfo.h>

static unsigned long long hash(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    unsigned long long hash = 14695981039346656037ULL;
    while (count-- > 0)
        hash = (hash ^ *at++) * 1099511628211ULL;
    return hash;
}

static unsigned long long expired(const mapi_results_t *result)
{
    const struct flows_stat *stat = result->res;
    const struct flow_data *flows = (const void *)(stat + 1);
    unsigned long long sum = stat->received * 31ULL + stat->expired * 17ULL + stat->packets.received;
    unsigned at;
    OK((size_t)result->size == sizeof *stat + stat->sent * sizeof *flows);
    for (at = 0; at < stat->sent; at++)
        sum += hash(&flows[at], sizeof flows[at]);
    return sum;
}

static int begin(const mapi_argument_t *arguments, unsigned count, void **state)
{
    if (count != 1 || arguments[0].number < 1)
        return 1;
    return (*state = calloc(1, 8)) == NULL;
}

static int add(void *state, const struct mapipkt *packet)
{
    *(unsigned long long *)state += packet->caplen;
    return packet->caplen > 100;
}

static void tell(void *state, void *result)
{
    memcpy(result, state, 8);
}

static const mapi_function_t functions[] = {{"LARGE", "adds up bytes, passes large packets", "i", 1, 8, begin, add, tell, free}};
static const mapi_library_t library = {MAPI_LIBRARY_VERSION, "scopelib", functions, 1};

int main(int argc, char *argv[])
{
    int fd, own, large = 0, passed = 0, sampled, samples, size, member, at, fids[6], counts[8] = {0}, is_more = 1;
    unsigned long long packets = 0, sum = 0, last = 0, hashes[8] = {0};
    struct mapipkt *packet;
    mapi_results_t *results;
    mapi_function_info_t function;
    char list[16];
    mapi_flow_info_t flow;
    if (argc < 2)
        return 2;
    OK((fd = mapi_create_flow(argv[1])) > 0 && (sampled = mapi_create_flow(argv[1])) > 0);
    size = mapi_get_scope_size(fd);
    OK(size > 0 && size <= 8);
    FAILS(mapi_set_option(fd, 0, 1) != -1, 7002);
    FAILS(mapi_set_option(fd, MAPI_PREFETCH, 0) != -1, 7003);
    if (argc > 2) {
        OK(mapi_set_option(fd, MAPI_PUSH_INTERVAL, 5) == 0 && mapi_set_option(fd, MAPI_PREFETCH, 10000) == 0);
        OK(mapi_set_option(fd, MAPI_MERGE_BY_TIME, 1000) == 0 && mapi_set_option(sampled, MAPI_PUSH_INTERVAL, 5) == 0);
    }
    OK((fids[0] = mapi_apply_function(fd, "PKT_COUNTER")) == 1);
    OK((fids[1] = mapi_apply_function(fd, "BYTE_COUNTER")) == 2);
    OK((fids[2] = mapi_apply_function(fd, "PKTINFO", PKT_SIZE)) == 3);
    OK((fids[3] = mapi_apply_function(fd, "DIST", fd, fids[2], "100", "1400", "130")) == 4);
    OK((fids[4] = mapi_apply_function(fd, "EXPIRED_FLOWS", 10000, 10000, 1)) == 5);
    OK((fids[5] = mapi_apply_function(fd, "TO_BUFFER", WAIT)) == 6);
    OK(mapi_apply_function(sampled, "BPF_FILTER", "tcp[13] == 2 and tcp port 443") == 1);
    OK((samples = mapi_apply_function(sampled, "HASHSAMP", 1024, 1)) == 2);
    FAILS(mapi_read_results(fd, fids[0]) != NULL, 6143);
    FAILS(mapi_get_next_pkt(fd, fids[5]) != NULL, 6143);
    FAILS(mapi_apply_function(fd, "BPF_FILTER", "tcp prot 80") != -1, 1025);
    FAILS(mapi_apply_function(fd, "NO_SUCH") != -1, 6144);
    /* Functions of this program's own, on what each member passes, from when the other flow is connected. */
    OK(mapi_add_library(&library) > 0 && (own = mapi_create_flow(argv[1])) > 0);
    snprintf(list, sizeof list, "%d", fd);
    FAILS(mapi_apply_function(own, "SYNC", "99") != -1, 7001);
    OK(mapi_apply_function(own, "SYNC", list) == 1);
    FAILS(mapi_apply_function(own, "LARGE", 0) != -1, 7001);
    OK(mapi_apply_function(own, "LARGE", 1) == 2 && mapi_apply_function(own, "TO_BUFFER", WAIT) == 3);
    FAILS(mapi_apply_function(own, "LARGE", 1) != -1, 7000);
    OK(mapi_connect(own) == 0);
    FAILS(mapi_connect(own) != -2, 3081);
    FAILS(mapi_read_results(own, 2) != NULL, 6143);
    OK(mapi_connect(fd) == 0 && mapi_connect(sampled) == 0);
    OK(mapi_read_results(own, 2) != NULL);
    FAILS(mapi_connect(fd) != -2, 3081);
    FAILS(mapi_apply_function(fd, "PKT_COUNTER") != -1, 7006);
    FAILS(mapi_read_results(fd, fids[5]) != NULL, 6147);
    FAILS(mapi_read_results(fd, 7) != NULL, 6147);
    FAILS(mapi_get_next_pkt(fd, fids[0]) != NULL, 6147);
    puts("connected");
    fflush(stdout);
    getchar();
    while ((packet = mapi_get_next_pkt(fd, fids[5])) != NULL) {
        packets++;
        large += packet->caplen > 100;
        OK(argc < 3 || packet->ts >= last);
        last = packet->ts;
        sum += hash(&packet->pkt, packet->caplen) ^ packet->ts;
    }
    printf("packets %llu %llx\n", packets, sum);
    finish(fd);
    while (mapi_get_next_pkt(own, 3) != NULL)
        passed++;
    OK(passed == large && passed > 0);
    finish(own);
    OK(mapi_get_function_info(fd, fids[0], &function) == 0 && function.pkts == packets);
    OK(mapi_get_flow_info(fd, &flow) == 0 && flow.num_functions == 6 && flow.start > 0 && flow.devid > 0);
    while (is_more) {
        is_more = 0;
        results = mapi_read_results(sampled, samples);
        for (member = 0; results != NULL && member < size; member++) {
            OK(results[member].res != NULL);
            if (results[member].size == 0)
                continue;
            OK(results[member].size == sizeof(struct sample));
            hashes[member] += hash(results[member].res, sizeof(struct sample));
            counts[member]++;
            is_more = 1;
        }
    }
    expect(6147, "there is no further sample", __LINE__);
    for (member = 0; member < size; member++) {
        for (at = 0; at < 4; at++) {
            /* One that is late on a busy machine is there later. */
            do
                OK((results = mapi_read_results(fd, fids[at])) != NULL && results[member].res != NULL);
            while (results[member].ts == 0);
            printf("%llx ", hash(results[member].res, at == 3 ? (size_t)results[member].size : 8));
            if (at < 2)
                printf("%llu ", *(unsigned long long *)results[member].res);
        }
        OK((results = mapi_read_results(own, 2)) != NULL && results[member].size == 8);
        printf("own %llu ", *(unsigned long long *)results[member].res);
        printf("samples %d %llx\n", counts[member], hashes[member]);
    }
    /* What is read of flows is read of all members at once. */
    OK((results = mapi_read_results(fd, fids[4])) != NULL);
    for (member = 0; member < size; member++)
        printf("expired %llx\n", expired(&results[member]));
    OK(mapi_close_flow(fd) == 0 && mapi_close_flow(sampled) == 0 && mapi_close_flow(own) == 0);
    FAILS(mapi_read_results(fd, 1) != NULL, 6145);
    return 0;
}
