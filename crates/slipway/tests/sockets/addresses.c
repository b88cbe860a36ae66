// Which addresses sockets say that they have.
#include "observer.h"

// Whether both sides name the client's end alike; the client tells what it sees over the connection.
static void compare_ports(int fd) {
    struct address seen = {.length = sizeof seen.storage};
    in_port_t told;
    if (serving) {
        getpeername(fd, &seen.sa, &seen.length);
        bring(fd, (char *)&told, sizeof told);
        say("the client says the same port: %s", told == seen.in.sin_port ? "yes" : "no"); // at one place in both families
    } else {
        getsockname(fd, &seen.sa, &seen.length);
        if (write(fd, &seen.in.sin_port, sizeof told) < 0) die("write");
    }
}

// One connection to `target`, of a server that listens on `listened`.
static void one(const char *listened, const char *target) {
    if (serving) {
        int listener = listening(listened, 0);
        show_names("the listener", listener);
        meet();
        struct address peer = {.length = sizeof peer.storage};
        int fd = opened("accept", accept(listener, &peer.sa, &peer.length));
        say("accept's address: %s (%u bytes)", shown(&peer.sa), peer.length);
        show_names("accepted", fd);
        compare_ports(fd);
        show_names("the listener afterwards", listener);
    } else {
        meet();
        int fd = stream(target);
        show_names("before", fd);
        outcome("connect", connected(fd, target, 0));
        show_names("connected", fd);
        compare_ports(fd);
    }
}

static void ipv4(void) { one("server", "server"); }
static void ipv6(void) { one("ip6-server", "ip6-server"); }
static void any(void) { one("0.0.0.0", "server"); }
static void any6(void) { one("::", "ip6-server"); }
static void both_families(void) { one("::", "server"); }

static const char *mapped(void) {
    static char text[64];
    char number[32];
    struct address server = at("server", 0);
    snprintf(text, sizeof text, "::ffff:%s", inet_ntop(AF_INET, &server.in.sin_addr, number, sizeof number));
    return text;
}
static void mapped_client(void) { one("server", mapped()); }
static void mapped_both(void) { one("::", mapped()); }

static void only_ipv6(void) {
    if (serving) {
        int listener = stream("::"), on = 1;
        setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
        struct address address = at("::", 0);
        outcome("bind", bind(listener, &address.sa, address.length));
        outcome("listen", listen(listener, 1));
        meet();
        meet();
    } else {
        meet();
        outcome("connect by IPv4", connected(stream("server"), "server", 0));
        outcome("connect by IPv6", connected(stream("ip6-server"), "ip6-server", 0));
        meet();
    }
}

// A client that is bound before it connects.
static void from(const char *own, int port, const char *target) {
    if (serving) {
        int listener = listening(target, 0);
        meet();
        show_names("accepted", taken(listener));
    } else {
        meet();
        int fd = bound(own, port);
        show_names("bound", fd);
        outcome("connect", connected(fd, target, 0));
        show_names("connected", fd);
    }
    meet();
}
static void bound_port(void) { from("0.0.0.0", 5, "server"); }
static void bound_port6(void) { from("::", 5, "ip6-server"); }
static void bound_address(void) { from("client", -1, "server"); }
static void bound_both(void) { from("ip6-client", 6, "ip6-server"); }

static void unnamed(void) {
    if (serving) return;
    show_names("IPv4", stream("server"));
    show_names("IPv6", stream("ip6-server"));
    int fd = stream("server");
    outcome("listen without bind", listen(fd, 1));
    show_names("listening", fd);
}

// A node's connections to itself.
static void itself(void) {
    if (serving) return;
    static const char *const hosts[][2] = {{"client", "client"},      {"ip6-client", "ip6-client"},
                                           {"127.0.0.1", "127.0.0.1"}, {"::1", "::1"},
                                           {"0.0.0.0", "127.0.0.2"},   {"0.0.0.0", "0.0.0.0"},
                                           {"::", "client"},           {"::", "::1"},
                                           {"::", "::"},               {"0.0.0.0", "client"}};
    for (size_t i = 0; i < sizeof hosts / sizeof *hosts; i++) {
        int listener = listening(hosts[i][0], 0), fd = stream(hosts[i][1]);
        outcome(hosts[i][1], connected(fd, hosts[i][1], 0));
        show_names("connected", fd);
        int other = taken(listener);
        show_names("accepted", other);
        close(fd), close(other), close(listener);
    }
}

