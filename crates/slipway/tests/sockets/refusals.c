// What the calls refuse, and with which error.
#include "observer.h"

static char *const NOWHERE = (char *)8; // an address that no process has

static void bind_refusals(void) {
    if (serving) return;
    struct address own = at("client", 0), other = at("client", 1), foreign = at("server", 0), absent = at("192.0.2.1", 0);
    int fd = stream("client");
    outcome("bind", bind(fd, &own.sa, own.length));
    outcome("bind again", bind(fd, &other.sa, other.length));
    outcome("listen", listen(fd, 1));
    outcome("bind a listener", bind(fd, &other.sa, other.length));
    outcome("a taken port", bind(stream("client"), &own.sa, own.length));
    struct address any = at("0.0.0.0", 0), any6 = at("::", 0);
    outcome("a taken port of any address", bind(stream("client"), &any.sa, any.length));
    outcome("a taken port of both families", bind(stream("::"), &any6.sa, any6.length));
    int prepared = stream("client"), on = 1;
    setsockopt(prepared, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    outcome("a taken port, with SO_REUSEADDR", bind(prepared, &own.sa, own.length));
    outcome("the other node's address", bind(stream("client"), &foreign.sa, foreign.length));
    outcome("nobody's address", bind(stream("client"), &absent.sa, absent.length));
    close(fd);
    outcome("the port when it is free again", bind(stream("client"), &own.sa, own.length));
    // Bound and not listening, both may be; only one may listen.
    int first = bound("client", 2), second = bound("client", 2);
    outcome("the first listens", listen(first, 1));
    outcome("the second listens", listen(second, 1));
    close(first);
    outcome("the second listens afterwards", listen(second, 1));
}

static void lengths(void) {
    if (serving) return;
    struct address target = at("server", 0), target6 = at("ip6-server", 0);
    static const socklen_t wrong[] = {0, 1, 2, 15, 24, 27, 128, 129, (socklen_t)-1};
    char what[64];
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(what, sizeof what, "connect with %d bytes", (int)wrong[i]);
        outcome(what, connect(stream("server"), &target.sa, wrong[i]));
        snprintf(what, sizeof what, "connect IPv6 with %d bytes", (int)wrong[i]);
        outcome(what, connect(stream("ip6-server"), &target6.sa, wrong[i]));
        struct address own = at("client", 1);
        snprintf(what, sizeof what, "bind with %d bytes", (int)wrong[i]);
        outcome(what, bind(stream("client"), &own.sa, wrong[i]));
    }
}

static void kinds_of_address(void) {
    if (serving) return;
    struct address target = at("server", 0), target6 = at("ip6-server", 0);
    outcome("IPv6 address on IPv4 socket", connect(stream("server"), &target6.sa, target6.length));
    outcome("IPv4 address on IPv6 socket", connect(stream("ip6-server"), &target.sa, target.length));
    struct sockaddr_un path = {.sun_family = AF_UNIX, .sun_path = "/tmp/nothing"};
    outcome("path on IPv4 socket", connect(stream("server"), (void *)&path, sizeof path));
    outcome("bind path on IPv4 socket", bind(stream("server"), (void *)&path, sizeof path));
    outcome("bind IPv4 address on IPv6 socket", bind(stream("ip6-server"), &target.sa, target.length));
    outcome("bind IPv6 address on IPv4 socket", bind(stream("server"), &target6.sa, target6.length));
    target.sa.sa_family = 999;
    outcome("unknown family", connect(stream("server"), &target.sa, target.length));
    outcome("bind unknown family", bind(stream("server"), &target.sa, target.length));
    struct address any = at("0.0.0.0", 1);
    any.sa.sa_family = AF_UNSPEC;
    outcome("bind AF_UNSPEC and any address", bind(stream("server"), &any.sa, any.length));
    target6 = at("ip6-server", 0);
    target6.in6.sin6_scope_id = 77;
    outcome("a scope on a global address", connect(stream("ip6-server"), &target6.sa, target6.length));
    outcome("link-local without a scope", connected(stream("ip6-server"), "fe80::1", 0));
    target6.in6.sin6_scope_id = 0, target6.in6.sin6_flowinfo = htonl(0x12345);
    outcome("a flow label", connect(stream("ip6-server"), &target6.sa, target6.length));
}

