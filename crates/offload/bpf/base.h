// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What several programs need.

#pragma once

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
#define UINT(name, value) int (*name)[value]
#define TYPE(name, value) value *name

// Reads so many bytes of a packet.
typedef long (*loader)(const void *context, __u32 from, void *to, __u32 len);

static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static long (*const insert)(void *map, const void *key, const void *value, __u64 flags) = (void *)BPF_FUNC_map_update_elem;
static __u64 (*const now)(void) = (void *)BPF_FUNC_ktime_get_ns;
static __u64 (*const coarse)(void) = (void *)BPF_FUNC_ktime_get_coarse_ns;

INLINE __u16 be16(const __u8 *at) { return (__u16)at[0] << 8 | at[1]; }
INLINE __u32 be32(const __u8 *at) { return (__u32)be16(at) << 16 | be16(at + 2); }
INLINE int is_tag(__u16 type) { return type == 0x8100 || type == 0x88a8; }
