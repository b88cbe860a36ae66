// SPDX-License-Identifier: Apache-2.0 OR MIT
// Gives the sockets of a control group a source address towards some subnets, and a mark.
// `src/bpf/source.rs` loads it.

#include <linux/bpf.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define MOST 8
#define AF_INET 2
#define AF_INET6 10

// Words of addresses are in network byte order, as the contexts have them.
struct own4 {
	__u32 mask, subnet, address;
};

struct own6 {
	__u32 mask[4], subnet[4], address[4];
};

const volatile struct own4 ipv4[MOST];
const volatile struct own6 ipv6[MOST];
const volatile __u32 ipv4_count;
const volatile __u32 ipv6_count;
const volatile __u32 mark;

SEC("cgroup/connect4")
int connect4(struct bpf_sock_addr *ctx)
{
	for (__u32 i = 0; i < MOST && i < ipv4_count; i++) {
		if ((ctx->user_ip4 & ipv4[i].mask) != ipv4[i].subnet)
			continue;
		if (ctx->sk && !ctx->sk->src_ip4) {
			struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = ipv4[i].address};

			// A socket that the kernel refuses to bind stays as it was.
			bpf_bind(ctx, (struct sockaddr *)&own, sizeof(own));
		}
		break;
	}
	return 1;
}

static __always_inline bool is_in6(struct bpf_sock_addr *ctx, __u32 i)
{
	return (ctx->user_ip6[0] & ipv6[i].mask[0]) == ipv6[i].subnet[0] &&
	       (ctx->user_ip6[1] & ipv6[i].mask[1]) == ipv6[i].subnet[1] &&
	       (ctx->user_ip6[2] & ipv6[i].mask[2]) == ipv6[i].subnet[2] &&
	       (ctx->user_ip6[3] & ipv6[i].mask[3]) == ipv6[i].subnet[3];
}

SEC("cgroup/connect6")
int connect6(struct bpf_sock_addr *ctx)
{
	for (__u32 i = 0; i < MOST && i < ipv6_count; i++) {
		if (!is_in6(ctx, i))
			continue;

		struct bpf_sock *socket = ctx->sk;

		if (socket && !socket->src_ip6[0] && !socket->src_ip6[1] && !socket->src_ip6[2] && !socket->src_ip6[3]) {
			struct sockaddr_in6 own = {.sin6_family = AF_INET6};

			for (int word = 0; word < 4; word++)
				own.sin6_addr.in6_u.u6_addr32[word] = ipv6[i].address[word];
			bpf_bind(ctx, (struct sockaddr *)&own, sizeof(own));
		}
		break;
	}
	return 1;
}

SEC("cgroup/sendmsg4")
int send4(struct bpf_sock_addr *ctx)
{
	for (__u32 i = 0; i < MOST && i < ipv4_count; i++) {
		if ((ctx->user_ip4 & ipv4[i].mask) != ipv4[i].subnet)
			continue;
		if (!ctx->msg_src_ip4)
			ctx->msg_src_ip4 = ipv4[i].address;
		break;
	}
	return 1;
}

SEC("cgroup/sendmsg6")
int send6(struct bpf_sock_addr *ctx)
{
	for (__u32 i = 0; i < MOST && i < ipv6_count; i++) {
		if (!is_in6(ctx, i))
			continue;
		if (!ctx->msg_src_ip6[0] && !ctx->msg_src_ip6[1] && !ctx->msg_src_ip6[2] && !ctx->msg_src_ip6[3]) {
			ctx->msg_src_ip6[0] = ipv6[i].address[0];
			ctx->msg_src_ip6[1] = ipv6[i].address[1];
			ctx->msg_src_ip6[2] = ipv6[i].address[2];
			ctx->msg_src_ip6[3] = ipv6[i].address[3];
		}
		break;
	}
	return 1;
}

SEC("cgroup/sock_create")
int set_mark(struct bpf_sock *ctx)
{
	ctx->mark = mark;
	return 1;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
