// SPDX-License-Identifier: Apache-2.0 OR MIT
// Sends neighbour solicitations to the one node that they are about. `src/network/solicit.rs` loads it, and says why.

#include "packet.h"

#define SOLICITATION 135

// Ethernet addresses by IPv6 addresses.
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 1);
	__type(key, struct address);
	__type(value, __u8[6]);
} macs SEC(".maps");

struct frame {
	__u8 ethernet[ETHERNET];
	__u8 until_next_header[6];
	__u8 next_header;
	__u8 rest[IPV6_HEADER - 7];
	__u8 type;
	__u8 until_target[7];
	struct address target;
} __attribute__((packed));

// Other packets pass after a few comparisons, which read them in place. The program writes only to a solicitation, since
// the first write gives the packet memory of its own.
SEC("classifier")
int solicit(struct __sk_buff *skb)
{
	struct frame *frame = (void *)(long)skb->data;

	if (skb->protocol != bpf_htons(ETH_P_IPV6) || (void *)(frame + 1) > (void *)(long)skb->data_end)
		return TC_ACT_OK;
	if (frame->next_header != ICMPV6 || frame->type != SOLICITATION)
		return TC_ACT_OK;

	struct address target = frame->target;
	void *mac = bpf_map_lookup_elem(&macs, &target);

	if (mac)
		bpf_skb_store_bytes(skb, 0, mac, 6, 0);
	return TC_ACT_OK;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
