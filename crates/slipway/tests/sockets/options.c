// Options: set before and after, read after, inherited by accept; and what has an effect that can be seen.
#include "observer.h"

#define OPTION(level, name, value) {#name, level, name, value}
static const struct option {
    const char *name;
    int level, number, value;
} scalars[] = {
    OPTION(SOL_SOCKET, SO_KEEPALIVE, 1),
    OPTION(SOL_SOCKET, SO_RCVBUF, 65536),
    OPTION(SOL_SOCKET, SO_SNDBUF, 65536),
    OPTION(SOL_SOCKET, SO_REUSEADDR, 1),
    OPTION(SOL_SOCKET, SO_REUSEPORT, 1),
    OPTION(SOL_SOCKET, SO_OOBINLINE, 1),
    OPTION(SOL_SOCKET, SO_PRIORITY, 3),
    OPTION(SOL_SOCKET, SO_RCVLOWAT, 1),
    OPTION(SOL_SOCKET, SO_BROADCAST, 1),
    OPTION(SOL_SOCKET, SO_TIMESTAMP, 1),
    OPTION(SOL_SOCKET, SO_ZEROCOPY, 1),
    OPTION(IPPROTO_TCP, TCP_NODELAY, 1),
    OPTION(IPPROTO_TCP, TCP_KEEPIDLE, 60),
    OPTION(IPPROTO_TCP, TCP_KEEPINTVL, 5),
    OPTION(IPPROTO_TCP, TCP_KEEPCNT, 3),
    OPTION(IPPROTO_TCP, TCP_USER_TIMEOUT, 9000),
    OPTION(IPPROTO_TCP, TCP_SYNCNT, 2),
    OPTION(IPPROTO_TCP, TCP_LINGER2, 7),
    OPTION(IPPROTO_TCP, TCP_NOTSENT_LOWAT, 16384),
    OPTION(IPPROTO_IP, IP_TOS, 0x10),
    OPTION(IPPROTO_IP, IP_TTL, 33),
    OPTION(IPPROTO_IP, IP_MTU_DISCOVER, 2),
    OPTION(IPPROTO_IP, IP_RECVTOS, 1),
};
static const struct option scalars6[] = {
    OPTION(IPPROTO_IPV6, IPV6_TCLASS, 0x10),
    OPTION(IPPROTO_IPV6, IPV6_UNICAST_HOPS, 33),
    OPTION(IPPROTO_IPV6, IPV6_RECVTCLASS, 1),
};
#define EACH(option, table) \
    (const struct option *option = table; option < table + sizeof table / sizeof *table; option++)

static void set(const char *when, int fd, const struct option *option) {
    if (setsockopt(fd, option->level, option->number, &option->value, sizeof option->value) < 0)
        say("set %s %s: %s", option->name, when, error_name(errno));
}
static void show(const char *when, int fd, const struct option *option) {
    int value = number_of(fd, option->level, option->number);
    if (value < 0) say("%s %s: %s", option->name, when, error_name(-value));
    else say("%s %s: %d", option->name, when, value);
}

static void before(void) {
    int fd = stream("server");
    if (serving) {
        fd = bound("server", 0);
        for EACH (option, scalars) set("before", fd, option);
        if (listen(fd, 1) < 0) die("listen");
        meet();
        fd = taken(fd);
        for EACH (option, scalars) show("inherited", fd, option);
    } else {
        for EACH (option, scalars) set("before", fd, option);
        meet();
        if (connected(fd, "server", 0) < 0) die("connect");
        for EACH (option, scalars) show("kept", fd, option);
    }
    meet();
}

static void after(void) {
    int fd = paired("server");
    for EACH (option, scalars) set("after", fd, option), show("after", fd, option);
    meet();
}

// What nobody has set.
static void untouched(void) {
    int fd = paired("server");
    for EACH (option, scalars)
        // Buffers have the size that the machine gives them.
        if (option->level != SOL_SOCKET || (option->number != SO_RCVBUF && option->number != SO_SNDBUF))
            show("untouched", fd, option);
    meet();
}

