// accept: by whom, how often, and what ends a wait.
#include "observer.h"

// A greeting, so that a client knows that it was served.
static void greet(int fd) {
    if (write(fd, "!", 1) != 1) die("greet");
    close(fd);
}
static int greeted(int fd) {
    char byte = 0;
    int got = read(fd, &byte, 1);
    close(fd);
    return got == 1 && byte == '!';
}
// As many clients one after the other.
static void call(int count) {
    int served = 0;
    for (int i = 0; i < count; i++) served += greeted(dial("server", 0));
    say("%d served", served);
}

static void blocking(void) {
    if (!serving) {
        meet();
        return call(1);
    }
    int listener = listening("server", 0);
    meet();
    greet(opened("accept", accept(listener, NULL, NULL)));
}

static void by_poll(void) {
    if (!serving) {
        meet();
        int fd = dial("server", 0);
        say("served: %d", greeted(fd));
        return;
    }
    int listener = listening("server", 0);
    nonblocking(listener);
    opened("accept too early", accept(listener, NULL, NULL));
    say("poll: %s", ready(listener, POLLIN | POLLOUT, 0));
    meet();
    say("poll: %s", ready(listener, POLLIN | POLLOUT, -1));
    int fd = opened("accept", accept(listener, NULL, NULL));
    opened("accept too late", accept(listener, NULL, NULL));
    say("poll: %s", ready(listener, POLLIN | POLLOUT, 0));
    say("accepted has O_NONBLOCK: %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0);
    greet(fd);
}

static void by_epoll(void) {
    if (!serving) {
        meet();
        call(1);
        meet();
        return call(1);
    }
    int listener = listening("server", 0), level = epoll_create1(0), edge = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = 1}, found[2];
    epoll_ctl(level, EPOLL_CTL_ADD, listener, &event);
    event.events |= EPOLLET;
    epoll_ctl(edge, EPOLL_CTL_ADD, listener, &event);
    meet();
    for (int round = 0; round < 2; round++) {
        outcome("level", epoll_wait(level, found, 2, -1));
        outcome("level again", epoll_wait(level, found, 2, 0));
        outcome("edge", epoll_wait(edge, found, 2, -1));
        outcome("edge again", epoll_wait(edge, found, 2, 0));
        greet(taken(listener));
        outcome("level, accepted", epoll_wait(level, found, 2, 0));
        if (!round) meet();
    }
}

static void with_flags(void) {
    static const int wanted[] = {0, SOCK_NONBLOCK, SOCK_CLOEXEC, SOCK_NONBLOCK | SOCK_CLOEXEC};
    if (!serving) {
        meet();
        return call(4);
    }
    int listener = listening("server", 0);
    opened("accept4 with unknown flags", syscall(SYS_accept4, listener, NULL, NULL, 1)); // C libraries have their own view
    meet();
    for (int i = 0; i < 4; i++) {
        int fd = opened("accept4", accept4(listener, NULL, NULL, wanted[i]));
        say("O_NONBLOCK %d, FD_CLOEXEC %d, access mode %d", (fcntl(fd, F_GETFL) & O_NONBLOCK) != 0, fcntl(fd, F_GETFD),
            fcntl(fd, F_GETFL) & O_ACCMODE);
        greet(fd);
    }
}

enum { ACCEPTERS = 4, CALLS = 20 };

static void *accept_some(void *listener) {
    for (int i = 0; i < CALLS / ACCEPTERS; i++) greet(taken(*(int *)listener));
    return NULL;
}
static void by_threads(void) {
    if (!serving) {
        meet();
        return call(CALLS);
    }
    int listener = listening("server", 0);
    pthread_t threads[ACCEPTERS];
    for (int i = 0; i < ACCEPTERS; i++) pthread_create(&threads[i], NULL, accept_some, &listener);
    meet();
    for (int i = 0; i < ACCEPTERS; i++) pthread_join(threads[i], NULL);
    say("all are served");
}

static void accept_some_in_child(int listener) { accept_some(&listener); }
static void by_processes(void) {
    if (!serving) {
        meet();
        return call(CALLS);
    }
    int listener = listening("server", 0);
    pid_t pids[ACCEPTERS];
    for (int i = 0; i < ACCEPTERS; i++) pids[i] = child(accept_some_in_child, listener);
    close(listener);
    meet();
    for (int i = 0; i < ACCEPTERS; i++) reap("a child", pids[i]);
    say("all are served");
}

