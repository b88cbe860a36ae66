/* Takes as much as it gets of one thing that the kernel has, and says how much that was. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static char bytes[1 << 16];

static int made(int kind, struct sockaddr_in *at) {
    int it = socket(AF_INET, kind, 0), most = 1 << 20;
    socklen_t length = sizeof *at;
    *at = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (it < 0 || bind(it, (void *)at, length) || getsockname(it, (void *)at, &length)) return -1;
    setsockopt(it, SOL_SOCKET, SO_RCVBUF, &most, sizeof most);
    return it;
}

/* Bytes that wait in `count` sockets whose owner never reads. */
static void buffers(int kind, int count) {
    long long total = 0;
    struct sockaddr_in at;
    int listener = kind == SOCK_STREAM ? made(kind, &at) : -1;
    if (listener >= 0) listen(listener, 100);
    for (int i = 0; i < count; i++) {
        int from = socket(AF_INET, kind, 0), to = kind == SOCK_STREAM ? -1 : made(kind, &at), most = 1 << 20;
        setsockopt(from, SOL_SOCKET, SO_SNDBUF, &most, sizeof most);
        if (connect(from, (void *)&at, sizeof at)) break;
        if (kind == SOCK_STREAM) to = accept(listener, 0, 0);
        ssize_t n;
        if (kind == SOCK_STREAM) {
            while ((n = send(from, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) total += n;
        } else {
            /* What has no room is dropped, and nobody hears of it: ask how much is there by reading it without taking it out. */
            for (int k = 0; k < 64; k++) send(from, bytes, 32768, MSG_DONTWAIT);
            while ((n = recv(to, bytes, sizeof bytes, MSG_DONTWAIT)) > 0) total += n;
            for (int k = 0; k < 64; k++) send(from, bytes, 32768, MSG_DONTWAIT);
        }
    }
    printf("%lld\n", total);
}

static void terminals(void) {
    int count = 0;
    while (posix_openpt(O_RDWR | O_NOCTTY) >= 0) count++;
    printf("%d %s\n", count, strerrorname_np(errno));
}

static void instances(void) {
    int count = 0;
    while (inotify_init1(IN_CLOEXEC) >= 0) count++;
    printf("%d %s\n", count, strerrorname_np(errno));
}

/* Message queues of 80 KiB. */
static void queues(void) {
    struct mq_attr size = {.mq_maxmsg = 10, .mq_msgsize = 8192};
    char name[32];
    int count = 0;
    do snprintf(name, sizeof name, "/greedy.%d.%d", getpid(), count);
    while (mq_open(name, O_CREAT | O_RDWR, 0600, &size) >= 0 && ++count);
    int why = errno;
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof name, "/greedy.%d.%d", getpid(), i);
        mq_unlink(name);
    }
    printf("%d %s\n", count, strerrorname_np(why));
}

/* Signals that wait, since nobody takes them. */
static void signals(void) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &one, 0);
    int count = 0;
    while (!sigqueue(getpid(), SIGRTMIN, (union sigval){0})) count++;
    printf("%d %s\n", count, strerrorname_np(errno));
}

int main(int argc, char **argv) {
    struct rlimit files;
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    const char *thing = argc > 1 ? argv[1] : "";
    if (!strcmp(thing, "tcp")) buffers(SOCK_STREAM, atoi(argv[2]));
    if (!strcmp(thing, "udp")) buffers(SOCK_DGRAM, atoi(argv[2]));
    if (!strcmp(thing, "terminals")) terminals();
    if (!strcmp(thing, "instances")) instances();
    if (!strcmp(thing, "queues")) queues();
    if (!strcmp(thing, "signals")) signals();
    if (!strcmp(argv[argc - 1], "hold")) {
        fflush(stdout);
        while (getchar() != EOF) {}
    }
    return 0;
}