static void of_ipv6(void) {
    int fd = stream("ip6-server");
    if (serving) {
        fd = bound("ip6-server", 0);
        for EACH (option, scalars6) set("before", fd, option);
        if (listen(fd, 1) < 0) die("listen");
        meet();
        fd = taken(fd);
        for EACH (option, scalars6) show("inherited", fd, option);
    } else {
        for EACH (option, scalars6) set("before", fd, option);
        meet();
        if (connected(fd, "ip6-server", 0) < 0) die("connect");
        for EACH (option, scalars6) show("kept", fd, option);
    }
    meet();
}

// What is known of a socket in each of its states.
static void describe(const char *what, int fd) {
    say("%s: domain %d, type %d, protocol %d, accepts %d, error %d", what, number_of(fd, SOL_SOCKET, SO_DOMAIN),
        number_of(fd, SOL_SOCKET, SO_TYPE), number_of(fd, SOL_SOCKET, SO_PROTOCOL),
        number_of(fd, SOL_SOCKET, SO_ACCEPTCONN), number_of(fd, SOL_SOCKET, SO_ERROR));
}
static void described(const char *host) {
    int fd = stream(host);
    describe("fresh", fd);
    if (serving) {
        int listener = listening(host, 0);
        describe("listening", listener);
        meet();
        describe("accepted", taken(listener));
    } else {
        meet();
        if (connected(fd, host, 0) < 0) die("connect");
        describe("connected", fd);
    }
    meet();
}
static void described4(void) { described("server"); }
static void described6(void) { described("ip6-server"); }

static int state_of(int fd) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0) return -errno;
    return info.tcpi_state;
}
static void await_state(const char *what, int fd, int passing) {
    while (state_of(fd) == passing) usleep(1000);
    say("state %s: %d", what, state_of(fd));
}
static void information(void) {
    int fd = stream("server");
    say("state when fresh: %d", state_of(fd));
    close(fd);
    if (serving) {
        int listener = listening("server", 0);
        say("state when listening: %d", state_of(listener));
        meet();
        fd = taken(listener);
    } else {
        meet();
        fd = dial("server", 0);
    }
    say("state: %d", state_of(fd));
    struct tcp_info info;
    socklen_t length = 4;
    outcome("TCP_INFO with room for 4", getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length));
    say("length: %u", length);
    meet();
    char byte;
    if (serving) {
        outcome("the end", read(fd, &byte, 1));
        say("state when the peer has shut down: %d", state_of(fd));
        meet();
        meet();
        shutdown(fd, SHUT_WR);
        await_state("when both have", fd, TCP_LAST_ACK);
    } else {
        shutdown(fd, SHUT_WR);
        await_state("after shutdown", fd, TCP_FIN_WAIT1);
        meet();
        meet();
        outcome("the end", read(fd, &byte, 1));
    }
    meet();
}

static void of_tcp(void) {
    int fd = paired("server");
    int segment = number_of(fd, IPPROTO_TCP, TCP_MAXSEG);
    say("TCP_MAXSEG is plausible: %s", segment >= 500 && segment <= 65535 ? "yes" : "no");
    char name[17] = "", standard[17] = "";
    socklen_t length = sizeof name - 1;
    outcome("TCP_CONGESTION", getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length));
    FILE *file = fopen("/proc/sys/net/ipv4/tcp_congestion_control", "re");
    if (!file || fscanf(file, "%16s", standard) != 1) die("read the standard congestion control");
    say("it is the standard one: %s (%u bytes)", strcmp(name, standard) == 0 ? "yes" : "no", length);
    outcome("set TCP_CONGESTION", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4));
    length = sizeof name - 1;
    memset(name, 0, sizeof name);
    getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length);
    say("it is now %s", name);
    outcome("one that is not there", setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "nowhere", 7));
    int on = 1, off = 0;
    outcome("TCP_QUICKACK", setsockopt(fd, IPPROTO_TCP, TCP_QUICKACK, &on, sizeof on));
    outcome("TCP_CORK", setsockopt(fd, IPPROTO_TCP, TCP_CORK, &on, sizeof on));
    say("TCP_CORK: %d", number_of(fd, IPPROTO_TCP, TCP_CORK));
    if (!serving) {
        outcome("write", write(fd, "corked", 6));
        outcome("uncork", setsockopt(fd, IPPROTO_TCP, TCP_CORK, &off, sizeof off));
    } else {
        char text[8] = "";
        bring(fd, text, 6);
        say("read \"%s\"", text);
    }
    meet();
}

