// SPDX-License-Identifier: Apache-2.0 OR MIT
// Counts for each thread how often a signal with a handler interrupted a call that waited for a seccomp supervisor.
// `src/bpf/interruptions.rs` loads it.

#include <linux/bpf.h>
#include <stdbool.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>

#define MOST_CALLS 32
// How such a call is interrupted: ERESTARTSYS (include/linux/errno.h).
#define INTERRUPTED -512
// The greatest value of a handler that is none: SIG_IGN.
#define NO_HANDLER 1

// The parts of kernel types that the program reads. The loader finds their places in the running kernel (CO-RE).
struct pt_regs {
	unsigned long ax;
	unsigned long orig_ax;
} __attribute__((preserve_access_index));

struct sigaction {
	void *sa_handler;
} __attribute__((preserve_access_index));

struct k_sigaction {
	struct sigaction sa;
} __attribute__((preserve_access_index));

struct task_struct;

const volatile __u32 calls[MOST_CALLS];
const volatile __u32 call_count;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline bool is_counted(unsigned long call)
{
	for (__u32 i = 0; i < MOST_CALLS && i < call_count; i++)
		if (call == calls[i])
			return true;
	return false;
}

// A thread takes a signal here (get_signal, kernel/signal.c): before the kernel repeats its interrupted call, or fails
// it with EINTR. Arguments: the signal, its siginfo, its k_sigaction.
SEC("raw_tp/signal_deliver")
int interruptions(struct bpf_raw_tracepoint_args *ctx)
{
	struct k_sigaction *action = (void *)ctx->args[2];
	unsigned long handler = 0;

	// A thread can take several signals for one interruption, but only one that has a handler.
	if (bpf_core_read(&handler, sizeof(handler), &action->sa.sa_handler) || handler <= NO_HANDLER)
		return 0;

	struct task_struct *task = bpf_get_current_task_btf();
	struct pt_regs *registers = (void *)bpf_task_pt_regs(task);

	if ((long)registers->ax != INTERRUPTED || !is_counted(registers->orig_ax))
		return 0;

	__u64 *count = bpf_task_storage_get(&counts, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (count)
		(*count)++;
	return 0;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
