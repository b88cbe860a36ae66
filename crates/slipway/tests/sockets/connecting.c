// connect: what it answers, what is heard of it, and what comes after.
#include "observer.h"

static void blocking(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server");
    outcome("connect", connected(fd, "server", 0));
    last_error(fd);
    outcome("again", connected(fd, "server", 0));
    say("poll: %s", ready(fd, POLLIN | POLLOUT, 0));
    send_byte("send", fd, 'b');
}

static void by_poll(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server");
    nonblocking(fd);
    say("before: %s", ready(fd, POLLIN | POLLOUT, 0));
    outcome("connect", connected(fd, "server", 0));
    say("poll: %s", ready(fd, POLLIN | POLLOUT | POLLRDHUP, -1));
    last_error(fd);
    outcome("second", connected(fd, "server", 0));
    outcome("third", connected(fd, "server", 0));
    send_byte("send", fd, 'p');
}

static void by_select(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server");
    nonblocking(fd);
    outcome("connect", connected(fd, "server", 0));
    fd_set readable, writable, special;
    FD_ZERO(&readable);
    FD_SET(fd, &readable);
    special = writable = readable;
    outcome("select", select(fd + 1, &readable, &writable, &special, NULL));
    say("readable %d, writable %d, special %d", FD_ISSET(fd, &readable), FD_ISSET(fd, &writable), FD_ISSET(fd, &special));
    last_error(fd);
    send_byte("send", fd, 's');
}

// Registered before connect: what is heard has the token that was given, and goes on being heard.
static void by_epoll(unsigned trigger) {
    if (serving) {
        int fd = paired("server");
        meet();
        send_byte("send", fd, 'e');
        meet();
        close(fd);
        meet();
        return;
    }
    meet();
    int fd = stream("server"), epoll = epoll_create1(EPOLL_CLOEXEC);
    nonblocking(fd);
    watch(epoll, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | trigger, 0xfeed00c0ffee);
    heard("before connect", epoll, 0);
    outcome("connect", connected(fd, "server", 0));
    heard("connected", epoll, -1);
    heard("at once again", epoll, 0);
    meet();
    wait_for_bytes(fd, 1);
    heard("data", epoll, -1);
    meet();
    ready(fd, POLLRDHUP, -1);
    heard("the peer closed", epoll, -1);
    struct epoll_event other = {.events = EPOLLIN, .data.u64 = 7};
    outcome("register again", epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &other));
    outcome("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &other));
    heard("modified", epoll, 0);
    outcome("delete", epoll_ctl(epoll, EPOLL_CTL_DEL, fd, NULL));
    heard("deleted", epoll, 0);
    meet();
}
static void level(void) { by_epoll(0); }
static void edge(void) { by_epoll(EPOLLET); }

// Once, and then only when it is asked for again.
static void one_shot(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server"), epoll = epoll_create(1);
    nonblocking(fd);
    watch(epoll, fd, EPOLLOUT | EPOLLONESHOT, 1);
    heard("before connect", epoll, 0);
    outcome("connect", connected(fd, "server", 0));
    ready(fd, POLLOUT, -1);
    heard("used up", epoll, 0);
    struct epoll_event again = {.events = EPOLLOUT | EPOLLONESHOT, .data.u64 = 2};
    outcome("modify", epoll_ctl(epoll, EPOLL_CTL_MOD, fd, &again));
    heard("modified", epoll, -1);
}

// Two instances, one of them twice removed.
static void nested_epoll(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server"), inner = epoll_create1(0), outer = epoll_create1(0), other = epoll_create1(0);
    nonblocking(fd);
    watch(inner, fd, EPOLLOUT, 1);
    watch(outer, inner, EPOLLIN, 2);
    watch(other, fd, EPOLLOUT | EPOLLET, 3);
    heard("before connect", other, 0);
    outcome("connect", connected(fd, "server", 0));
    heard("outer", outer, -1);
    heard("inner", inner, -1);
    heard("other", other, -1);
}

// The same file under several numbers, each of them known to epoll.
static void duplicates(void) {
    if (serving) return serve(1);
    meet();
    int fd = stream("server"), twin = dup(fd), epoll = epoll_create1(0);
    watch(epoll, twin, EPOLLOUT | EPOLLET, 2);
    heard("before connect", epoll, 0);
    outcome("connect", connected(fd, "server", 0));
    heard("connected", epoll, -1);
    show_names("dup before", twin);
    int later = dup(fd);
    show_names("dup after", later);
    outcome("connect the duplicate", connected(twin, "server", 0));
    send_byte("first", fd, '1');
    send_byte("dup before", twin, '2');
    send_byte("dup after", later, '3');
    nonblocking(twin);
    say("O_NONBLOCK is shared: %s", fcntl(later, F_GETFL) & O_NONBLOCK ? "yes" : "no");
    close(fd), close(later);
    send_byte("the last", twin, '4');
}