static void of_structs(void) {
    struct linger linger = {.l_onoff = 1, .l_linger = 3};
    struct timeval limit = {.tv_sec = 90, .tv_usec = 0}; // accept and connect keep to it too
    int fd = stream("server");
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (serving) {
        struct address address = at("server", 0);
        if (bind(fd, &address.sa, address.length) < 0 || listen(fd, 1) < 0) die("listen");
        meet();
        fd = taken(fd);
    } else {
        meet();
        if (connected(fd, "server", 0) < 0) die("connect");
    }
    memset(&linger, 0, sizeof linger);
    socklen_t length = sizeof linger;
    outcome("SO_LINGER", getsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, &length));
    say("on %d, seconds %d", linger.l_onoff, linger.l_linger);
    for (int option = SO_RCVTIMEO;; option = SO_SNDTIMEO) {
        length = sizeof limit;
        memset(&limit, 0, sizeof limit);
        outcome("a time limit", getsockopt(fd, SOL_SOCKET, option, &limit, &length));
        say("seconds %d", (int)limit.tv_sec);
        if (option == SO_SNDTIMEO) break;
    }
    struct ucred peer;
    length = sizeof peer;
    outcome("SO_PEERCRED", getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length));
    say("pid %d, uid %d, gid %d", peer.pid, (int)peer.uid, (int)peer.gid);
    gid_t groups[8];
    length = sizeof groups;
    outcome("SO_PEERGROUPS", getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &length));
    char text[64];
    length = sizeof text;
    outcome("SO_BINDTODEVICE", getsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, text, &length));
    say("%u bytes", length);
    length = sizeof text;
    outcome("SO_PEERNAME", getsockopt(fd, SOL_SOCKET, SO_PEERNAME, text, &length));
    say("%u bytes", length);
    length = 3;
    outcome("SO_PEERNAME with room for 3", getsockopt(fd, SOL_SOCKET, SO_PEERNAME, text, &length));
    meet();
}

// Limits that were set before connect hold afterwards.
static void limits_hold(void) {
    int fd = stream("server");
    struct timeval limit = {.tv_usec = 100000}, longer = {.tv_sec = 2}; // connect keeps to the latter too
    if (serving) {
        int listener = listening("server", 0);
        meet();
        fd = taken(listener);
        meet();
        return;
    }
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longer, sizeof longer);
    meet();
    if (connected(fd, "server", 0) < 0) die("connect");
    static char block[1 << 16];
    outcome("read", read(fd, block, sizeof block));
    long all = 0, sent;
    while ((sent = write(fd, block, sizeof block)) > 0) all += sent;
    say("write to one who does not read: %s in the end", error_name(errno));
    say("taken: %s", all > (1 << 16) && all < (256 << 20) ? "some" : "too little or too much");
    meet();
}

static void low_mark(void) {
    int fd = stream("server"), mark = 10;
    if (serving) {
        fd = paired("server");
        if (write(fd, "12345", 5) != 5) die("write");
        meet();
        if (write(fd, "67890", 5) != 5) die("write");
        meet();
        return;
    }
    outcome("SO_RCVLOWAT", setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &mark, sizeof mark));
    meet();
    if (connected(fd, "server", 0) < 0) die("connect");
    wait_for_bytes(fd, 5);
    say("five bytes: %s", ready(fd, POLLIN, 0));
    char text[16] = "";
    meet();
    say("ten bytes: %s", ready(fd, POLLIN, -1));
    outcome("read", read(fd, text, sizeof text));
    meet();
}

// The server hears of a client when it has spoken.
static void deferred(void) {
    if (!serving) {
        meet();
        int fd = dial("server", 0);
        if (write(fd, "hello", 5) != 5) die("write");
        char byte;
        outcome("read", read(fd, &byte, 1));
        return;
    }
    int listener = bound("server", 0), seconds = 7; // longer than the client takes to say it
    outcome("TCP_DEFER_ACCEPT", setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds));
    say("TCP_DEFER_ACCEPT: %d", number_of(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT));
    if (listen(listener, 4) < 0) die("listen");
    meet();
    int fd = opened("accept", accept(listener, NULL, NULL));
    char text[8] = "";
    outcome("read", recv(fd, text, sizeof text - 1, MSG_DONTWAIT));
    say("it said \"%s\"", text);
}

