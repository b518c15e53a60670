// SPDX-License-Identifier: MIT OR Apache-2.0
//
// What of a packet is copied into a capture's ring, by the verdict on its flow. Attached to packet sockets behind a program
// that filters and puts the snap length into cb[0].
//
// User space writes verdicts into `slots`, and reads there what was kept away. Only it writes `flows`.

#include <linux/bpf.h>

#define SEC(name) __attribute__((section(name), used))
#define INLINE static __attribute__((always_inline)) inline
#define UINT(name, value) int (*name)[value]
#define TYPE(name, value) value *name

static long (*const load_bytes)(const void *skb, __u32 from, void *to, __u32 len) = (void *)BPF_FUNC_skb_load_bytes;
static void *(*const lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*const now)(void) = (void *)BPF_FUNC_ktime_get_ns;

// As FlowKey of crates/wire, without its context.
struct key {
	__u64 low[2];
	__u64 high[2];
	__u16 low_port;
	__u16 high_port;
	__u8 protocol;
	__u8 version;
	__u16 reserved;
};

// The first packet that was kept away after user space had looked.
struct first {
	__u64 time;
	__u32 seq;
	__u32 epoch;
};

struct side {
	__u64 packets;
	__u64 bytes;
	__u64 data_packets;
	__u64 data_bytes;
	__u64 ip_bytes;
	__u64 payload_bytes;
	__u64 last;
	struct first first[2];
	__u32 next_seq;
	__u32 ack;
	__u32 window;
	// TCP flags seen, and above them whether next_seq and ack are of a packet.
	__u32 flags;
};

struct slot {
	// By direction.
	__u32 mode[2];
	// A SYN came: another connection.
	__u32 ended;
	__u32 reserved;
	struct side sides[2];
};

struct settings {
	__u32 epoch;
	// Of flows that are not in the table.
	__u32 others;
	// Whether packets with VLAN tags are of the same flows as those without.
	__u32 vlans;
	__u32 reserved;
	// Packets of which only headers were copied.
	__u64 cut;
};

enum { ALL, HEADERS, NONE };
enum { SYNS = 1 << 16 };
enum { HAS_SEQ = 1 << 16, HAS_ACK = 1 << 17 };
enum { FIN = 1, SYN = 2, RST = 4, ACK = 16 };

struct {
	UINT(type, BPF_MAP_TYPE_HASH);
	TYPE(key, struct key);
	TYPE(value, __u32);
	UINT(max_entries, 1);
} flows SEC(".maps");

struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, struct slot);
	UINT(max_entries, 1);
	UINT(map_flags, BPF_F_MMAPABLE);
} slots SEC(".maps");

// A bit for each slot in which something was counted.
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

// When a SYN came last for flows of a hash: user space has a verdict wait until it has seen that one.
struct {
	UINT(type, BPF_MAP_TYPE_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u64);
	UINT(max_entries, SYNS);
	UINT(map_flags, BPF_F_MMAPABLE);
} syns SEC(".maps");

// What the filter before it goes on with: `verdict`.
struct {
	UINT(type, BPF_MAP_TYPE_PROG_ARRAY);
	TYPE(key, __u32);
	TYPE(value, __u32);
	UINT(max_entries, 1);
} next SEC(".maps");

struct packet {
	struct key key;
	__u32 direction;
	__u32 ip_len;
	__u32 payload;
	// Where the payload begins in the frame.
	__u32 payload_at;
	__u32 flags;
	__u32 seq;
	__u32 ack;
	__u32 window;
};

INLINE __u16 be16(const __u8 *at) { return (__u16)at[0] << 8 | at[1]; }
INLINE __u32 be32(const __u8 *at) { return (__u32)be16(at) << 16 | be16(at + 2); }

// The smaller end first, by address and port.
INLINE void order(struct packet *packet, const __u64 *source, const __u64 *destination, __u16 from, __u16 to) {
	__u64 a = __builtin_bswap64(source[0]), b = __builtin_bswap64(destination[0]);
	if (a == b) {
		a = __builtin_bswap64(source[1]);
		b = __builtin_bswap64(destination[1]);
	}
	int swaps = a == b ? from > to : a > b;
	struct key *key = &packet->key;
	key->low[0] = swaps ? destination[0] : source[0];
	key->low[1] = swaps ? destination[1] : source[1];
	key->high[0] = swaps ? source[0] : destination[0];
	key->high[1] = swaps ? source[1] : destination[1];
	key->low_port = swaps ? to : from;
	key->high_port = swaps ? from : to;
	packet->direction = swaps;
}

