// Flags of descriptors, and descriptors that go from one process to another.
#include "observer.h"

static void show_flags(const char *what, int fd) {
    say("%s: O_NONBLOCK %d, FD_CLOEXEC %d, access mode %d", what, (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0,
        fcntl(fd, F_GETFD), fcntl(fd, F_GETFL) & O_ACCMODE);
}
static void kept(void) {
    if (serving) return serve(4);
    meet();
    for (int i = 0; i < 4; i++) {
        int kind = (i & 1 ? SOCK_NONBLOCK : 0) | (i & 2 ? SOCK_CLOEXEC : 0);
        int fd = socket(AF_INET, SOCK_STREAM | kind, 0);
        show_flags("before", fd);
        outcome("connect", connected(fd, "server", 0));
        show_flags("after", fd);
        ready(fd, POLLOUT, -1);
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) ^ O_NONBLOCK);
        fcntl(fd, F_SETFD, fcntl(fd, F_GETFD) ^ FD_CLOEXEC);
        show_flags("turned round", fd);
        close(fd);
    }
}

static void same_number(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server"), next = dup(fd);
    struct stat before, after;
    close(next);
    fstat(fd, &before);
    outcome("connect", connected(fd, "server", 0));
    fstat(fd, &after);
    say("a socket before %d, after %d, with permissions %o", S_ISSOCK(before.st_mode), S_ISSOCK(after.st_mode),
        after.st_mode & 07777);
    int probe = dup(fd);
    say("the next free number is the same: %s", probe == next ? "yes" : "no");
    char path[64], link[64] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (readlink(path, link, sizeof link - 1) < 0) die("read the link");
    say("it is a %.8s", link);
    outcome("lseek", lseek(fd, 0, SEEK_CUR));
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    opened("open the link", open(path, O_RDWR));
}

// Who is told of data by a signal, said before connect.
static volatile sig_atomic_t signals;
static void count(int signal) { (void)signal, signals++; }
static void asynchronous(void) {
    if (serving) {
        int fd = paired("server");
        meet();
        send_byte("send", fd, 'a');
        meet();
        return;
    }
    struct sigaction action = {.sa_handler = count, .sa_flags = SA_RESTART};
    sigaction(SIGUSR2, &action, NULL);
    int fd = stream("server");
    outcome("F_SETOWN", fcntl(fd, F_SETOWN, getpid()));
    outcome("F_SETSIG", fcntl(fd, F_SETSIG, SIGUSR2));
    outcome("O_ASYNC", fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC));
    meet();
    outcome("connect", connected(fd, "server", 0));
    say("the owner is kept: %s", fcntl(fd, F_GETOWN) == getpid() ? "yes" : "no");
    say("the signal is kept: %s", fcntl(fd, F_GETSIG) == SIGUSR2 ? "yes" : "no");
    say("O_ASYNC is kept: %s", fcntl(fd, F_GETFL) & O_ASYNC ? "yes" : "no");
    signals = 0;
    meet();
    while (!signals) usleep(1000);
    say("a signal came with the data");
    meet();
}

static void from_child(int fd) { send_byte("the child", fd, 'c'); }
static void over_fork(void) {
    if (serving) return serve(1);
    meet();
    int fd = dial("server", 0);
    reap("the child", child(from_child, fd));
    send_byte("the parent", fd, 'p');
    pid_t pid = child(from_child, fd);
    close(fd);
    reap("the child", pid);
}

static void execute(int fd) {
    char number[16];
    snprintf(number, sizeof number, "%d", fd);
    execl(self(), self(), "--use", number, NULL);
    die("execute");
}
static void over_exec(void) {
    if (serving) return serve(2);
    meet();
    int fd = dial("server", 0);
    reap("executed", child(execute, fd));
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    reap("executed, close-on-exec", child(execute, fd));
    close(fd);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    outcome("connect", connected(fd, "server", 0));
    reap("executed, close-on-exec before connect", child(execute, fd));
}

static void over_dup2(void) {
    if (serving) return serve(1);
    meet();
    int fd = dial("server", 0), other = open("/dev/null", O_RDONLY);
    say("dup2 gives the number: %s", dup2(fd, other) == other ? "yes" : "no");
    int third = dup3(fd, other + 1, O_CLOEXEC), fourth = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    close(fd);
    show_names("dup2", other);
    show_flags("dup2", other);
    show_flags("dup3", third);
    show_flags("F_DUPFD_CLOEXEC", fourth);
    send_byte("dup2", other, '2');
    send_byte("dup3", third, '3');
    send_byte("fcntl", fourth, '4');
}