static void bad_pointers(void) {
    if (serving) {
        int fd = listening("server", 0);
        socklen_t length = 16;
        meet();
        ready(fd, POLLIN, -1);
        opened("accept to nowhere", accept(fd, (void *)NOWHERE, &length));
        opened("accept with the length nowhere", accept(fd, (void *)&(struct sockaddr_in){0}, (void *)NOWHERE));
        opened("accept with no length", accept(fd, (void *)&(struct sockaddr_in){0}, NULL));
        meet();
        return;
    }
    meet();
    dial("server", 0), dial("server", 0), dial("server", 0);
    int fd = dial("server", 0), fresh = stream("server"), value;
    socklen_t length = 16;
    struct address own;
    outcome("connect", connect(fresh, (void *)NOWHERE, 16));
    outcome("connect, null", connect(fresh, NULL, 16));
    outcome("bind", bind(fresh, (void *)NOWHERE, 16));
    outcome("getsockname", getsockname(fd, (void *)NOWHERE, &length));
    outcome("getsockname, length", getsockname(fd, &own.sa, (void *)NOWHERE));
    outcome("getpeername", getpeername(fd, (void *)NOWHERE, &length));
    outcome("getpeername, null length", getpeername(fd, &own.sa, NULL));
    outcome("getsockopt", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NOWHERE, &length));
    outcome("getsockopt, length", getsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &value, (void *)NOWHERE));
    outcome("setsockopt", setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, NOWHERE, 4));
    outcome("send", send(fd, NOWHERE, 4, MSG_NOSIGNAL));
    outcome("sendmsg", syscall(SYS_sendmsg, fd, NOWHERE, MSG_NOSIGNAL)); // a C library may read it first
    // An address that begins on a page that is there and ends on one that is not.
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    struct address target = at("server", 0);
    memcpy(page + 4096 - 8, &target.in, 8);
    outcome("connect, at the edge", connect(fresh, (void *)(page + 4096 - 8), 16));
    memcpy(page + 4096 - 16, &target.in, 16);
    // Memory that cannot be written.
    mprotect(page, 4096, PROT_READ);
    length = 16;
    outcome("getsockname, read-only", getsockname(fd, (void *)page, &length));
    outcome("connect, up to the edge", connect(fresh, (void *)(page + 4096 - 16), 16));
    meet();
}

static void bad_descriptors(void) {
    if (serving) return;
    struct address target = at("server", 0);
    int pipes[2], value;
    socklen_t length = sizeof target.storage;
    if (pipe(pipes) < 0) die("make a pipe");
    const int fds[] = {-1, 987, pipes[0], open("/dev/null", O_RDONLY), open("/", O_PATH), epoll_create1(0)};
    static const char *const names[] = {"-1", "a closed one", "a pipe", "a device", "a path", "an epoll"};
    for (int i = 0; i < 6; i++) {
        say("%s", names[i]);
        outcome("connect", connect(fds[i], &target.sa, target.length));
        outcome("bind", bind(fds[i], &target.sa, target.length));
        outcome("listen", listen(fds[i], 1));
        opened("accept", accept(fds[i], NULL, NULL));
        opened("accept4 with unknown flags", syscall(SYS_accept4, fds[i], NULL, NULL, 1)); // C libraries have their own view
        outcome("getsockname", getsockname(fds[i], &target.sa, &length));
        outcome("getpeername", getpeername(fds[i], &target.sa, &length));
        length = sizeof value;
        outcome("getsockopt", getsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &value, &length));
        outcome("setsockopt", setsockopt(fds[i], IPPROTO_TCP, TCP_NODELAY, &value, sizeof value));
        target = at("server", 0);
        length = sizeof target.storage;
    }
}

