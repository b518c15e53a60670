// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What of a packet is wanted, by the verdict on its flow: what the programs of packet sockets and of mirror ports share.
//
// User space writes verdicts into `slots`, and reads there what was kept away. Only it writes `flows`.

#pragma once

#include "base.h"

// As FlowKey of crates/wire; what it is a key of has a VLAN instead of the context.
struct key {
	__u64 low[2];
	__u64 high[2];
	__u16 low_port;
	__u16 high_port;
	// The protocol, V6, and above them the VLAN.
	__u32 kind;
};

// Packets with payload, or without: their frames have ETHERNET and `extra` bytes beside the IP packets.
struct counts {
	__u64 packets;
	__u64 ip_bytes;
	__u64 extra;
};

// Two cache lines: the second is for packets without payload, and for the first of an epoch.
struct side {
	struct counts data;
	__u64 payload_bytes;
	__u64 last;
	__u32 next_seq;
	__u32 ack;
	__u32 window;
	// TCP flags seen, and above them whether next_seq and ack are of a packet.
	__u32 flags;
	// The first packets that were kept away after user space had looked (of those in turn, after the last that was not): in which
	// epochs, and of these when and where.
	__u32 epochs[2];
	__u64 times[2];
	__u32 seqs[2];
	struct counts empty;
	__u64 spares[2];
};

// What came of a direction: one past the highest sequence number, the highest acknowledgement, as Flow of crates/flow has them.
struct turn {
	__u32 next;
	__u32 acked;
};

// The first cache line has what is asked about each packet.
struct slot {
	// By direction: what of its packets is wanted, whether they are BEYOND or FOLLOWED, whether the flow is LAZY (nothing depends on what
	// is counted until a packet comes out of turn), and of which VLAN they are, or ANY.
	__u32 mode[2];
	// A SYN came: another connection.
	__u32 ended;
	// By direction.
	__u16 priority[2];
	// Packets that came out of turn, and how many of them user space has processed.
	__u32 breaks;
	__u32 taken;
	// By direction, what came of it, and when: in units, above CAME.
	__u32 came[2];
	struct turn turns[2];
	// Of a flow over IPv4 whose hash leads here, the end of its key.
	__u32 addresses[2];
	__u64 end;
	struct side sides[2];
};

struct settings {
	__u32 epoch;
	// Of flows that are not in the table.
	__u32 others;
	// Whether the table has flows, and such of which packets are of any VLAN.
	__u32 flows;
	__u32 any;
	// Overload. Bytes of the ring that it is measured by, 0: nothing is lost to it; and how many of them the memory in use is.
	__u32 room;
	__u32 memory;
	// So many bytes had gone into the ring when it was empty last, or would have been.
	__u64 drained;
	// Blocks of the ring: bytes, and how long one is filled at most.
	__u32 block;
	__u32 retire;
	// The least pressure at which somebody loses something.
	__u32 base;
	__u32 reserved;
	// So many slots are there for losses of flows, from this one on; 0: they are counted in all alone.
	__u32 end;
	__u32 first;
	// After so many units of silence a packet in turn comes: it may be of another flow.
	__u32 silence;
	__u32 padding;
	// Packets of which only headers were copied, what was kept away, and what was lost to overload: on lines that others do not read.
	__u64 cut;
	__u64 packets;
	__u64 bytes;
	__u64 lost;
	__u64 lost_bytes;
	// Of what was lost, what no slot has.
	__u64 rest;
	__u64 rest_bytes;
	__u64 rest_payload;
	// Bytes that have gone into the ring, as far as is known here, and when its block was begun.
	__u64 passed;
	__u64 begun;
	// How many of the slots for losses have a flow.
	__u32 next;
	__u32 spare;
	// Packets of a mirror port that came by a queue without a ring.
	__u64 unseen;
	// A packet came whose flow is not known here: to user space it may be one of those that are LAZY.
	__u64 unread;
	__u64 spares[3];
	// Of the hash of flows whose SYNs are noted: one for each half of an address' words, and one for the ports.
	__u64 keys[9];
	// Of a mirror port: the workers that share its packets, in the program that the interface has.
	__u64 workers;
	__u64 zero;
	__u64 rest_of_line[5];
};

