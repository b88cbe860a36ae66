/*
 * fails CALL ERRNO ARGUMENT VALUE FILE PROGRAM [WORD]...
 *
 * Executes PROGRAM, for which, and for all that it starts, the system call with the number CALL fails with ERRNO. With
 * ARGUMENT 0 to 5 only calls fail whose argument's lower 32 bits are VALUE; -1 stands for all calls. With FILE ("" for
 * none) calls fail while that file exists; then a process stands by that answers each of them until the last caller ends.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static void need(int held, const char *what)
{
	if (!held) {
		perror(what);
		exit(125);
	}
}

static void answer(int listener, int error, const char *file)
{
	struct seccomp_notif ask;
	struct seccomp_notif_resp reply;

	for (;;) {
		struct pollfd asks = { listener, POLLIN, 0 };
		if (poll(&asks, 1, -1) < 0 && errno == EINTR)
			continue;
		/* Nobody is left who could make the call. */
		if (asks.revents & POLLHUP)
			return;
		memset(&ask, 0, sizeof ask);
		if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &ask) != 0) {
			if (errno == EINTR || errno == ENOENT)
				continue;
			return;
		}
		memset(&reply, 0, sizeof reply);
		reply.id = ask.id;
		if (access(file, F_OK) == 0)
			reply.error = -error;
		else
			reply.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
		ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &reply);
	}
}

int main(int argc, char **argv)
{
	if (argc < 7)
		return 125;
	unsigned call = strtoul(argv[1], NULL, 10), error = strtoul(argv[2], NULL, 10);
	int argument = atoi(argv[3]);
	unsigned value = strtoul(argv[4], NULL, 10);
	const char *file = argv[5];
	unsigned then = *file ? SECCOMP_RET_USER_NOTIF : SECCOMP_RET_ERRNO | error;
	unsigned at = offsetof(struct seccomp_data, args) + (argument < 0 ? 0 : argument) * 8;
	struct sock_filter all[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, then),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_filter some[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, then),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = { argument < 0 ? 4 : 6, argument < 0 ? all : some };
	/* Where the listener is: told by memory, as any call that would tell it may be the one that fails. */
	volatile int *told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	need(told != MAP_FAILED, "mmap");
	*told = -1;
	if (*file) {
		pid_t caller = getpid(), first = fork();
		need(first >= 0, "fork");
		if (first == 0) {
			/* Its parent leaves at once: the program is to have no child that it does not know. */
			if (fork() != 0)
				_exit(0);
			while (*told < 0)
				if (kill(caller, 0) != 0)
					_exit(125);
			int caller_fd = syscall(SYS_pidfd_open, caller, 0);
			int listener = syscall(SYS_pidfd_getfd, caller_fd, *told, 0);
			need(listener >= 0, "take the listener");
			*told = -2;
			setsid();
			close(0);
			close(1);
			close(2);
			answer(listener, error, file);
			_exit(0);
		}
		need(waitpid(first, NULL, 0) == first, "wait");
	}
	/* Not PR_SET_NO_NEW_PRIVS: tests are root, and programs are to find what they would find otherwise. */
	unsigned flags = *file ? SECCOMP_FILTER_FLAG_NEW_LISTENER : 0;
	int listener = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &program);
	need(listener >= 0, "seccomp");
	if (*file) {
		*told = listener;
		while (*told != -2)
			;
		close(listener);
	}
	execv(argv[6], argv + 6);
	perror(argv[6]);
	return 127;
}
