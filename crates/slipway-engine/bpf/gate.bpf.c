// SPDX-License-Identifier: Apache-2.0 OR MIT
// The tc-BPF filter of a link: drops a packet, sends it to the user-space netem, or lets it pass.
// `src/condition/gate.rs` loads it.

#include "packet.h"

// Bits of an entry's verdict.
#define CUT 1
#define PARTED 2
#define LAST 4

// The mark of packets that come back from the user-space netem, or from a detour, on their way in. No other packet has it
// there: a mark is gone when a packet enters another namespace (skb_scrub_packet, net/core/skbuff.c).
#define MARK 0x511b

#define LANES 32
// In each of four lanes of a word: the greatest group, and the bit above it.
#define GROUPS 0x7fff7fff7fff7fffULL
#define ABOVE 0x8000800080008000ULL

// A node's group in each partition, four lanes in a word.
struct side {
	__u64 groups[LANES / 4];
};

struct entry {
	__u32 verdict;
	// The interface by which packets go to the user-space netem; 0 for none.
	__u32 by;
	struct side side;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct entry);
} entries SEC(".maps");

// By the other end's address; by an Ethernet address where the first two bytes are 0xff.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, struct side);
} sides SEC(".maps");

// The filter's own entry.
const volatile __u32 number;
// Whether its packets are those that the node sends.
const volatile bool sends;
// Whether its packets leave the interface that it is at. At the host's end of a link, these are those that a node receives.
const volatile bool leaves;
// For `give_back`: the interface that packets go to, and whether it receives them.
const volatile __u32 interface;
const volatile bool receives;

// Whether the two are in different groups of some partition. Adding GROUPS to a lane sets its highest bit unless it is 0.
static __always_inline bool are_parted(const struct side *ours, const struct side *theirs)
{
	__u64 differ = 0;

#pragma unroll
	for (int i = 0; i < LANES / 4; i++) {
		__u64 one = ours->groups[i], other = theirs->groups[i];

		differ |= ((one ^ other) + GROUPS) & (one + GROUPS) & (other + GROUPS);
	}
	return differ & ABOVE;
}

static __always_inline bool is_parted_from(const struct entry *entry, const void *key)
{
	struct side *theirs = bpf_map_lookup_elem(&sides, key);

	return theirs && are_parted(&entry->side, theirs);
}

// Whether the packet goes to, or comes from, another group. Packets without an address are judged by nothing more.
static __always_inline bool is_parted(struct __sk_buff *skb, const struct entry *entry)
{
	// First by the other end's Ethernet address, where the lab knows it.
	__u8 mac[16] = {0xff, 0xff};
	struct address address;
	bool is_read;

	if (!read(skb, sends ? 0 : MAC_SOURCE, mac + 2, 6) || is_parted_from(entry, mac))
		return true;
	switch (skb->protocol) {
	case bpf_htons(ETH_P_IP):
		is_read = read_ipv4(skb, ETHERNET + (sends ? IPV4_DESTINATION : IPV4_SOURCE), &address);
		break;
	case bpf_htons(ETH_P_ARP):
		// The address that is asked for, or that asks.
		is_read = read_ipv4(skb, ETHERNET + (sends ? 24 : 14), &address);
		break;
	case bpf_htons(ETH_P_IPV6):
		is_read = read_ipv6(skb, ETHERNET + (sends ? IPV6_DESTINATION : IPV6_SOURCE), &address);
		break;
	default:
		return false;
	}
	return !is_read || is_parted_from(entry, &address);
}

// A dropped packet counts as sent. Otherwise (TC_ACT_SHOT) the kernel tells programs (ENOBUFS), and TCP tries again every
// half second without end (tcp_retransmit_timer).
SEC("classifier")
int gate(struct __sk_buff *skb)
{
	__u32 key = number;
	struct entry *entry = bpf_map_lookup_elem(&entries, &key);

	if (!entry)
		return TC_ACT_STOLEN;

	__u32 verdict = entry->verdict, by = entry->by;

	if (verdict & CUT || (verdict & PARTED && is_parted(skb, entry)))
		return TC_ACT_STOLEN;
	if (leaves) {
		// A program in a node may set any mark, so the device that the packet came in by tells.
		if (by && skb->ingress_ifindex == by)
			return TC_ACT_UNSPEC;
	} else if (skb->mark == MARK) {
		skb->mark = 0;
		return TC_ACT_UNSPEC;
	}
	if (verdict & LAST)
		return TC_ACT_STOLEN;
	return by ? bpf_redirect(by, 0) : TC_ACT_UNSPEC;
}

// At a tap, or at a detour's end: the packet goes on to the interface, as sent or as received by it.
SEC("classifier")
int give_back(struct __sk_buff *skb)
{
	if (receives)
		skb->mark = MARK;
	return bpf_redirect(interface, receives ? BPF_F_INGRESS : 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
