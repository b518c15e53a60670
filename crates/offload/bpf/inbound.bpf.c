// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Frames that user space has put into `frames`, one after the other, as if an interface had received them. It is run by
// BPF_PROG_TEST_RUN for live frames of 14 bytes, and stands before the interface's own packets, which pass: where it stands
// nowhere, each such run waits some 20 ms for all processors.

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define UINT(name, value) int (*name)[value]
#define TYPE(name, value) value *name

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const resize)(struct xdp_md *frame, int by) = (void *)BPF_FUNC_xdp_adjust_tail;
static long (*const store)(struct xdp_md *frame, __u32 to, const void *from, __u32 len) = (void *)BPF_FUNC_xdp_store_bytes;

enum { MOST = 4096 - 8, ETHERNET = 14 };

struct frame {
	__u32 len;
	__u32 reserved;
	__u8 bytes[MOST];
};

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct frame);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} frames SEC(".maps");

// The number of the next frame.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} next SEC(".maps");

SEC("xdp")
int inbound(struct xdp_md *context) {
	if (context->data_end - context->data != ETHERNET)
		return XDP_PASS;
	__u32 zero = 0;
	__u64 *at = lookup(&next, &zero);
	if (!at)
		return XDP_DROP;
	__u32 number = (*at)++;
	struct frame *frame = lookup(&frames, &number);
	if (!frame)
		return XDP_DROP;
	__u32 len = frame->len;
	if (len < ETHERNET || len > MOST)
		return XDP_DROP;
	if (resize(context, (int)len - ETHERNET))
		return XDP_DROP;
	if (store(context, 0, frame->bytes, len))
		return XDP_DROP;
	return XDP_PASS;
}

char _license[] SEC("license") = "Dual MIT/GPL";