// Of a priority: from which pressure on it loses what is beyond the overload cutoff, and from which all data.
struct limits {
	__u32 beyond;
	__u32 all;
};

enum { ALL, HEADERS, NONE, OUT_OF_TURN, MODES = 3, ANY, BEYOND = 8, FOLLOWED = 16, LAZY = 32, VLAN = 8, PRIORITIES = 256 };
#define RUN (1U << 31)
enum { SEGMENT = 1, ACKNOWLEDGEMENT = 2, DATA = 4, CAME = 3, UNIT = 20 };
#define FAR (1U << 20)
#define NOWHERE (~0U)
enum { V6 = 1 << 7 };
enum { HASHES = 1 << 16, LINE = 16 };
#define SOME (~0U)
struct line {
	__u32 of[LINE];
};

enum { HAS_SEQ = 1 << 16, HAS_ACK = 1 << 17 };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct key);
	TYPE(value, __u32);
	UINT(max_entries, 1);
	// Most captures have few flows under a verdict: memory comes with them.
	UINT(map_flags, BPF_F_NO_PREALLOC);
} flows SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct slot);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} slots SEC(".maps");

// By the hash of flows: what to look for in the table, SOME, or one past the slot of the only one.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	// A line of them: numbers of four bytes alone would take eight.
	TYPE(value, struct line);
	UINT(max_entries, HASHES / LINE);
	UINT(map_flags, BPF_F_MMAPABLE);
} watched SEC(".maps");

// A bit for each hash that `watched` has something of: most packets are of none, and of so small a table the processor keeps every line.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	UINT(max_entries, HASHES / 64);
	UINT(map_flags, BPF_F_MMAPABLE);
} noted SEC(".maps");

// Two bits for each slot in which something was counted, in words one behind the other: whether user space waits for it, and whether it
// is LAZY.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} dirty SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct settings);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} setting SEC(".maps");

// By priority.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct limits);
	UINT(max_entries, PRIORITIES);
	UINT(map_flags, BPF_F_MMAPABLE);
} limits SEC(".maps");

// The slots in which losses of flows are counted: behind those of verdicts.
struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct key);
	TYPE(value, __u32);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_NO_PREALLOC);
} losses SEC(".maps");

// Whose losses are in the slots for them.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct key);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} losers SEC(".maps");

// When a SYN came last for flows of a hash: user space has a verdict wait until it has seen that one. The lowest bit says whether an
// answer is due: a SYN/ACK that answers none is of a connection whose SYN could not be read here (in fragments), and begins it.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	UINT(max_entries, HASHES);
	UINT(map_flags, BPF_F_MMAPABLE);
} syns SEC(".maps");

struct packet {
	__u64 source[2];
	__u64 destination[2];
	__u16 from;
	__u16 to;
	__u8 protocol;
	__u8 version;
	// The outer two VLAN ids, as Decoded::vlan_number of crates/wire.
	__u32 vlan;
	__u32 ip_len;
	__u32 payload;
	// Where the payload begins in the frame.
	__u32 payload_at;
	__u32 flags;
	__u32 seq;
	__u32 ack;
	__u32 window;
	// Whether its IP header is not known to be right.
	__u32 is_doubtful;
};

enum { ETHERNET = 14, IPV4 = 20, IPV6 = 40, TCP = 20, UDP = 8 };
enum { HEADERS_LEN = ETHERNET + IPV4 + TCP };

// The direction: whether the source is the larger end, by address and port.
INLINE __u32 direction_of(const struct packet *packet) {
	const __u64 *source = packet->source, *destination = packet->destination;
	__u64 a = __builtin_bswap64(source[0]), b = __builtin_bswap64(destination[0]);
	if (a == b) {
		a = __builtin_bswap64(source[1]);
		b = __builtin_bswap64(destination[1]);
	}
	return a == b ? packet->from > packet->to : a > b;
}

// The smaller end first.
INLINE void name(const struct packet *packet, __u32 direction, struct key *key) {
	const __u64 *source = packet->source, *destination = packet->destination;
	key->low[0] = direction ? destination[0] : source[0];
	key->low[1] = direction ? destination[1] : source[1];
	key->high[0] = direction ? source[0] : destination[0];
	key->high[1] = direction ? source[1] : destination[1];
	key->low_port = direction ? packet->to : packet->from;
	key->high_port = direction ? packet->from : packet->to;
	key->kind = packet->vlan << VLAN | (packet->version == 6 ? V6 : 0) | packet->protocol;
}