static void out_of_turn(void) {
    if (serving) return;
    int fd = stream("client");
    char byte;
    opened("accept on a fresh one", accept(fd, NULL, NULL));
    outcome("read", read(fd, &byte, 1));
    signal(SIGPIPE, SIG_IGN);
    outcome("write", write(fd, &byte, 1));
    fd = bound("client", 0);
    opened("accept on a bound one", accept(fd, NULL, NULL));
    outcome("listen", listen(fd, 1));
    outcome("listen, a negative backlog", listen(fd, -1));
    outcome("read a listener", read(fd, &byte, 1));
    outcome("write a listener", write(fd, &byte, 1));
    outcome("shutdown a listener for writing", shutdown(fd, SHUT_WR));
    outcome("getsockopt of a listener", number_of(fd, SOL_SOCKET, SO_ACCEPTCONN));
    int waiting;
    outcome("FIONREAD of a listener", ioctl(fd, FIONREAD, &waiting));
    opened("socket of an unknown family", socket(999, SOCK_STREAM, 0));
    opened("socket of an unknown type", socket(AF_INET, 77, 0));
    opened("stream socket of UDP", socket(AF_INET, SOCK_STREAM, IPPROTO_UDP));
    opened("socketpair of IPv4", socketpair(AF_INET, SOCK_STREAM, 0, (int[2]){0}));
}

static void interfaces(void) {
    int fd = paired("server");
    struct ifreq found[16], one = {.ifr_name = "eth0"};
    struct ifconf all = {.ifc_len = sizeof found, .ifc_req = found};
    int listed = ioctl(fd, SIOCGIFCONF, &all);
    outcome("SIOCGIFCONF", listed);
    if (listed < 0) all.ifc_len = 0;
    for (int i = 0; i < all.ifc_len / (int)sizeof *found; i++) say("%s: %s", found[i].ifr_name, shown(&found[i].ifr_addr));
    outcome("SIOCGIFADDR", ioctl(fd, SIOCGIFADDR, &one));
    say("eth0: %s", shown(&one.ifr_addr));
    outcome("SIOCGIFFLAGS", ioctl(fd, SIOCGIFFLAGS, &one));
    say("up %d, loopback %d", (one.ifr_flags & IFF_UP) != 0, (one.ifr_flags & IFF_LOOPBACK) != 0);
    outcome("SIOCGIFINDEX", ioctl(fd, SIOCGIFINDEX, &one));
    say("if_nametoindex agrees: %s", (int)if_nametoindex("eth0") == one.ifr_ifindex ? "yes" : "no");
    outcome("SIOCGIFINDEX of lo", (strcpy(one.ifr_name, "lo"), ioctl(fd, SIOCGIFINDEX, &one)));
    say("lo is number %d", one.ifr_ifindex);
    strcpy(one.ifr_name, "none");
    outcome("one that is not there", ioctl(fd, SIOCGIFADDR, &one));
    outcome("to nowhere", ioctl(fd, SIOCGIFCONF, NOWHERE));
    outcome("an unknown request", ioctl(fd, 0x89ff, &one));
    outcome("a terminal's request", ioctl(fd, TCGETS, &one));
    int on = 1;
    outcome("FIONBIO", ioctl(fd, FIONBIO, &on));
    say("O_NONBLOCK %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    meet();
}

const struct scenario refusals[] = {
    {"bind", bind_refusals},
    {"lengths", lengths},
    {"kinds-of-address", kinds_of_address},
    {"bad-pointers", bad_pointers},
    {"bad-descriptors", bad_descriptors},
    {"out-of-turn", out_of_turn},
    {"interfaces", interfaces},
    {0},
};
