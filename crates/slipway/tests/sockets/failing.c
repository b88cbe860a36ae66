// connect where there is nobody, or nobody yet, or nobody any more.
#include "observer.h"

static void refused(void) {
    if (serving) {
        meet();
        return serve(1);
    }
    int fd = stream("server");
    outcome("connect", connected(fd, "server", 0));
    last_error(fd);
    show_names("refused", fd);
    send_byte("send", fd, 'x');
    outcome("IPv6", connected(stream("ip6-server"), "ip6-server", 0));
    outcome("itself", connected(stream("client"), "client", 0));
    outcome("localhost", connected(stream("127.0.0.1"), "127.0.0.1", 0));
    meet(); // now somebody listens
    meet();
    outcome("the same socket again", connected(fd, "server", 0));
    send_byte("send", fd, 'r');
}

static void refused_later(void) {
    if (serving) return;
    int fd = stream("server"), epoll = epoll_create1(0);
    nonblocking(fd);
    watch(epoll, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, 5);
    heard("before connect", epoll, 0);
    outcome("connect", connected(fd, "server", 0));
    say("poll: %s", ready(fd, POLLIN | POLLOUT | POLLRDHUP, -1));
    heard("epoll", epoll, -1);
    last_error(fd);
    last_error(fd);
    say("poll afterwards: %s", ready(fd, POLLIN | POLLOUT | POLLRDHUP, 0));
    fd = stream("server");
    nonblocking(fd);
    outcome("connect", connected(fd, "server", 0));
    ready(fd, POLLOUT, -1);
    outcome("second", connected(fd, "server", 0));
    outcome("third", connected(fd, "server", 0));
    ready(fd, POLLOUT, -1);
    char byte;
    outcome("read", read(fd, &byte, 1));
    outcome("read again", read(fd, &byte, 1));
}

// An address of the network that no node has.
static struct address nobody(void) {
    struct address address = at("server", 0);
    address.in.sin_addr.s_addr = htonl((ntohl(address.in.sin_addr.s_addr) & 0xffff0000) | 0x7b7b);
    return address;
}

static void in_progress(void) {
    if (serving) return;
    struct address address = nobody();
    int fd = stream("server");
    nonblocking(fd);
    outcome("connect", connect(fd, &address.sa, address.length));
    outcome("second", connect(fd, &address.sa, address.length));
    struct address own = {.length = sizeof own.storage};
    outcome("getsockname", getsockname(fd, &own.sa, &own.length));
    say("own: %s", shown(&own.sa));
    outcome("getpeername", getpeername(fd, &address.sa, &address.length));
    say("poll: %s", ready(fd, POLLIN | POLLOUT, 0));
    last_error(fd);
    send_byte("send", fd, 'x');
    outcome("listen", listen(fd, 1));
    address = at("client", 1);
    outcome("bind", bind(fd, &address.sa, address.length));
}

static void unreachable(void) {
    if (serving) return;
    struct address address = nobody();
    outcome("an address that nobody has", connect(stream("server"), &address.sa, address.length));
    outcome("a network that is not there", connected(stream("192.0.2.1"), "192.0.2.1", 0));
    outcome("the same, IPv6", connected(stream("2001:db8::1"), "2001:db8::1", 0));
    outcome("a group", connected(stream("224.0.0.1"), "224.0.0.1", 0));
    outcome("everybody", connected(stream("255.255.255.255"), "255.255.255.255", 0));
    outcome("port 0", connected(stream("server"), "server", -1));
}

static void send_timeout(void) {
    if (serving) return;
    struct address address = nobody();
    int fd = stream("server");
    struct timeval limit = {.tv_usec = 100000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    outcome("connect", connect(fd, &address.sa, address.length));
    outcome("again", connect(fd, &address.sa, address.length));
}

static volatile sig_atomic_t ticks;
static void count(int signal) { (void)signal, ticks++; }
static void interrupted(void) {
    if (serving) return;
    struct address address = nobody();
    int fd = stream("server");
    tick(100, count, 0);
    outcome("connect", connect(fd, &address.sa, address.length));
    tick(0, NULL, 0);
    say("signals: %s", ticks ? "some" : "none");
    outcome("again", connect(fd, &address.sa, address.length));
}

static void listener_closed(void) {
    if (serving) {
        int listener = listening("server", 0);
        meet();
        meet(); // connected
        say("a connection waits: %s", ready(listener, POLLIN, -1));
        close(listener);
        meet();
        return;
    }
    meet();
    int fd = dial("server", 0);
    char byte;
    meet();
    meet(); // the listener is gone
    say("poll: %s", ready(fd, POLLIN | POLLRDHUP, -1));
    outcome("read", read(fd, &byte, 1));
    outcome("read again", read(fd, &byte, 1));
    send_byte("send", fd, 'x');
    outcome("a new one", connected(stream("server"), "server", 0));
}

// Connections that nobody accepts: as many as the backlog says, and one.
static void backlog(void) {
    if (serving) {
        int listener = bound("server", 0);
        outcome("listen", listen(listener, 1));
        meet();
        meet();
        for (int i = 0; i < 3; i++) opened("accept", accept(listener, NULL, NULL));
        meet();
        return;
    }
    meet();
    struct timeval limit = {.tv_usec = 300000};
    int fd = -1;
    for (int i = 0; i < 3; i++) {
        fd = stream("server");
        if (i == 2) setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit); // the others have all time
        outcome("connect", connected(fd, "server", 0));
    }
    meet(); // the server begins to accept
    say("the third: %s", ready(fd, POLLOUT, -1));
    last_error(fd);
    meet();
}

const struct scenario failing[] = {
    {"refused", refused},
    {"refused-later", refused_later},
    {"in-progress", in_progress},
    {"unreachable", unreachable},
    {"send-timeout", send_timeout},
    {"interrupted", interrupted},
    {"listener-closed", listener_closed},
    {"backlog", backlog},
    {0},
};
