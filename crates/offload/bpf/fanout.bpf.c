// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which socket of a group gets a packet: a number, of which the system takes the rest by the group's size.

#include "spread.h"

static long (*const load)(const void *skb, __u32 at, void *to, __u32 len) = (void *)BPF_FUNC_skb_load_bytes;
static long (*const load_from)(const void *skb, __u32 at, void *to, __u32 len, __u32 begin) = (void *)BPF_FUNC_skb_load_bytes_relative;

struct setting {
	// Of the hash.
	__u64 keys[8];
	__u64 zero;
};

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct setting);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} setting SEC(".maps");

// From the network header on. What is in other pages than that is found from where the data begin: of frames that are sent, with
// their link header.
INLINE long load_bytes(const void *context, __u32 at, void *to, __u32 len) {
	enum { OUTGOING = 4, ETHERNET = 14 };
	const struct __sk_buff *skb = context;
	if (!load_from(skb, at, to, len, BPF_HDR_START_NET))
		return 0;
	return load(skb, skb->pkt_type == OUTGOING ? at + ETHERNET : at, to, len);
}

SEC("socket")
int fanout(struct __sk_buff *skb) {
	__u32 zero = 0;
	struct setting *set = lookup(&setting, &zero);
	if (!set)
		return 0;
	return spread(skb, set->zero, __builtin_bswap16(skb->protocol), load_bytes, set->keys);
}

char _license[] SEC("license") = "Dual MIT/GPL";