static void after_fork(int fd) { show_names("the child's", fd), send_byte("the child", fd, 'c'); }
static void connected_in_child(int fd) { outcome("connect in the child", connected(fd, "server", 0)); }
static void shared_before(void) {
    if (serving) return serve(2);
    meet();
    int fd = stream("server"), gate[2];
    if (pipe(gate) < 0) die("make a pipe");
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        close(gate[1]);
        read(gate[0], &byte, 1); // until the parent has connected
        after_fork(fd);
        _exit(0);
    }
    outcome("connect in the parent", connected(fd, "server", 0));
    close(gate[1]);
    reap("the child", pid);
    send_byte("the parent", fd, 'p');
    close(fd);
    fd = stream("server");
    reap("the child", child(connected_in_child, fd));
    show_names("the parent's", fd);
    send_byte("the parent", fd, 'q');
}

// A server that stops, with a connection that it served, and starts anew.
static void restarted(void) {
    for (int round = 0; round < 3; round++) {
        int fd = paired("server");
        if (serving) close(fd); // first, so that TCP remembers it here
        meet();
        if (!serving) {
            char byte;
            outcome("read", read(fd, &byte, 1));
            close(fd);
            outcome("between", connected(stream("server"), "server", 0));
        }
        meet();
    }
}

static void restarted_unprepared(void) {
    if (serving) {
        struct address address = at("server", 0);
        int listener = stream("server");
        outcome("bind", bind(listener, &address.sa, address.length));
        outcome("listen", listen(listener, 1));
        meet();
        int fd = taken(listener);
        close(listener);
        outcome("bind while a connection lives", bind(stream("server"), &address.sa, address.length));
        close(fd);
    } else {
        meet();
        dial("server", 0);
    }
    meet();
}

static void disconnected(void) {
    if (serving) return serve(2);
    meet();
    int fd = stream("server");
    struct sockaddr nothing = {.sa_family = AF_UNSPEC};
    outcome("AF_UNSPEC, fresh", connect(fd, &nothing, sizeof nothing));
    outcome("connect", connected(fd, "server", 0));
    send_byte("send", fd, 'a');
    if (outcome("AF_UNSPEC", connect(fd, &nothing, sizeof nothing)) < 0) die("disconnect");
    show_names("disconnected", fd);
    send_byte("send", fd, 'x');
    outcome("AF_UNSPEC again", connect(fd, &nothing, sizeof nothing));
    outcome("connect again", connected(fd, "server", 0));
    show_names("connected again", fd);
    send_byte("send", fd, 'b');
}

static void on_connected(void) {
    if (serving) {
        int fd = paired("server");
        outcome("connect the accepted", connected(fd, "server", 1));
        outcome("listen on it", listen(fd, 1));
        opened("accept from it", accept(fd, NULL, NULL));
        meet();
        return;
    }
    int fd = paired("server");
    struct address own = at("client", 3);
    outcome("connect elsewhere", connected(fd, "server", 1));
    outcome("connect to nobody's port", connected(fd, "127.0.0.1", 1));
    outcome("listen", listen(fd, 1));
    outcome("bind", bind(fd, &own.sa, own.length));
    opened("accept", accept(fd, NULL, NULL));
    int listener = listening("client", 2);
    outcome("connect a listener", connected(listener, "server", 0));
    outcome("listen again", listen(listener, 2));
    meet();
}

// A signal may come at any moment of a call, which is then made again.
static void noted(int signal) { (void)signal; }
static void between_signals(void) {
    enum { MANY = 300 };
    if (serving) {
        int listener = listening("server", 0), whole = 0;
        meet();
        for (int i = 0; i < MANY; i++) {
            char byte = 0;
            int fd = taken(listener);
            whole += read(fd, &byte, 1) == 1;
            close(fd);
        }
        say("%d of %d came whole", whole, MANY);
        return;
    }
    int failed = 0;
    meet();
    tick(1, noted, SA_RESTART);
    for (int i = 0; i < MANY; i++) {
        int fd = stream("server");
        // A call that is made again may find that it had succeeded.
        bool done = connected(fd, "server", 0) == 0 || errno == EISCONN;
        if (!done || write(fd, "x", 1) != 1) failed++;
        close(fd);
    }
    tick(0, NULL, 0);
    say("%d of %d failed", failed, MANY);
}

const struct scenario connecting[] = {
    {"blocking", blocking},
    {"poll", by_poll},
    {"select", by_select},
    {"epoll-level", level},
    {"epoll-edge", edge},
    {"epoll-once", one_shot},
    {"epoll-nested", nested_epoll},
    {"duplicates", duplicates},
    {"shared-before", shared_before},
    {"restarted", restarted},
    {"restarted-unprepared", restarted_unprepared},
    {"between-signals", between_signals},
    {"disconnected", disconnected},
    {"on-connected", on_connected},
    {0},
};