// A tag behind `count` others. One of VLAN 0 has a priority only.
INLINE __u32 add_tag(__u32 vlan, int count, __u16 tag) {
	__u32 id = tag & 0xfff;
	return count > 1 ? vlan : vlan ? vlan | id << 12 : id;
}

// Whether a packet is one of TCP or UDP, not fragmented, whose headers are whole. `tags`: a tag was taken out of the frame, that of
// packet->vlan.
INLINE int decode(const void *frame, __u32 len, int tags, loader load, struct packet *packet) {
	// One load has all of most packets. IP headers stand at even words.
	__u8 buffer[2 + HEADERS_LEN] __attribute__((aligned(8)));
	__u8 *bytes = buffer + 2, *ip = bytes + ETHERNET, *transport = ip + IPV4;
	__u32 at = ETHERNET;
	if (len >= HEADERS_LEN) {
		if (load(frame, 0, bytes, HEADERS_LEN))
			return 0;
	} else if (len < ETHERNET + IPV4 + UDP || load(frame, 0, bytes, ETHERNET + IPV4 + UDP)) {
		return 0;
	}
	__u16 type = be16(bytes + 12);
	if (is_tag(type)) {
		packet->vlan = add_tag(packet->vlan, tags, be16(ip));
		type = be16(ip + 2);
		at += 4;
		if (is_tag(type)) {
			packet->vlan = add_tag(packet->vlan, tags + 1, be16(ip + 4));
			type = be16(ip + 6);
			at += 4;
		}
		if (len < at + IPV6 ? load(frame, at, ip, IPV4 + UDP) : load(frame, at, ip, IPV6))
			return 0;
	}
	__u32 end;
	if (type == 0x0800) {
		__u32 header = (ip[0] & 15) * 4;
		// More fragments, or not the first.
		if (ip[0] >> 4 != 4 || header < IPV4 || be16(ip + 6) & 0x3fff)
			return 0;
		packet->ip_len = be16(ip + 2);
		end = at + packet->ip_len;
		at += header;
		// With options user space looks at it.
		const __u16 *halves = (const __u16 *)ip;
		__u32 sum = 0;
		for (int half = 0; half < IPV4 / 2; half++)
			sum += halves[half];
		packet->is_doubtful = header != IPV4 || (sum & 0xffff) + (sum >> 16) != 0xffff;
		packet->version = 4;
		packet->protocol = ip[9];
		packet->source[0] = packet->destination[0] = 0;
		packet->source[1] = __builtin_bswap64(0xffff00000000ULL | be32(ip + 12));
		packet->destination[1] = __builtin_bswap64(0xffff00000000ULL | be32(ip + 16));
	} else if (type == 0x86dd) {
		if (len < at + IPV6 || ip[0] >> 4 != 6)
			return 0;
		__u16 length = be16(ip + 4);
		packet->ip_len = IPV6 + length;
		end = at + packet->ip_len;
		__u8 next = ip[6];
		__builtin_memcpy(packet->source, ip + 8, 16);
		__builtin_memcpy(packet->destination, ip + 24, 16);
		at += IPV6;
		for (int headers = 0; headers < 4; headers++) {
			// Hop-by-hop options, routing, destination options.
			if (next != 0 && next != 43 && next != 60)
				break;
			if (load(frame, at, bytes, 2))
				return 0;
			next = bytes[0];
			at += (bytes[1] + 1) * 8;
		}
		// A jumbogram has its length elsewhere.
		if (length == 0)
			return 0;
		packet->version = 6;
		packet->protocol = next;
	} else {
		return 0;
	}
	// Of a frame that is not whole user space says what that means.
	if (end > len)
		return 0;
	int is_tcp = packet->protocol == 6, is_there = at == ETHERNET + IPV4 && len >= HEADERS_LEN;
	if (!is_tcp && packet->protocol != 17)
		return 0;
	if (!is_there && (is_tcp ? load(frame, at, transport, TCP) : load(frame, at, transport, UDP)))
		return 0;
	__u32 header = UDP;
	if (is_tcp) {
		header = (transport[12] >> 4) * 4;
		if (header < TCP)
			return 0;
		packet->seq = be32(transport + 4);
		packet->ack = be32(transport + 8);
		packet->flags = transport[13];
		packet->window = be16(transport + 14);
	} else {
		// Without one all there is; what is behind it is no payload.
		__u32 length = be16(transport + 4);
		if (length != 0 && length < UDP)
			return 0;
		if (length != 0 && at + length < end)
			end = at + length;
	}
	packet->payload_at = at + header;
	if (packet->payload_at > end)
		return 0;
	packet->payload = end - packet->payload_at;
	packet->from = be16(transport);
	packet->to = be16(transport + 2);
	return 1;
}