static int pass(int through, int fd) {
    char byte = 'x', room[CMSG_SPACE(sizeof fd)] __attribute__((aligned(8))) = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    struct cmsghdr *head = CMSG_FIRSTHDR(&message);
    *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd)};
    memcpy(CMSG_DATA(head), &fd, sizeof fd);
    return sendmsg(through, &message, 0);
}
static int passed(int through) {
    char byte = 0, room[CMSG_SPACE(sizeof(int))] __attribute__((aligned(8))) = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    outcome("recvmsg", recvmsg(through, &message, MSG_CMSG_CLOEXEC));
    say("the byte is %c, control data %zu bytes, flags %#x", byte ? byte : '-', (size_t)message.msg_controllen,
        message.msg_flags & ~MSG_CMSG_CLOEXEC);
    struct cmsghdr *head = message.msg_controllen ? CMSG_FIRSTHDR(&message) : NULL;
    int fd = -1;
    if (head && head->cmsg_type == SCM_RIGHTS) memcpy(&fd, CMSG_DATA(head), sizeof fd);
    return fd;
}

static void use_passed(int through) {
    int fd = passed(through);
    show_names("passed", fd);
    show_flags("passed", fd);
    send_byte("the one who got it", fd, 'g');
}
static void within_the_node(void) {
    if (serving) return serve(1);
    meet();
    int fd = dial("server", 0), pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t pid = child(use_passed, pair[1]);
    int sent = pass(pair[0], fd);
    reap("the child", pid);
    outcome("sendmsg with a descriptor", sent);
    send_byte("the one who gave it", fd, 'h');
}

static void connect_passed(int through) {
    int fd = passed(through);
    outcome("connect what was passed", connected(fd, "server", 0));
    send_byte("the one who got it", fd, 'g');
}
static void before_connect(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server"), pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t pid = child(connect_passed, pair[1]);
    int sent = pass(pair[0], fd);
    reap("the child", pid);
    outcome("sendmsg with a descriptor", sent);
    show_names("the giver's", fd);
    send_byte("the one who gave it", fd, 'h');
}

static void accept_passed(int through) {
    int listener = passed(through), fd = taken(listener);
    send_byte("the one who got it", fd, 'l');
}
static void listener_passed(void) {
    if (!serving) return be_told();
    int listener = listening("server", 0), pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    pid_t pid = child(accept_passed, pair[1]);
    int sent = pass(pair[0], listener);
    close(listener);
    meet();
    reap("the child", pid);
    outcome("sendmsg with a descriptor", sent);
}

// TCP carries bytes, and nothing else.
static void over_the_connection(void) {
    int fd = paired("server");
    if (serving) {
        int got = passed(fd);
        say("a descriptor came: %s", got < 0 ? "no" : "yes");
    } else {
        int secret = open("/dev/null", O_RDONLY);
        if (outcome("sendmsg with a descriptor", pass(fd, secret)) < 0) die("send");
    }
    meet();
}

static void credentials(void) {
    int fd = paired("server");
    char byte = 'x', room[CMSG_SPACE(sizeof(struct ucred))] __attribute__((aligned(8))) = {0};
    struct iovec one = {&byte, 1};
    struct msghdr message = {.msg_iov = &one, .msg_iovlen = 1, .msg_control = room, .msg_controllen = sizeof room};
    if (serving) {
        outcome("recvmsg", recvmsg(fd, &message, 0));
        say("control data: %zu bytes", (size_t)message.msg_controllen);
    } else {
        struct ucred own = {getpid(), getuid(), getgid()};
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        *head = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(sizeof own)};
        memcpy(CMSG_DATA(head), &own, sizeof own);
        outcome("sendmsg with credentials", sendmsg(fd, &message, 0));
        head->cmsg_type = 99;
        outcome("sendmsg with something unknown", sendmsg(fd, &message, 0));
    }
    meet();
}

const struct scenario flags[] = {
    {"kept", kept},
    {"same-number", same_number},
    {"asynchronous", asynchronous},
    {"over-fork", over_fork},
    {"over-exec", over_exec},
    {"over-dup2", over_dup2},
    {"within-the-node", within_the_node},
    {"before-connect", before_connect},
    {"listener-passed", listener_passed},
    {"over-the-connection", over_the_connection},
    {"credentials", credentials},
    {0},
};