static void by_name(void) {
    int listener = serving ? listening("::", 0) : -1;
    meet();
    if (serving) {
        show_names("accepted", taken(listener));
        show_names("accepted", taken(listener));
    } else {
        static const int families[] = {AF_INET, AF_INET6};
        static const char *const names[] = {"server", "ip6-server"};
        for (int i = 0; i < 2; i++) {
            struct addrinfo hints = {.ai_family = families[i], .ai_socktype = SOCK_STREAM}, *found;
            char port[8];
            snprintf(port, sizeof port, "%d", ntohs(at("server", 0).in.sin_port));
            int failed = getaddrinfo(names[i], port, &hints, &found);
            say("getaddrinfo %s: %d", names[i], failed);
            if (failed) exit(1);
            int fd = socket(found->ai_family, found->ai_socktype, found->ai_protocol);
            say("%s is %s", names[i], shown(found->ai_addr));
            outcome("connect", connect(fd, found->ai_addr, found->ai_addrlen));
            freeaddrinfo(found);
        }
    }
    meet();
}

// What is asked with less room than an address takes.
static void ask_with(const char *what, int fd, int (*call)(int, struct sockaddr *, socklen_t *), socklen_t room) {
    unsigned char bytes[sizeof(struct sockaddr_storage)];
    memset(bytes, 0xee, sizeof bytes);
    socklen_t length = room;
    int result = call(fd, (void *)bytes, &length), failed = errno, written = sizeof bytes;
    while (written && bytes[written - 1] == 0xee) written--;
    if (written > 0 && (socklen_t)written > room) say("%s wrote beyond the room", what);
    if (result < 0) say("%s with room for %d: %s", what, (int)room, error_name(failed));
    else say("%s with room for %d: says %d, family %s", what, (int)room, (int)length,
             written > 1 ? (bytes[0] == AF_INET ? "IPv4" : bytes[0] == AF_INET6 ? "IPv6" : "other") : "unwritten");
}

static void short_room(void) {
    static const socklen_t rooms[] = {0, 1, 2, 8, 15, 16, 17, 27, 28, 100, (socklen_t)-1};
    int fd = paired("ip6-server");
    for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++) {
        ask_with("getsockname", fd, (void *)getsockname, rooms[i]);
        ask_with("getpeername", fd, (void *)getpeername, rooms[i]);
    }
    meet();
    close(fd);
    int listener = serving ? listening("server", 1) : -1;
    meet();
    for (size_t i = 0; i < 8; i++) {
        if (serving) ask_with("accept", listener, (void *)accept, rooms[i]);
        else dial("server", 1);
    }
    meet();
}

// Names of an end whose other one is gone.
static void after_the_end(void) {
    int fd = paired("server");
    if (serving) {
        close(fd);
        meet();
    } else {
        char byte;
        meet();
        outcome("read", read(fd, &byte, 1));
        show_names("the peer has closed", fd);
        outcome("shutdown for writing", shutdown(fd, SHUT_WR));
        for (int state = TCP_LAST_ACK; state == TCP_LAST_ACK; usleep(1000)) {
            struct tcp_info info;
            socklen_t length = sizeof info;
            if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) < 0) die("ask for TCP_INFO");
            state = info.tcpi_state;
        }
        show_names("both have closed", fd);
    }
}

const struct scenario addresses[] = {
    {"ipv4", ipv4},
    {"ipv6", ipv6},
    {"any", any},
    {"any6", any6},
    {"both-families", both_families},
    {"mapped-client", mapped_client},
    {"mapped-both", mapped_both},
    {"only-ipv6", only_ipv6},
    {"bound-port", bound_port},
    {"bound-port6", bound_port6},
    {"bound-address", bound_address},
    {"bound-both", bound_both},
    {"unnamed", unnamed},
    {"itself", itself},
    {"by-name", by_name},
    {"short-room", short_room},
    {"after-the-end", after_the_end},
    {0},
};
