// SPDX-License-Identifier: Apache-2.0 OR MIT
// Programs of this crate's tests.

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

// Tells a packet that comes back from one that comes for the first time.
#define BACK 0x511b

const volatile int result = TC_ACT_OK;
const volatile __u32 device;
const volatile bool receives;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 2);
	__type(key, __u8);
	__type(value, __u64);
} denied SEC(".maps");

// Drops packets whose first byte is a key of the map, marks the others with 9.
SEC("classifier")
int mark_unless_denied(struct __sk_buff *skb)
{
	__u8 first;

	if (bpf_skb_load_bytes(skb, 0, &first, 1) || bpf_map_lookup_elem(&denied, &first))
		return TC_ACT_SHOT;
	skb->mark = 9;
	return TC_ACT_OK;
}

SEC("classifier")
int constant(struct __sk_buff *skb)
{
	return result;
}

// Lets packets with the mark pass, and takes the mark from them; sends the others to the device.
SEC("classifier")
int gate(struct __sk_buff *skb)
{
	if (skb->mark != BACK)
		return bpf_redirect(device, 0);
	skb->mark = 0;
	return TC_ACT_OK;
}

// Marks packets, and gives them to the device as sent or as received by it.
SEC("classifier")
int back(struct __sk_buff *skb)
{
	skb->mark = BACK;
	return bpf_redirect(device, receives ? BPF_F_INGRESS : 0);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
