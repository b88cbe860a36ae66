// SPDX-License-Identifier: Apache-2.0 OR MIT
// What the programs on packets share: numbers of protocols, and reads.

#pragma once

#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <stdbool.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ETH_P_IP 0x0800
#define ETH_P_ARP 0x0806
#define ETH_P_8021Q 0x8100
#define ETH_P_8021AD 0x88a8
#define ETH_P_IPV6 0x86dd

#define ICMP 1
#define TCP 6
#define UDP 17
#define ICMPV6 58

// Bytes of headers, and where the packet has addresses.
#define ETHERNET 14
#define IPV6_HEADER 40
#define MAC_DESTINATION 0
#define MAC_SOURCE 6
#define IPV4_SOURCE 12
#define IPV4_DESTINATION 16
#define IPV6_SOURCE 8
#define IPV6_DESTINATION 24

// An IPv6 address, or an IPv4 address within one (RFC 4291, 2.5.5.2).
struct address {
	__be32 word[4];
};

// An Ethernet address, padded to a map's key.
union mac {
	__u8 byte[8];
	__u64 key;
};

// False where the packet is shorter.
static __always_inline bool read(struct __sk_buff *skb, __u32 at, void *to, __u32 bytes)
{
	return bpf_skb_load_bytes(skb, at, to, bytes) == 0;
}

static __always_inline bool read_ipv4(struct __sk_buff *skb, __u32 at, struct address *to)
{
	to->word[0] = to->word[1] = 0;
	to->word[2] = bpf_htonl(0xffff);
	return read(skb, at, &to->word[3], sizeof(to->word[3]));
}

static __always_inline bool read_ipv6(struct __sk_buff *skb, __u32 at, struct address *to)
{
	return read(skb, at, to, sizeof(*to));
}

static __always_inline bool read_mac(struct __sk_buff *skb, __u32 at, union mac *to)
{
	to->key = 0;
	return read(skb, at, to->byte, 6);
}
