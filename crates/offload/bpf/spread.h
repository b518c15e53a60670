// SPDX-License-Identifier: MIT OR Apache-2.0
//
// Which worker a packet is for: by the addresses of the flow that it counts to, innermost of tunnels, the same for both directions.
// Ports are left out, as fragments have none. As runtime::spread does it for files, and crates/wire finds the flow; what is rare
// there (802.11 in GRE, home addresses) goes by the addresses around it.

#pragma once

#include "base.h"

struct pair {
	__u64 source[2];
	__u64 destination[2];
};

// A datagram in fragments that may be a tunnel's: where its first fragment went, the others go.
struct datagram {
	struct pair pair;
	__u32 id;
	__u32 protocol;
};

struct known {
	__u64 since;
	__u64 hash;
};

struct {
	UINT(type, BPF_MAP_TYPE_LRU_HASH);
	TYPE(key, struct datagram);
	TYPE(value, struct known);
	UINT(max_entries, 4096);
} carried SEC(".maps");

// Numbers of datagrams come again.
#define FORGOTTEN 5000000000ULL

// What begins at a place: an Ethernet type, or one of these, or what an IP header says, AFTER_IP.
enum { FRAME = 1 << 16, PPP, ANY_IP, AFTER_IP = 1 << 17, STOP = 0 };
enum { IPV4_TYPE = 0x0800, IPV6_TYPE = 0x86dd, MPLS = 0x8847 };
enum { LAYERS = 20, LONGEST_HEADER = 40 };
enum { IP_IN_IP = 4, UDP_IN_IP = 17, IPV6_IN_IP = 41, ROUTING = 43, FRAGMENT = 44, GRE = 47, AUTHENTICATION = 51 };

// 32 bits of a multilinear hash, mixed: who does not know the keys cannot choose addresses that go to one worker.
INLINE __u32 mix(const struct pair *pair, const __u64 *keys) {
	const __u64 *source = pair->source, *destination = pair->destination;
	__u64 a = __builtin_bswap64(source[0]), b = __builtin_bswap64(destination[0]);
	int swaps = a == b ? __builtin_bswap64(source[1]) > __builtin_bswap64(destination[1]) : a > b;
	const __u64 words[4] = {
		swaps ? destination[0] : source[0],
		swaps ? destination[1] : source[1],
		swaps ? source[0] : destination[0],
		swaps ? source[1] : destination[1],
	};
	__u64 sum = 0;
	for (int word = 0; word < 4; word++)
		sum += keys[2 * word] * (__u32)words[word] + keys[2 * word + 1] * (words[word] >> 32);
	sum = (sum ^ sum >> 32) * 0xd6e8feb86659fd93ULL;
	return sum >> 32;
}

// A layer in front of IP. Returns what follows it, and moves `at` there.
INLINE __u32 before_ip(const void *packet, __u32 *at, __u32 type, loader load, __u8 *bytes) {
	switch (type) {
	case FRAME:
		if (load(packet, *at, bytes, 14))
			return STOP;
		*at += 14;
		return be16(bytes + 12);
	case 0x6558:
		return FRAME;
	case 0x88e7:
		*at += 4;
		return FRAME;
	case 0x8100:
	case 0x88a8:
	case 0x9100:
	case 0x9200:
		if (load(packet, *at, bytes, 4))
			return STOP;
		*at += 4;
		return be16(bytes + 2);
	case MPLS:
	case 0x8848:
		if (load(packet, *at, bytes, 5))
			return STOP;
		*at += 4;
		if (!(bytes[2] & 1))
			return MPLS;
		__u32 label = be32(bytes) >> 12, first = bytes[4];
		if (label == 0 || (first >> 4 == 4 && (first & 15) >= 5))
			return IPV4_TYPE;
		if (label == 2 || first >> 4 == 6)
			return IPV6_TYPE;
		if (first >> 4 == 1)
			return STOP;
		// A pseudowire, with a control word if no type stands where it would without.
		if (first >> 4 == 0) {
			if (load(packet, *at, bytes, 18))
				return STOP;
			__u16 with = be16(bytes + 16), without = be16(bytes + 12);
			int is_known = without == IPV4_TYPE || without == IPV6_TYPE || without == 0x0806 || is_tag(without);
			if (with == IPV4_TYPE || with == IPV6_TYPE || is_tag(with) || !is_known)
				*at += 4;
		}
		return FRAME;
	case 0x8864:
		if (load(packet, *at, bytes, 6) || bytes[0] != 0x11 || bytes[1])
			return STOP;
		*at += 6;
		return PPP;
	case 0x880b:
	case PPP:
		if (load(packet, *at, bytes, 4))
			return STOP;
		if (be16(bytes) == 0xff03) {
			*at += 2;
			bytes[0] = bytes[2];
			bytes[1] = bytes[3];
		}
		__u32 is_short = bytes[0] & 1, protocol = is_short ? bytes[0] : be16(bytes);
		*at += 2 - is_short;
		return protocol == 0x21 ? IPV4_TYPE : protocol == 0x57 ? IPV6_TYPE : protocol == 0x281 || protocol == 0x283 ? MPLS : STOP;
	case ANY_IP:
		if (load(packet, *at, bytes, 1))
			return STOP;
		return bytes[0] >> 4 == 4 ? IPV4_TYPE : bytes[0] >> 4 == 6 ? IPV6_TYPE : STOP;
	}
	return STOP;
}