INLINE void count(__u64 length, const struct packet *packet, struct side *side, __u32 epoch) {
	__u64 time = now();
	__u32 at = epoch & 1;
	if (side->epochs[at] != epoch) {
		side->times[at] = time;
		side->seqs[at] = packet->seq;
		side->epochs[at] = epoch;
	}
	if (packet->protocol == 6) {
		__u32 next = packet->seq + packet->payload;
		if (!(side->flags & HAS_SEQ) || (__s32)(next - side->next_seq) > 0)
			side->next_seq = next;
		if (packet->flags & ACK) {
			side->ack = packet->ack;
			side->window = packet->window;
		}
		side->flags |= packet->flags | HAS_SEQ | (packet->flags & ACK ? HAS_ACK : 0);
	}
	side->last = time;
	struct counts *counts = &side->empty;
	if (packet->payload) {
		counts = &side->data;
		__sync_fetch_and_add(&side->payload_bytes, packet->payload);
	}
	// Most frames have nothing else: additions of several processors are what counting costs.
	__u64 extra = length - ETHERNET - packet->ip_len;
	if (extra)
		__sync_fetch_and_add(&counts->extra, extra);
	__sync_fetch_and_add(&counts->ip_bytes, packet->ip_len);
	__sync_fetch_and_add(&counts->packets, 1);
}

// Something was counted in a slot.
INLINE void mark(__u32 number, int is_lazy) {
	__u32 word = number / 64 * 2 + is_lazy;
	__u64 bit = 1ULL << (number % 64), *bits = lookup(&dirty, &word);
	// Behind what was counted.
	if (bits && !(*(volatile __u64 *)bits & bit))
		__sync_fetch_and_or(bits, bit);
}

// Whether a packet is the next of its flow, and user space has processed all before that were not: of TCP as Flow::is_next of crates/flow.
INLINE int is_in_turn(const struct packet *packet, __u32 direction, __u32 number, struct slot *slot, const struct settings *settings) {
	struct turn *own = &slot->turns[direction & 1], *peer = &slot->turns[~direction & 1];
	__u32 *came = &slot->came[direction & 1], other = slot->came[~direction & 1];
	__u32 now = coarse() >> UNIT << CAME, is_known = *came & other & SEGMENT;
	int is_next = !packet->is_doubtful && (now - (*came & ~7U) < settings->silence || now - (other & ~7U) < settings->silence);
	if (packet->protocol != 6) {
		*came = now | SEGMENT;
	} else {
		__u32 kind = packet->payload ? DATA : ACKNOWLEDGEMENT, fin = packet->flags & FIN;
		__u32 end = packet->seq + packet->payload + fin;
		is_next = is_next && (packet->flags & (FIN | SYN | RST | ACK)) == ACK && packet->window && *came & kind &&
		          packet->seq == own->next && packet->ack - own->acked <= FAR && (__s32)(peer->next - packet->ack) >= 0;
		// One number before an acknowledgement may be a FIN that comes later.
		__s32 least = packet->payload | fin ? 0 : 1;
		if (!(*came & SEGMENT) || (__s32)(end - own->next) > least)
			own->next = end;
		if (packet->flags & ACK && (!(*came & SEGMENT) || (__s32)(packet->ack - own->acked) > 0))
			own->acked = packet->ack;
		*came = now | (*came & 7) | SEGMENT | (packet->flags & (FIN | RST) ? 0 : kind);
	}
	int counts = is_known && is_next && slot->breaks == slot->taken;
	if (is_known && !is_next) {
		__sync_fetch_and_add(&slot->breaks, 1);
		mark(number, 0);
	}
	return counts;
}