// Whoever wakes first.
static void accept_by_epoll(int epoll) {
    struct epoll_event found;
    for (;;)
        if (epoll_wait(epoll, &found, 1, -1) == 1) {
            int fd = accept(found.data.fd, NULL, NULL);
            if (fd >= 0) greet(fd);
        }
}
static void shared_epoll(void) {
    if (!serving) {
        meet();
        call(CALLS);
        meet();
        return;
    }
    int listener = listening("server", 0), epoll = epoll_create1(0);
    nonblocking(listener);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    pid_t pids[ACCEPTERS];
    for (int i = 0; i < ACCEPTERS; i++) pids[i] = child(accept_by_epoll, epoll);
    meet();
    meet();
    for (int i = 0; i < ACCEPTERS; i++) kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0);
}

// An instance for each, as servers with worker processes have them.
static void accept_exclusively(int listener) {
    int epoll = epoll_create1(0);
    struct epoll_event event = {.events = EPOLLIN | EPOLLEXCLUSIVE, .data.fd = listener};
    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &event);
    accept_by_epoll(epoll);
}
static void exclusive_epoll(void) {
    if (!serving) {
        meet();
        call(CALLS);
        meet();
        return;
    }
    int listener = listening("server", 0);
    nonblocking(listener);
    pid_t pids[ACCEPTERS];
    for (int i = 0; i < ACCEPTERS; i++) pids[i] = child(accept_exclusively, listener);
    meet();
    meet();
    for (int i = 0; i < ACCEPTERS; i++) kill(pids[i], SIGKILL), waitpid(pids[i], NULL, 0);
}