INLINE __u32 in_gre(const void *packet, __u32 *at, loader load, __u8 *bytes) {
	if (load(packet, *at, bytes, 4))
		return STOP;
	__u32 flags = be16(bytes), type = be16(bytes + 2), version = flags & 7, key = 0;
	// Routes are of another time.
	if (version > 1 || flags & 0x4000)
		return STOP;
	*at += version == 0 && flags & 0x8000 ? 8 : 4;
	if (flags & 0x2000) {
		if (load(packet, *at, bytes, 4))
			return STOP;
		key = be32(bytes);
		*at += 4;
	}
	if (flags & 0x1000)
		*at += 4;
	if (version == 1) {
		if (flags & 0x80)
			*at += 4;
		if (type == 0x6400 && flags == 0x2001)
			return FRAME;
		return key >> 16 && flags & 0x1000 ? PPP : STOP;
	}
	if (type == 0x88be) {
		if (flags & 0x1000)
			*at += 8;
		return FRAME;
	}
	if (type == 0x22eb) {
		if (load(packet, *at, bytes, 12))
			return STOP;
		*at += bytes[11] & 1 ? 20 : 12;
		__u32 kind = bytes[10] >> 2 & 31;
		return kind == 0 ? FRAME : kind == 2 ? ANY_IP : STOP;
	}
	if (type == 0x883e) {
		if (load(packet, *at, bytes, 1))
			return STOP;
		if (bytes[0] >> 4 != 4)
			*at += 4;
		return IPV4_TYPE;
	}
	return type;
}

INLINE __u32 in_gtpu(const void *packet, __u32 *at, loader load, __u8 *bytes) {
	if (bytes[0] >> 4 != 3 || bytes[1] != 0xff)
		return STOP;
	__u32 options = bytes[0] & 7;
	*at += 8;
	if (options) {
		if (load(packet, *at, bytes, 4))
			return STOP;
		*at += 4;
		__u32 extension = options & 4 ? bytes[3] : 0;
		for (int count = 0; count < 4 && extension; count++) {
			if (load(packet, *at, bytes, 1) || !bytes[0])
				return STOP;
			*at += bytes[0] * 4;
			if (load(packet, *at - 1, bytes, 1))
				return STOP;
			extension = bytes[0];
		}
	}
	return ANY_IP;
}

INLINE __u32 in_teredo(const void *packet, __u32 *at, loader load, __u8 *bytes) {
	if (be16(bytes) == 1) {
		*at += 13 + bytes[2] + bytes[3];
		if (load(packet, *at, bytes, 2))
			return STOP;
	}
	if (be16(bytes) == 0)
		*at += 8;
	return IPV6_TYPE;
}

INLINE __u32 in_udp(const void *packet, __u32 *at, loader load, __u8 *bytes) {
	if (load(packet, *at, bytes, 4))
		return STOP;
	__u16 from = be16(bytes), to = be16(bytes + 2);
	int is_vxlan = to == 4789 || to == 8472 || to == 4790, is_geneve = to == 6081;
	int is_gtpu = from == 2152 || to == 2152, is_teredo = from == 3544 || to == 3544, is_ayiya = from == 5072 || to == 5072;
	if (!is_vxlan && !is_geneve && !is_gtpu && !is_teredo && !is_ayiya)
		return STOP;
	*at += 8;
	if (load(packet, *at, bytes, 8))
		return STOP;
	if (is_vxlan) {
		__u32 next = bytes[3];
		*at += 8;
		if (!(bytes[0] & 8))
			return STOP;
		if (!(bytes[0] & 4) || next == 3)
			return FRAME;
		return next == 1 ? IPV4_TYPE : next == 2 ? IPV6_TYPE : next == 5 ? MPLS : next == 4 || to == 4790 ? STOP : FRAME;
	}
	if (is_geneve) {
		*at += 8 + (bytes[0] & 0x3f) * 4;
		return bytes[0] >> 6 ? STOP : be16(bytes + 2);
	}
	if (is_gtpu)
		return in_gtpu(packet, at, load, bytes);
	if (is_teredo)
		return in_teredo(packet, at, load, bytes);
	*at += 8 + (1 << (bytes[0] >> 4)) + (bytes[1] >> 4) * 4;
	return (bytes[2] & 15) != 1 ? STOP : bytes[3] == IPV6_IN_IP ? IPV6_TYPE : bytes[3] == IP_IN_IP ? IPV4_TYPE : STOP;
}

