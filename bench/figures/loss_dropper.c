// A link that loses packets and knows which: an eBPF program on clsact (ingress) of the ends of two cables. It hands each packet on
// to the other cable, or drops it at random, and counts both by flow.
//
//   clang -O2 -g -target bpf -DTO=IFINDEX -c loss_dropper.c -o dropper.o
//   tc filter add dev DEVICE ingress bpf direct-action object-file dropper.o section tc
#include <linux/bpf.h>
#include <linux/pkt_cls.h>

#define SEC(name) __attribute__((section(name), used))

static void *(*lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*update)(void *map, const void *key, const void *value, __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static long (*load)(const void *skb, __u32 offset, void *to, __u32 len) = (void *)BPF_FUNC_skb_load_bytes;
static __u32 (*random_number)(void) = (void *)BPF_FUNC_get_prandom_u32;
static long (*redirect)(__u32 ifindex, __u64 flags) = (void *)BPF_FUNC_redirect;

// Addresses and ports of UDP over IPv4, as they stand in the packet.
struct key {
    __u8 bytes[12];
};

struct counts {
    __u64 passed, dropped;
};

// Pinned by name: both directions and all programs have the same.
struct {
    int (*type)[BPF_MAP_TYPE_HASH];
    int (*max_entries)[65536];
    int (*pinning)[1];
    struct key *key;
    struct counts *value;
} fg_counts SEC(".maps");

// One number: a packet is dropped if a random one is less.
struct {
    int (*type)[BPF_MAP_TYPE_ARRAY];
    int (*max_entries)[1];
    int (*pinning)[1];
    __u32 *key;
    __u32 *value;
} fg_limit SEC(".maps");

SEC("tc")
int dropper(struct __sk_buff *skb)
{
    struct key key;
    if (load(skb, 14 + 12, key.bytes, sizeof key.bytes) < 0)
        return redirect(TO, 0);
    struct counts *counts = lookup(&fg_counts, &key);
    if (!counts) {
        struct counts none = {0, 0};
        update(&fg_counts, &key, &none, BPF_NOEXIST);
        counts = lookup(&fg_counts, &key);
    }
    __u32 zero = 0;
    __u32 *limit = lookup(&fg_limit, &zero);
    int drops = limit && random_number() < *limit;
    if (counts)
        __sync_fetch_and_add(drops ? &counts->dropped : &counts->passed, 1);
    return drops ? TC_ACT_SHOT : redirect(TO, 0);
}

char _license[] SEC("license") = "GPL";