// Whether a packet is one of TCP or UDP, not fragmented, whose headers are whole.
INLINE int decode(struct __sk_buff *skb, struct packet *packet, int vlans) {
	__u8 bytes[40];
	__u64 source[2], destination[2];
	__u32 at = 14;
	if (skb->vlan_present && !vlans)
		return 0;
	if (load_bytes(skb, 12, bytes, 2))
		return 0;
	__u16 protocol = be16(bytes);
	for (int tags = 0; tags < 2; tags++) {
		if (protocol != 0x8100 && protocol != 0x88a8)
			break;
		if (!vlans || load_bytes(skb, at, bytes, 4))
			return 0;
		protocol = be16(bytes + 2);
		at += 4;
	}
	__u32 end;
	struct key *key = &packet->key;
	if (protocol == 0x0800) {
		if (load_bytes(skb, at, bytes, 20) || bytes[0] >> 4 != 4 || (bytes[0] & 15) < 5)
			return 0;
		// More fragments, or not the first.
		if (be16(bytes + 6) & 0x3fff)
			return 0;
		packet->ip_len = be16(bytes + 2);
		end = at + packet->ip_len;
		at += (bytes[0] & 15) * 4;
		key->version = 4;
		key->protocol = bytes[9];
		source[0] = destination[0] = 0;
		source[1] = __builtin_bswap64(0xffff00000000ULL | be32(bytes + 12));
		destination[1] = __builtin_bswap64(0xffff00000000ULL | be32(bytes + 16));
	} else if (protocol == 0x86dd) {
		if (load_bytes(skb, at, bytes, 40) || bytes[0] >> 4 != 6)
			return 0;
		__u16 length = be16(bytes + 4);
		packet->ip_len = 40 + length;
		end = at + packet->ip_len;
		__u8 next = bytes[6];
		__builtin_memcpy(source, bytes + 8, 16);
		__builtin_memcpy(destination, bytes + 24, 16);
		at += 40;
		for (int headers = 0; headers < 4; headers++) {
			// Hop-by-hop options, routing, destination options.
			if (next != 0 && next != 43 && next != 60)
				break;
			if (load_bytes(skb, at, bytes, 2))
				return 0;
			next = bytes[0];
			at += (bytes[1] + 1) * 8;
		}
		// A jumbogram has its length elsewhere.
		if (length == 0)
			return 0;
		key->version = 6;
		key->protocol = next;
	} else {
		return 0;
	}
	// Of a frame that is not whole user space says what that means.
	if (end > skb->len)
		return 0;
	__u32 header = 8;
	if (key->protocol == 6) {
		if (load_bytes(skb, at, bytes, 20) || bytes[12] >> 4 < 5)
			return 0;
		header = (bytes[12] >> 4) * 4;
		packet->seq = be32(bytes + 4);
		packet->ack = be32(bytes + 8);
		packet->flags = bytes[13];
		packet->window = be16(bytes + 14);
	} else if (key->protocol == 17) {
		if (load_bytes(skb, at, bytes, 8))
			return 0;
		// Without one all there is; what is behind it is no payload.
		__u32 length = be16(bytes + 4);
		if (length != 0 && length < 8)
			return 0;
		if (length != 0 && at + length < end)
			end = at + length;
	} else {
		return 0;
	}
	packet->payload_at = at + header;
	if (packet->payload_at > end)
		return 0;
	packet->payload = end - packet->payload_at;
	order(packet, source, destination, be16(bytes), be16(bytes + 2));
	return 1;
}

INLINE void count(struct __sk_buff *skb, const struct packet *packet, struct side *side, __u32 epoch) {
	__u64 length = skb->len + (skb->vlan_present ? 4 : 0), time = now();
	struct first *first = &side->first[epoch & 1];
	if (first->epoch != epoch) {
		first->time = time;
		first->seq = packet->seq;
		first->epoch = epoch;
	}
	if (packet->key.protocol == 6) {
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
	if (packet->payload) {
		__sync_fetch_and_add(&side->data_packets, 1);
		__sync_fetch_and_add(&side->data_bytes, length);
		__sync_fetch_and_add(&side->payload_bytes, packet->payload);
	}
	__sync_fetch_and_add(&side->bytes, length);
	__sync_fetch_and_add(&side->ip_bytes, packet->ip_len);
	__sync_fetch_and_add(&side->packets, 1);
}

INLINE __u32 hash(const struct key *key) {
	__u64 ports = (__u64)key->low_port << 32 | key->high_port;
	__u64 sum = key->low[0] + 3 * key->low[1] + 5 * key->high[0] + 7 * key->high[1] + ports;
	return sum * 0x9e3779b97f4a7c15ULL >> 48;
}

SEC("socket")
int verdict(struct __sk_buff *skb) {
	__u32 snap = skb->cb[0], zero = 0;
	struct packet packet = {};
	struct settings *settings = lookup(&setting, &zero);
	if (!settings || !decode(skb, &packet, settings->vlans))
		return snap;
	__u32 *number = lookup(&flows, &packet.key);
	struct slot *slot = number ? lookup(&slots, number) : 0;
	if (slot && slot->ended)
		slot = 0;
	// Control packets always pass.
	if (packet.flags & (FIN | SYN | RST)) {
		if ((packet.flags & (SYN | ACK)) == SYN) {
			__u32 at = hash(&packet.key);
			__u64 *last = lookup(&syns, &at);
			if (last)
				*last = now();
			if (slot)
				slot->ended = 1;
		}
		return snap;
	}
	__u32 direction = packet.direction & 1;
	// What another flow's datagrams carry can be a tunnel.
	__u32 mode = slot ? slot->mode[direction] : packet.key.protocol == 6 ? settings->others : ALL;
	if (mode == HEADERS && packet.payload) {
		__sync_fetch_and_add(&settings->cut, 1);
		return packet.payload_at < snap ? packet.payload_at : snap;
	}
	if (mode != NONE || !slot)
		return snap;
	count(skb, &packet, &slot->sides[direction], settings->epoch);
	__u32 word = *number / 64;
	__u64 bit = 1ULL << (*number % 64), *bits = lookup(&dirty, &word);
	// Behind what was counted.
	if (bits && !(*(volatile __u64 *)bits & bit))
		__sync_fetch_and_or(bits, bit);
	return 0;
}

char _license[] SEC("license") = "Dual MIT/GPL";