// What an IP header announces. `destination` is where a route ends.
INLINE __u32 after_ip(const void *packet, __u32 *at, __u32 protocol, loader load, __u8 *bytes, __u64 *destination) {
	switch (protocol) {
	case IP_IN_IP:
		return IPV4_TYPE;
	case IPV6_IN_IP:
		return IPV6_TYPE;
	case GRE:
		return in_gre(packet, at, load, bytes);
	case UDP_IN_IP:
		return in_udp(packet, at, load, bytes);
	case AUTHENTICATION:
		if (load(packet, *at, bytes, 2))
			return STOP;
		*at += (bytes[1] + 2) * 4;
		return AFTER_IP | bytes[0];
	case FRAGMENT:
		if (load(packet, *at, bytes, 1))
			return STOP;
		*at += 8;
		return AFTER_IP | bytes[0];
	case 0:
	case ROUTING:
	case 60:
	case 135:
	case 139:
	case 140:
		if (load(packet, *at, bytes, 4))
			return STOP;
		__u32 next = bytes[0], length = (bytes[1] + 1) * 8, kind = bytes[2];
		if (protocol == ROUTING && bytes[3] && length >= 24 && (kind == 0 || kind == 2 || kind == 4)) {
			__u32 last = kind == 4 ? 0 : (length - 24) / 16 * 16;
			if (load(packet, *at + 8 + last, bytes, 16))
				return STOP;
			__builtin_memcpy(destination, bytes, 16);
		}
		*at += length;
		return AFTER_IP | next;
	}
	return STOP;
}

INLINE int is_carrier(__u32 protocol) {
	return protocol == IP_IN_IP || protocol == UDP_IN_IP || protocol == IPV6_IN_IP || protocol == GRE;
}

// The hash of a packet in which `type` begins at `at`. (For the verifier that is no constant, so that one way to a layer is like
// another.) What is not IP is nobody's flow.
INLINE __u32 spread(const void *packet, __u32 at, __u32 type, loader load, const __u64 *keys) {
	struct pair pair = {};
	struct datagram datagram = {};
	__u8 bytes[LONGEST_HEADER] __attribute__((aligned(8))) = {};
	for (int layer = 0; layer < LAYERS && type != STOP; layer++) {
		// Of a datagram in fragments: its number, and where the fragment is in it.
		__u32 is_fragment = 0, offset = 0, id = 0;
		if (type == IPV4_TYPE) {
			if (load(packet, at, bytes, 20) || bytes[0] < 0x45 || bytes[0] > 0x4f)
				break;
			__u32 header = (bytes[0] & 15) * 4, total = be16(bytes + 2);
			if (total && total < header)
				break;
			pair.source[0] = pair.destination[0] = 0;
			pair.source[1] = __builtin_bswap64(0xffff00000000ULL | be32(bytes + 12));
			pair.destination[1] = __builtin_bswap64(0xffff00000000ULL | be32(bytes + 16));
			at += header;
			type = AFTER_IP | bytes[9];
			id = be16(bytes + 4);
			offset = be16(bytes + 6) & 0x1fff;
			is_fragment = be16(bytes + 6) & 0x3fff;
		} else if (type == IPV6_TYPE) {
			if (load(packet, at, bytes, 40) || bytes[0] >> 4 != 6)
				break;
			__builtin_memcpy(pair.source, bytes + 8, 16);
			__builtin_memcpy(pair.destination, bytes + 24, 16);
			at += 40;
			type = AFTER_IP | bytes[6];
		} else if (type & AFTER_IP) {
			__u32 protocol = type & 0xff;
			if (protocol == FRAGMENT && !load(packet, at, bytes, 8)) {
				id = be32(bytes + 4);
				offset = be16(bytes + 2) >> 3;
				is_fragment = be16(bytes + 2) & 0xfff9;
			}
			type = after_ip(packet, &at, protocol, load, bytes, pair.destination);
		} else {
			type = before_ip(packet, &at, type, load, bytes);
		}
		if (is_fragment) {
			__u32 protocol = type & 0xff;
			if (!(type & AFTER_IP) || !is_carrier(protocol))
				break;
			datagram.pair = pair;
			datagram.id = id;
			datagram.protocol = protocol;
			struct known *known = lookup(&carried, &datagram);
			if (known && coarse() - known->since < FORGOTTEN)
				return known->hash;
			if (offset)
				break;
		}
	}
	__u32 hash = mix(&pair, keys);
	if (datagram.protocol) {
		struct known known = {.since = coarse(), .hash = hash};
		insert(&carried, &datagram, &known, BPF_ANY);
	}
	return hash;
}