static void reuse_port(void) {
    if (!serving) {
        meet();
        return call(CALLS);
    }
    struct address address = at("server", 0);
    struct pollfd listeners[2];
    for (int i = 0; i < 2; i++) {
        int fd = stream("server"), on = 1;
        setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
        outcome("bind", bind(fd, &address.sa, address.length));
        outcome("listen", listen(fd, CALLS));
        listeners[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    outcome("bind without the option", bind(stream("server"), &address.sa, address.length));
    meet();
    for (int served = 0; served < CALLS;) {
        poll(listeners, 2, -1);
        for (int i = 0; i < 2; i++)
            if (listeners[i].revents & POLLIN) greet(taken(listeners[i].fd)), served++;
    }
}

static volatile sig_atomic_t ticks;
static void count(int signal) { (void)signal, ticks++; }
static void interrupted(void) {
    if (!serving) {
        meet();
        return call(1);
    }
    int listener = listening("server", 0);
    tick(50, count, 0);
    opened("accept", accept(listener, NULL, NULL));
    tick(0, NULL, 0);
    say("signals: %s", ticks ? "some" : "none");
    meet();
    greet(opened("accept again", accept(listener, NULL, NULL)));
}

static void count_and_tell(int signal) {
    (void)signal;
    if (++ticks == 3) meet(); // writes and reads a pipe, which a handler may
}
static void restarted(void) {
    if (!serving) {
        meet();
        return call(1);
    }
    int listener = listening("server", 0);
    tick(50, count_and_tell, SA_RESTART);
    greet(opened("accept", accept(listener, NULL, NULL)));
    tick(0, NULL, 0);
    say("signals: %s", ticks >= 3 ? "some" : "none");
}

static void receive_timeout(void) {
    if (!serving) {
        meet();
        return call(1);
    }
    int listener = listening("server", 0);
    struct timeval limit = {.tv_usec = 100000};
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    opened("accept", accept(listener, NULL, NULL));
    limit.tv_sec = 100;
    setsockopt(listener, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    meet();
    greet(opened("accept", accept(listener, NULL, NULL)));
}

static void accept_in_thread(int listener) {
    opened("accept", accept(listener, NULL, NULL));
}
static void shut_down(void) {
    if (!serving) {
        meet();
        outcome("connect", connected(stream("server"), "server", 0));
        meet();
        return;
    }
    int listener = listening("server", 0);
    pthread_t thread = asleep_in_thread(accept_in_thread, listener);
    int result = shutdown(listener, SHUT_RD);
    pthread_join(thread, NULL);
    outcome("shutdown", result);
    opened("accept again", accept(listener, NULL, NULL));
    say("poll: %s", ready(listener, POLLIN, 0));
    meet();
    meet();
    outcome("listen again", listen(listener, 4));
}

// What was said, and that the speaker has gone, is kept for whoever accepts.
static void late(void) {
    if (!serving) {
        meet();
        int fd = dial("server", 0);
        if (write(fd, "early", 5) != 5) die("write");
        close(fd);
        fd = dial("server", 0);
        struct linger hard = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        close(fd);
        meet();
        return;
    }
    int listener = listening("server", 0);
    meet();
    meet(); // both clients have gone
    for (int i = 0; i < 2; i++) {
        struct address peer = {.length = sizeof peer.storage};
        char text[16] = "";
        int fd = opened("accept", accept(listener, &peer.sa, &peer.length));
        say("accept's address: %s", shown(&peer.sa));
        if (i == 0) show_names("accepted", fd);
        outcome("read", read(fd, text, sizeof text - 1));
        say("it said \"%s\"", text);
        outcome("read on", read(fd, text, sizeof text));
    }
}

static void in_order(void) {
    if (!serving) {
        int fds[5];
        meet();
        for (int i = 0; i < 5; i++) fds[i] = dial("server", 0);
        for (int i = 4; i >= 0; i--)
            if (write(fds[i], &(char){'0' + i}, 1) != 1) die("write");
        meet();
        return;
    }
    int listener = listening("server", 0);
    char said[6] = "";
    meet();
    meet();
    for (int i = 0; i < 5; i++) bring(taken(listener), said + i, 1);
    say("accepted in the order %s", said);
}

static void accept_and_die(int listener) {
    int fd = accept(listener, NULL, NULL);
    if (fd >= 0) _exit(1);
}
static void accepter_killed(void) {
    if (!serving) {
        meet();
        return call(2);
    }
    int listener = listening("server", 0);
    pid_t pid = child(accept_and_die, listener);
    until_asleep(pid);
    kill(pid, SIGKILL);
    reap("the one who waited", pid);
    meet();
    for (int i = 0; i < 2; i++) greet(taken(listener));
}

// The connection stays where it is until there is room for it.
static void no_descriptors(void) {
    if (!serving) {
        meet();
        return call(1);
    }
    int listener = listening("server", 0);
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = listener + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    meet();
    ready(listener, POLLIN, -1);
    opened("accept without room", accept(listener, NULL, NULL));
    say("it still waits: %s", ready(listener, POLLIN, 0));
    setrlimit(RLIMIT_NOFILE, &before);
    greet(opened("accept with room", accept(listener, NULL, NULL)));
}

// Closed by one who holds it, the listener goes on for the other.
static void held_twice(void) {
    if (!serving) {
        meet();
        call(1);
        meet();
        outcome("connect", connected(stream("server"), "server", 0));
        return;
    }
    int listener = listening("server", 0), twin = dup(listener);
    close(listener);
    meet();
    greet(opened("accept on the duplicate", accept(twin, NULL, NULL)));
    close(twin);
    meet();
}

// Many at once, each with an answer of its own.
static void *call_once(void *served) {
    *(int *)served = greeted(dial("server", 0));
    return NULL;
}
static void many_at_once(void) {
    enum { MANY = 32 };
    if (!serving) {
        pthread_t threads[MANY];
        int served[MANY], all = 0;
        meet();
        for (int i = 0; i < MANY; i++) pthread_create(&threads[i], NULL, call_once, &served[i]);
        for (int i = 0; i < MANY; i++) pthread_join(threads[i], NULL), all += served[i];
        say("%d served", all);
        return;
    }
    int listener = listening("server", 0);
    meet();
    for (int i = 0; i < MANY; i++) greet(taken(listener));
}

const struct scenario accepting[] = {
    {"blocking", blocking},
    {"poll", by_poll},
    {"epoll", by_epoll},
    {"flags", with_flags},
    {"threads", by_threads},
    {"processes", by_processes},
    {"shared-epoll", shared_epoll},
    {"exclusive-epoll", exclusive_epoll},
    {"reuse-port", reuse_port},
    {"interrupted", interrupted},
    {"restarted", restarted},
    {"receive-timeout", receive_timeout},
    {"shut-down", shut_down},
    {"late", late},
    {"in-order", in_order},
    {"accepter-killed", accepter_killed},
    {"no-descriptors", no_descriptors},
    {"held-twice", held_twice},
    {"many-at-once", many_at_once},
    {0},
};
