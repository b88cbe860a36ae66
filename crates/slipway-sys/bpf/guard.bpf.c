// SPDX-License-Identifier: Apache-2.0 OR MIT
// Keeps the sockets of a control group from being changed by other processes. `src/bpf/guard.rs` loads it.

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>

#define MOST 64
#define MOST_FREE 16

#define AF_INET 2
#define AF_INET6 10
#define SOL_SOCKET 1
#define SO_BINDTOIFINDEX 62
#define EINVAL 22
#define NO_INTERFACE 0x7fffffff

// Results of programs at control groups.
#define PASS 1
#define REFUSE 0

// An option, a C int, that any process may set. A value outside `least` to `most` is refused. `is_switch` has 1 written
// for any value but 0.
struct free_option {
	__s32 name, at, is_switch;
	__u32 least, most;
};

const volatile __u64 group;
const volatile __s32 levels[MOST];
const volatile __s32 names[MOST];
const volatile struct free_option free_options[MOST_FREE];
const volatile __u32 level_count;
const volatile __u32 name_count;
const volatile __u32 free_count;
const volatile __s32 free_level;

// Loading puts the storage of the socket metadata here. Its values are larger than this one.
struct {
	__uint(type, BPF_MAP_TYPE_SK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} notes SEC(".maps");

static __always_inline bool is_own(void)
{
	return bpf_get_current_cgroup_id() == group;
}

#define REFUSE_OTHERS(hook)                   \
	SEC("cgroup/" #hook)                  \
	int hook(struct bpf_sock_addr *ctx)   \
	{                                     \
		return is_own() ? PASS : REFUSE; \
	}

REFUSE_OTHERS(connect4)
REFUSE_OTHERS(connect6)
REFUSE_OTHERS(bind4)
REFUSE_OTHERS(bind6)

static __always_inline int hide4(struct bpf_sock_addr *ctx)
{
	if (!is_own()) {
		ctx->user_ip4 = 0;
		ctx->user_port = 0;
	}
	return PASS;
}

static __always_inline int hide6(struct bpf_sock_addr *ctx)
{
	if (!is_own()) {
		ctx->user_ip6[0] = 0;
		ctx->user_ip6[1] = 0;
		ctx->user_ip6[2] = 0;
		ctx->user_ip6[3] = 0;
		ctx->user_port = 0;
	}
	return PASS;
}

SEC("cgroup/getsockname4")
int own_name4(struct bpf_sock_addr *ctx)
{
	return hide4(ctx);
}

SEC("cgroup/getpeername4")
int peer_name4(struct bpf_sock_addr *ctx)
{
	return hide4(ctx);
}

SEC("cgroup/getsockname6")
int own_name6(struct bpf_sock_addr *ctx)
{
	return hide6(ctx);
}

SEC("cgroup/getpeername6")
int peer_name6(struct bpf_sock_addr *ctx)
{
	return hide6(ctx);
}

// Makes listeners that were connected before deaf: bound to an interface that there cannot be.
//
// A flag marks a connection. It stays when the socket is disconnected, and accepted sockets inherit it
// (tcp_create_openreq_child). The kernel reports a listener when it listens already: what it has accepted by then shows
// the flag as it is connected, and becomes deaf too.
SEC("sockops")
int deafen(struct bpf_sock_ops *ctx)
{
	bool was_connected = ctx->bpf_sock_ops_cb_flags != 0;

	switch (ctx->op) {
	case BPF_SOCK_OPS_TCP_LISTEN_CB:
		if (!was_connected)
			return PASS;
		break;
	case BPF_SOCK_OPS_PASSIVE_ESTABLISHED_CB:
		if (was_connected)
			break;
		// fall through
	case BPF_SOCK_OPS_ACTIVE_ESTABLISHED_CB:
		// Time-outs are rare, so that this flag costs nothing.
		bpf_sock_ops_cb_flags_set(ctx, BPF_SOCK_OPS_RTO_CB_FLAG);
		return PASS;
	default:
		return PASS;
	}

	int none = NO_INTERFACE;

	bpf_setsockopt(ctx, SOL_SOCKET, SO_BINDTOIFINDEX, &none, sizeof(none));
	return PASS;
}

static __always_inline int refuse_guarded(struct bpf_sockopt *ctx)
{
	__s32 level = ctx->level, name = ctx->optname;

	for (__u32 i = 0; i < MOST && i < level_count; i++)
		if (level == levels[i])
			return REFUSE;
	if (level != SOL_SOCKET)
		return PASS;
	for (__u32 i = 0; i < MOST && i < name_count; i++)
		if (name == names[i])
			return REFUSE;
	return PASS;
}

SEC("cgroup/setsockopt")
int set_option(struct bpf_sockopt *ctx)
{
	return is_own() ? PASS : refuse_guarded(ctx);
}

// Writes a free option into the socket metadata. A socket without metadata is refused.
static __always_inline int write_down(struct bpf_sockopt *ctx, const volatile struct free_option *option)
{
	__u32 *value = ctx->optval;
	__u32 number;

	// The kernel has room for 16 bytes, however few there are (sockopt_alloc_buf, kernel/bpf/cgroup.c).
	if (ctx->optlen < (__s32)sizeof(*value) || (void *)(value + 1) > ctx->optval_end)
		goto invalid;
	number = *value;
	if (number < option->least || number > option->most)
		goto invalid;
	if (option->is_switch && number)
		number = 1;

	char *metadata = bpf_sk_storage_get(&notes, ctx->sk, 0, 0);

	if (!metadata)
		return REFUSE;
	*(__u32 *)(metadata + option->at) = number;
	// The kernel has nothing more to do.
	ctx->optlen = -1;
	return PASS;
invalid:
	bpf_set_retval(-EINVAL);
	return REFUSE;
}

// The same where some options are free: the kernel gets those of an IP socket. Linux 5.18.
SEC("cgroup/setsockopt")
int set_option_or_note(struct bpf_sockopt *ctx)
{
	if (is_own())
		return PASS;
	if (ctx->level == free_level) {
		for (__u32 i = 0; i < MOST_FREE && i < free_count; i++) {
			if (ctx->optname != free_options[i].name)
				continue;
			if (ctx->sk->family == AF_INET || ctx->sk->family == AF_INET6)
				return PASS;
			return write_down(ctx, &free_options[i]);
		}
	}
	return refuse_guarded(ctx);
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
