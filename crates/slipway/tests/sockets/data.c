// Data: every way to send and to receive it.
#include "observer.h"

static void urgent(void) {
    int fd = paired("server");
    if (serving) {
        meet();
        ready(fd, POLLPRI, -1);
        wait_for_bytes(fd, 3);
        say("poll: %s", ready(fd, ALL, 0));
        int mark = -1, waiting = -1;
        char byte = 0;
        outcome("SIOCATMARK", ioctl(fd, SIOCATMARK, &mark));
        say("at the mark: %d", mark);
        ioctl(fd, FIONREAD, &waiting);
        say("waiting before the mark: %d", waiting);
        read_on(fd); // stops at the mark
        ioctl(fd, SIOCATMARK, &mark);
        say("at the mark: %d", mark);
        outcome("receive urgent, peeked", recv(fd, &byte, 1, MSG_OOB | MSG_PEEK));
        outcome("receive urgent", recv(fd, &byte, 1, MSG_OOB));
        say("it is %c", byte);
        outcome("receive urgent again", recv(fd, &byte, 1, MSG_OOB | MSG_DONTWAIT));
        char rest[4] = "";
        bring(fd, rest, 2);
        say("after the mark: %s", rest);
    } else {
        outcome("send", send(fd, "abc", 3, 0));
        outcome("send urgent", send(fd, "U", 1, MSG_OOB));
        outcome("send", send(fd, "de", 2, 0));
        meet();
    }
    meet();
}

static void urgent_inline(void) {
    int fd = paired("server"), on = 1;
    if (serving) {
        outcome("SO_OOBINLINE", setsockopt(fd, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on));
        meet();
        ready(fd, POLLPRI, -1);
        wait_for_bytes(fd, 3);
        char byte;
        int mark;
        outcome("receive urgent", recv(fd, &byte, 1, MSG_OOB | MSG_DONTWAIT));
        read_on(fd);
        ioctl(fd, SIOCATMARK, &mark);
        say("at the mark: %d", mark);
        wait_for_bytes(fd, 3);
        read_on(fd);
    } else {
        meet();
        outcome("send", send(fd, "abc", 3, 0));
        outcome("send urgent", send(fd, "xU", 2, MSG_OOB)); // the last byte is the urgent one
        outcome("send", send(fd, "de", 2, 0));
    }
    meet();
}

static void ways_to_read(void) {
    int fd = paired("server");
    if (!serving) {
        put(fd, "abcdefgh");
        meet();
        meet();
        put(fd, "ijkl");
        usleep(50000);
        put(fd, "mnop");
        meet();
        put(fd, "qrstuvwx");
        meet();
        return;
    }
    char text[32] = "";
    int waiting = 0;
    meet();
    wait_for_bytes(fd, 8);
    ioctl(fd, FIONREAD, &waiting);
    say("FIONREAD: %d", waiting);
    outcome("peek", recv(fd, text, 4, MSG_PEEK));
    outcome("peek again", recv(fd, text, 3, MSG_PEEK));
    outcome("peek for more than there is", recv(fd, text, sizeof text, MSG_PEEK));
    say("peeked \"%s\"", text);
    outcome("read nothing", recv(fd, text, 0, 0));
    outcome("read all", recv(fd, text, sizeof text, 0));
    outcome("MSG_DONTWAIT", recv(fd, text, 1, MSG_DONTWAIT));
    outcome("MSG_DONTWAIT, peek", recv(fd, text, 1, MSG_DONTWAIT | MSG_PEEK));
    outcome("MSG_ERRQUEUE", recv(fd, text, 1, MSG_DONTWAIT | MSG_ERRQUEUE));
    outcome("MSG_OOB", recv(fd, text, 1, MSG_DONTWAIT | MSG_OOB));
    meet();
    outcome("MSG_WAITALL", recv(fd, text, 8, MSG_WAITALL));
    say("read \"%.8s\"", text);
    meet();
    wait_for_bytes(fd, 8);
    memset(text, '.', sizeof text);
    outcome("MSG_TRUNC", recv(fd, text, 4, MSG_TRUNC));
    say("written \"%.4s\"", text);
    struct address from = {.length = sizeof from.storage};
    memset(&from.storage, 0xee, sizeof from.storage);
    outcome("recvfrom", recvfrom(fd, text, 2, 0, &from.sa, &from.length));
    say("the address has %u bytes", from.length);
    struct iovec parts[] = {{text, 1}, {text + 8, 1}};
    struct msghdr message = {.msg_name = &from, .msg_namelen = sizeof from.storage, .msg_iov = parts, .msg_iovlen = 2};
    outcome("recvmsg", recvmsg(fd, &message, 0));
    say("the address has %u bytes, flags %#x", message.msg_namelen, message.msg_flags);
    meet();
}