// Multilinear: who does not know the keys cannot choose flows of one hash.
INLINE __u64 product(const __u64 *keys, __u64 word) { return keys[0] * (__u32)word + keys[1] * (word >> 32); }

INLINE __u32 hash(const struct packet *packet, __u32 direction, const struct settings *settings) {
	const __u64 *keys = settings->keys, *source = packet->source, *destination = packet->destination;
	__u32 ports = direction ? (__u32)packet->to << 16 | packet->from : (__u32)packet->from << 16 | packet->to;
	__u64 sum = keys[8] * ports;
	sum += product(keys + 2, direction ? destination[1] : source[1]);
	sum += product(keys + 6, direction ? source[1] : destination[1]);
	// Of IPv4 the rest is zeros.
	if (packet->version == 6) {
		sum += product(keys, direction ? destination[0] : source[0]);
		sum += product(keys + 4, direction ? source[0] : destination[0]);
	}
	return sum >> 48;
}

// Whether a flow of the table may have this hash.
INLINE int is_noted(__u32 hash) {
	__u32 word = hash / 64;
	__u64 *bits = lookup(&noted, &word);
	return bits && *(volatile __u64 *)bits >> (hash % 64) & 1;
}

// The slot of the flow of a key with this hash, or NOWHERE.
INLINE __u32 find(const struct key *key, __u32 hash) {
	__u32 at = hash / LINE;
	struct line *line = lookup(&watched, &at);
	__u32 number = line ? *(volatile __u32 *)&line->of[hash % LINE] : 0;
	if (number == SOME) {
		__u32 *known = lookup(&flows, key);
		return known ? *known : NOWHERE;
	}
	// Most flows are not in the table, and most that are stand alone.
	number -= 1;
	struct slot *slot = lookup(&slots, &number);
	int is_it = slot && slot->addresses[0] == key->low[1] >> 32 && slot->addresses[1] == key->high[1] >> 32 &&
	            slot->end == ((__u64)key->kind << 32 | (__u32)key->high_port << 16 | key->low_port);
	return is_it ? number : NOWHERE;
}

// How full ring or memory are, in bytes of the ring.
INLINE __u64 pressure(const struct settings *settings) {
	__s64 filled = *(volatile __u64 *)&settings->passed - *(volatile __u64 *)&settings->drained;
	__u32 memory = *(volatile __u32 *)&settings->memory;
	return filled > (__s64)memory ? (__u64)filled : memory;
}

// Whether a packet of this priority is lost to overload.
INLINE int is_lost(const struct settings *settings, __u32 priority, int is_beyond) {
	__u64 now = pressure(settings);
	if (now <= settings->base)
		return 0;
	struct limits *of = lookup(&limits, &priority);
	return of && (now > of->all || (is_beyond && now > of->beyond));
}

// The slot in which losses of a flow are counted, or NOWHERE.
INLINE __u32 slot_of_losses(const struct key *key, struct settings *settings, __u32 end) {
	__u32 *known = lookup(&losses, key);
	if (known)
		return *known;
	if (settings->next >= end)
		return NOWHERE;
	__u32 fresh = __sync_fetch_and_add(&settings->next, 1);
	struct key *loser = fresh < end ? lookup(&losers, &fresh) : 0;
	if (!loser)
		return NOWHERE;
	*loser = *key;
	__u32 number = settings->first + fresh;
	if (!insert(&losses, key, &number, BPF_NOEXIST))
		return number;
	// Another processor was faster, or there is no memory.
	known = lookup(&losses, key);
	return known ? *known : NOWHERE;
}

// Counts a packet that is lost.
INLINE void lose(__u64 length, const struct packet *packet, const struct key *key, __u32 direction, struct settings *settings) {
	__u32 end = *(volatile __u32 *)&settings->end, number = end ? slot_of_losses(key, settings, end) : NOWHERE;
	struct slot *slot = lookup(&slots, &number);
	if (slot) {
		count(length, packet, &slot->sides[direction & 1], settings->epoch);
		mark(number, 0);
	} else {
		__sync_fetch_and_add(&settings->rest_bytes, length);
		__sync_fetch_and_add(&settings->rest_payload, packet->payload);
		__sync_fetch_and_add(&settings->rest, 1);
	}
	__sync_fetch_and_add(&settings->lost_bytes, length);
	__sync_fetch_and_add(&settings->lost, 1);
}