// It hears of nobody who says nothing, however long; an end is said too.
static void deferred_for_long(void) {
    if (!serving) {
        meet();
        int fd = dial("server", 0);
        meet();
        meet();
        if (write(fd, "hello", 5) != 5) die("write");
        char byte;
        outcome("read", read(fd, &byte, 1));
        fd = dial("server", 0);
        shutdown(fd, SHUT_WR);
        outcome("read", read(fd, &byte, 1));
        return;
    }
    int listener = bound("server", 0), seconds = 3600;
    setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof seconds);
    if (listen(listener, 4) < 0) die("listen");
    meet();
    meet();
    say("a client that is silent: %s", ready(listener, POLLIN, 0));
    meet();
    for (int i = 0; i < 2; i++) {
        say("a client: %s", ready(listener, POLLIN, -1));
        int fd = opened("accept", accept(listener, NULL, NULL));
        char text[8] = "";
        outcome("read", recv(fd, text, sizeof text - 1, MSG_DONTWAIT));
        close(fd);
    }
}

static void unknown(void) {
    int fd = paired("server"), value = 1;
    socklen_t length;
    static const int levels[] = {SOL_SOCKET, IPPROTO_TCP, IPPROTO_IP, IPPROTO_IPV6, IPPROTO_UDP, 999};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        say("level %d", levels[i]);
        length = sizeof value;
        outcome("get", getsockopt(fd, levels[i], 9999, &value, &length));
        outcome("set", setsockopt(fd, levels[i], 9999, &value, sizeof value));
    }
    meet();
}

static void misused(void) {
    int fd = paired("server"), value = 7;
    socklen_t length = 1;
    outcome("get TCP_NODELAY, one byte", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length));
    say("length %u", length);
    length = 0;
    outcome("get TCP_NODELAY, no bytes", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length));
    length = -1;
    outcome("get TCP_NODELAY, length -1", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, &length));
    length = 64;
    char room[64];
    outcome("get TCP_NODELAY, 64 bytes", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, room, &length));
    say("length %u", length);
    outcome("set TCP_NODELAY, two bytes", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, 2));
    outcome("set TCP_NODELAY, length -1", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, -1));
    outcome("set TCP_NODELAY, eight bytes", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, room, 8));
    length = sizeof value;
    outcome("get into nothing", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NULL, &length));
    outcome("get without a length", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, NULL));
    outcome("set from nothing", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NULL, sizeof value));
    outcome("set SO_TYPE", setsockopt(fd, SOL_SOCKET, SO_TYPE, &value, sizeof value));
    outcome("set SO_ERROR", setsockopt(fd, SOL_SOCKET, SO_ERROR, &value, sizeof value));
    value = 7;
    outcome("set TCP_KEEPIDLE to 7", setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value));
    value = -1;
    outcome("set TCP_KEEPIDLE to -1", setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value));
    value = 1 << 20;
    outcome("set TCP_KEEPIDLE to 2^20", setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &value, sizeof value));
    outcome("set TCP_KEEPCNT to 2^20", setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &value, sizeof value));
    outcome("set TCP_MAXSEG to 2^20", setsockopt(fd, IPPROTO_TCP, TCP_MAXSEG, &value, sizeof value));
    outcome("set IP_TTL to 2^20", setsockopt(fd, IPPROTO_IP, IP_TTL, &value, sizeof value));
    value = 1;
    outcome("set IPV6_V6ONLY on IPv4", setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &value, sizeof value));
    outcome("set TCP_DEFER_ACCEPT", setsockopt(fd, IPPROTO_TCP, TCP_DEFER_ACCEPT, &value, sizeof value));
    outcome("set SO_BINDTODEVICE to eth0", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "eth0", 5));
    outcome("set SO_BINDTODEVICE to none", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "none", 5));
    value = 5;
    outcome("set SO_MARK", setsockopt(fd, SOL_SOCKET, SO_MARK, &value, sizeof value));
    meet();
}

const struct scenario options[] = {
    {"before", before},
    {"after", after},
    {"untouched", untouched},
    {"ipv6", of_ipv6},
    {"described", described4},
    {"described6", described6},
    {"information", information},
    {"tcp", of_tcp},
    {"structs", of_structs},
    {"limits-hold", limits_hold},
    {"low-mark", low_mark},
    {"deferred", deferred},
    {"deferred_for_long", deferred_for_long},
    {"unknown", unknown},
    {"misused", misused},
    {0},
};