static void ways_to_write(void) {
    int fd = paired("server");
    if (serving) {
        char text[64] = "";
        bring(fd, text, 26);
        say("read \"%s\"", text);
        meet();
        meet();
        return;
    }
    struct iovec parts[] = {{"ab", 2}, {"", 0}, {"cde", 3}};
    outcome("writev", writev(fd, parts, 3));
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 3};
    outcome("sendmsg", sendmsg(fd, &message, 0));
    struct mmsghdr messages[] = {{.msg_hdr = message}, {.msg_hdr = message}};
    outcome("sendmmsg", sendmmsg(fd, messages, 2, 0));
    say("%u and %u bytes", messages[0].msg_len, messages[1].msg_len);
    outcome("write nothing", write(fd, "", 0));
    outcome("MSG_MORE", send(fd, "f", 1, MSG_MORE));
    outcome("MSG_EOR", send(fd, "g", 1, MSG_EOR));
    outcome("MSG_DONTROUTE", send(fd, "h", 1, MSG_DONTROUTE));
    outcome("write", write(fd, "ijk", 3));
    int unsent = -1;
    meet();
    do ioctl(fd, TIOCOUTQ, &unsent);
    while (unsent);
    say("TIOCOUTQ comes to rest at %d", unsent);
    meet();
}

// TCP looks at no address that is given with the data.
static void with_an_address(void) {
    int fd = paired("server");
    if (serving) {
        char text[16] = "";
        bring(fd, text, 4);
        say("read \"%s\"", text);
    } else {
        struct address peer = at("server", 0), other = at("127.0.0.1", 1);
        if (outcome("sendto the peer", sendto(fd, "ab", 2, 0, &peer.sa, peer.length)) < 0) die("send");
        outcome("sendto another", sendto(fd, "c", 1, 0, &other.sa, other.length));
        struct iovec part = {"d", 1};
        struct msghdr message = {.msg_name = &other.sa, .msg_namelen = other.length, .msg_iov = &part, .msg_iovlen = 1};
        outcome("sendmsg to another", sendmsg(fd, &message, 0));
        outcome("sendto when unconnected", sendto(stream("server"), "x", 1, MSG_NOSIGNAL, &peer.sa, peer.length));
    }
    meet();
}

// What programs do that would like to: where it is not offered, they connect. What is seen is the same.
static void fast_open(void) {
    if (serving) {
        int listener = listening("server", 0);
        meet();
        int fd = taken(listener);
        char text[8] = "";
        bring(fd, text, 5);
        say("read \"%s\"", text);
        meet();
        return;
    }
    meet();
    struct address peer = at("server", 0);
    int fd = stream("server");
    int sent = sendto(fd, "hello", 5, MSG_FASTOPEN, &peer.sa, peer.length);
    if (sent < 0 && errno == EOPNOTSUPP && connect(fd, &peer.sa, peer.length) == 0) sent = send(fd, "hello", 5, 0);
    outcome("sent", sent);
    show_names("connected", fd);
    meet();
}

// A sequence that both sides can make, and its sum.
enum { LARGE = 16 << 20, BLOCK = 1 << 16 };
static uint32_t fill(unsigned char *block, int size, uint32_t seed) {
    for (int i = 0; i < size; i++) seed = seed * 1664525 + 1013904223, block[i] = seed >> 24;
    return seed;
}
static void *send_much(void *fd) {
    static unsigned char block[BLOCK];
    uint32_t seed = 1;
    for (int all = 0; all < LARGE; all += BLOCK) {
        seed = fill(block, BLOCK, seed);
        for (int sent, done = 0; done < BLOCK; done += sent)
            if ((sent = write(*(int *)fd, block + done, BLOCK - done)) <= 0) die("write");
    }
    shutdown(*(int *)fd, SHUT_WR);
    return NULL;
}
static void receive_much(int fd) {
    static unsigned char block[BLOCK], expected[BLOCK];
    uint32_t seed = 1;
    int all = 0, wrong = 0, got;
    do {
        int have = 0;
        while (have < BLOCK && (got = read(fd, block + have, BLOCK - have)) > 0) have += got;
        seed = fill(expected, BLOCK, seed);
        wrong += memcmp(block, expected, have) != 0;
        all += have;
    } while (got > 0);
    say("received %d bytes, %d blocks are wrong, then %s", all, wrong, got ? error_name(errno) : "the end");
}
static void large(void) {
    int fd = paired("server");
    if (serving) receive_much(fd);
    else send_much(&fd);
    meet();
}
static void large_both_ways(void) {
    int fd = paired("ip6-server");
    pthread_t thread;
    pthread_create(&thread, NULL, send_much, &fd);
    receive_much(fd);
    pthread_join(thread, NULL);
    meet();
}