// Notes that so much goes into the ring: into the block that is filled if it fits and that was not handed over since.
INLINE void pass(struct settings *settings, __u64 size) {
	__u64 time = coarse(), block = settings->block;
	__u64 rest = -settings->passed & (block - 1);
	if (size > rest || time - settings->begun > settings->retire) {
		settings->begun = time;
		size += rest;
	}
	__sync_fetch_and_add(&settings->passed, size);
}

// How much of a frame is wanted: no more than `all` bytes, and if nothing can be cut off all or none. `vlan`: of the tag that was
// taken out of it, which has `tag` bytes.
INLINE __u32 judge(const void *frame, __u32 len, __u32 tag, __u32 vlan, loader load, __u32 all, int cuts, struct settings *settings) {
	struct packet packet = {.vlan = vlan};
	if (!decode(frame, len, tag != 0, load, &packet)) {
		if (!settings->unread)
			settings->unread = 1;
		return all;
	}
	__u32 is_control = packet.flags & (FIN | SYN | RST);
	// What another flow's datagrams carry can be a tunnel.
	__u32 mode = packet.protocol == 6 ? settings->others : ALL, number = NOWHERE;
	struct side *side = 0;
	struct key key = {};
	__u32 at = 0, direction = 0, priority = 0, kind = 0, told = 0, is_known = 0, run = 0;
	int is_asked = packet.flags & SYN || settings->flows;
	if (is_asked) {
		direction = direction_of(&packet) & 1;
		at = hash(&packet, direction, settings);
		is_asked = packet.flags & SYN || is_noted(at);
	}
	if (is_asked) {
		name(&packet, direction, &key);
		kind = key.kind;
		number = find(&key, at);
		if (number == NOWHERE && packet.vlan && settings->any) {
			// Flows of any VLAN are among those of none.
			key.kind &= (1 << VLAN) - 1;
			number = find(&key, at);
		}
		struct slot *slot = lookup(&slots, &number);
		told = slot ? slot->mode[direction] : 0;
		if (told >> VLAN != packet.vlan && !(told & ANY))
			slot = 0;
		is_known = slot != 0;
		if (packet.flags & SYN) {
			__u32 is_answer = packet.flags & ACK;
			__u64 *last = lookup(&syns, &at);
			if (is_answer && last && *last & 1) {
				*last -= 1;
				if (slot) {
					__sync_fetch_and_add(&slot->breaks, 1);
					mark(number, 0);
				}
			} else {
				if (last)
					*last = (now() | 1) - !!is_answer;
				if (slot) {
					slot->ended = 1;
					mark(number, 0);
				}
			}
		} else if (slot) {
			// Another connection of the same ports is as important.
			priority = slot->priority[direction];
			if (slot->ended) {
				told = 0;
			} else {
				mode = told & MODES;
				side = &slot->sides[direction];
				if (mode == OUT_OF_TURN || told & FOLLOWED) {
					run = slot->taken | RUN;
					int counts = is_in_turn(&packet, direction, number, slot, settings);
					if (mode == OUT_OF_TURN)
						mode = counts ? NONE : HEADERS;
				}
			}
		}
	}
	// Control packets always pass.
	if (is_control)
		return all;
	if (cuts && mode == HEADERS && packet.payload) {
		__sync_fetch_and_add(&settings->cut, 1);
		return packet.payload_at < all ? packet.payload_at : all;
	}
	if (mode == NONE && side) {
		count(len + tag, &packet, side, run ? run : settings->epoch);
		__sync_fetch_and_add(&settings->packets, 1);
		__sync_fetch_and_add(&settings->bytes, len + tag);
		mark(number, !!(told & LAZY));
		return 0;
	}
	// Of a flow that user space has not seen yet nobody knows how important it is.
	if (is_known && settings->room && packet.payload && is_lost(settings, priority & (PRIORITIES - 1), told & BEYOND)) {
		key.kind = kind;
		lose(len + tag, &packet, &key, direction, settings);
		return 0;
	}
	return all;
}
