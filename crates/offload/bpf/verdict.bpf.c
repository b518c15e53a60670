// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What of a packet is copied into a capture's ring. It is attached to packet sockets behind a program that filters and puts the snap
// length into cb[0].

#include "judge.h"

static long (*const load_bytes)(const void *skb, __u32 from, void *to, __u32 len) = (void *)BPF_FUNC_skb_load_bytes;

// What the filter before it goes on with: `verdict`.
struct {
	UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u32);
	UINT(max_entries, 1);
} next SEC(".maps");

SEC("socket")
int verdict(struct __sk_buff *skb) {
	// Of the ring, for a packet's own.
	enum { HEADER = 96 };
	__u32 zero = 0, all = skb->cb[0], tag = skb->vlan_present ? 4 : 0;
	struct settings *settings = lookup(&setting, &zero);
	if (!settings)
		return all;
	__u32 wanted = judge(skb, skb->len, tag, tag ? skb->vlan_tci & 0xfff : 0, load_bytes, all, 1, settings);
	if (wanted && settings->room)
		pass(settings, (wanted < skb->len ? wanted : skb->len) + HEADER);
	return wanted;
}

char _license[] SEC("license") = "Dual MIT/GPL";