// A file that has `size` bytes of the sequence.
static int filled(int size) {
    static unsigned char block[1 << 20];
    int fd = memfd_create("data", MFD_CLOEXEC);
    fill(block, size, 1);
    if (fd < 0 || write(fd, block, size) != size) die("make a file");
    lseek(fd, 0, SEEK_SET);
    return fd;
}
static void from_files(void) {
    enum { SIZE = 300000 };
    int fd = paired("server");
    if (serving) {
        static unsigned char got[SIZE], expected[SIZE];
        fill(expected, SIZE, 1);
        for (int i = 0; i < 2; i++) {
            bring(fd, (char *)got, SIZE);
            say("the file came whole: %s", memcmp(got, expected, SIZE) ? "no" : "yes");
        }
        meet();
        // And back, through a pipe into a file.
        int pipes[2], file = memfd_create("back", 0), all = 0;
        if (pipe(pipes) < 0) die("make a pipe");
        while (all < SIZE) {
            int got_now = splice(fd, NULL, pipes[1], NULL, SIZE - all, 0);
            if (got_now <= 0) die("splice");
            for (int out, done = 0; done < got_now; done += out)
                if ((out = splice(pipes[0], NULL, file, NULL, got_now - done, 0)) <= 0) die("splice into a file");
            all += got_now;
        }
        if (pread(file, got, SIZE, 0) != SIZE) die("read the file");
        say("spliced whole: %s", memcmp(got, expected, SIZE) ? "no" : "yes");
    } else {
        int file = filled(SIZE), pipes[2];
        off_t offset = 0;
        while (offset < SIZE)
            if (sendfile(fd, file, &offset, SIZE - offset) <= 0) die("sendfile");
        say("sendfile sent %d", (int)offset);
        for (int round = 0; round < 2; round++) {
            if (pipe(pipes) < 0) die("make a pipe");
            loff_t from = 0;
            while (from < SIZE) {
                int in = splice(file, &from, pipes[1], NULL, SIZE - from, 0);
                for (int out, done = 0; done < in; done += out)
                    if ((out = splice(pipes[0], NULL, fd, NULL, in - done, SPLICE_F_MORE)) <= 0) die("splice");
            }
            say("splice sent %d", (int)from);
            if (!round) meet();
        }
    }
    meet();
}

// A writer that is not heard waits, and goes on when it is.
static void full(void) {
    static char block[BLOCK];
    int fd = paired("server");
    if (serving) {
        meet(); // the client has filled everything there is
        long all = 0;
        int got;
        while ((got = read(fd, block, BLOCK)) > 0) all += got;
        char text[32];
        snprintf(text, sizeof text, "%ld", all);
        meet();
        say("something came: %s", all > BLOCK ? "yes" : "no");
        return;
    }
    fcntl(fd, F_SETFL, O_NONBLOCK);
    // Buffers may grow while it waits: full is what stays so.
    for (int quiet = 0; quiet < 100;) {
        if (write(fd, block, BLOCK) > 0) quiet = 0;
        else usleep(10000), quiet++;
    }
    say("write: %s", error_name(errno));
    say("poll: %s", ready(fd, POLLOUT, 0));
    meet();
    say("poll: %s", ready(fd, POLLOUT, -1));
    close(fd);
    meet();
}

static void ping_pong(void) {
    int fd = paired("server"), on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    for (uint32_t i = 0; i < 2000; i++) {
        uint32_t seen = i;
        if (!serving && write(fd, &i, sizeof i) != sizeof i) die("write");
        bring(fd, (char *)&seen, sizeof seen);
        if (seen != i) die("keep step");
        if (serving && write(fd, &i, sizeof i) != sizeof i) die("write");
    }
    say("kept step");
    meet();
}

const struct scenario data[] = {
    {"urgent", urgent},
    {"urgent-inline", urgent_inline},
    {"ways-to-read", ways_to_read},
    {"ways-to-write", ways_to_write},
    {"with-an-address", with_an_address},
    {"fast-open", fast_open},
    {"large", large},
    {"large-both-ways", large_both_ways},
    {"from-files", from_files},
    {"full", full},
    {"ping-pong", ping_pong},
    {0},
};
