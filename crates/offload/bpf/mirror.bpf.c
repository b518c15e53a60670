// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Before the packets of a mirror port: those that are wanted go to the AF_XDP sockets of the capture, with the time at which they
// came in front of them, and the system sees none. Each worker has this program with maps of its own. The interface has the first
// one's, which goes on with that of the worker whose flow it is.

#include "judge.h"
#include "spread.h"

static long (*const load_bytes)(const void *frame, __u32 from, void *to, __u32 len) = (void *)BPF_FUNC_xdp_load_bytes;
static __u64 (*const length)(const void *frame) = (void *)BPF_FUNC_xdp_get_buff_len;
static long (*const make_room)(struct xdp_md *frame, int by) = (void *)BPF_FUNC_xdp_adjust_meta;
static long (*const redirect)(void *map, __u64 key, __u64 flags) = (void *)BPF_FUNC_redirect_map;
static long (*const go_on)(void *context, void *programs, __u32 index) = (void *)BPF_FUNC_tail_call;

enum { QUEUES = 256, WORKERS = 256 };

// By receive queue.
struct {
	UINT(type, BPF_MAP_TYPE_XSKMAP);
	TYPE(key, __u32);
	TYPE(value, __u32);
	UINT(max_entries, QUEUES);
} sockets SEC(".maps");

// This program of the other workers.
struct {
	UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u32);
	UINT(max_entries, WORKERS);
} others SEC(".maps");

SEC("xdp.frags")
int mirror(struct xdp_md *frame) {
	__u32 zero = 0, len = length(frame);
	struct settings *settings = lookup(&setting, &zero);
	if (!settings)
		return XDP_PASS;
	if (settings->workers > 1) {
		__u64 hash = spread(frame, settings->zero, FRAME, load_bytes, settings->keys);
		__u32 worker = hash * settings->workers >> 32;
		if (worker)
			go_on(frame, &others, worker);
	}
	if (!judge(frame, len, 0, 0, load_bytes, 1, 0, settings))
		return XDP_DROP;
	if (settings->room)
		pass(settings, (__u64)settings->block * (1 + len / settings->block));
	// Where the driver has no room for it, it is the time at which the packet is taken.
	if (!make_room(frame, -(int)sizeof(__u64))) {
		__u64 *time = (void *)(long)frame->data_meta;
		if ((void *)(time + 1) <= (void *)(long)frame->data)
			*time = now();
	}
	long action = redirect(&sockets, frame->rx_queue_index, XDP_PASS);
	if (action != XDP_REDIRECT)
		__sync_fetch_and_add(&settings->unseen, 1);
	return action;
}

char _license[] SEC("license") = "Dual MIT/GPL";
