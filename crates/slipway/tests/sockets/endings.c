// How a connection ends, and what is heard of that.
#include "observer.h"

static volatile sig_atomic_t broken_pipes;
static void count(int signal) { (void)signal, broken_pipes++; }

// Writes until that fails, as it must once the other side is gone.
static void write_to_failure(int fd) {
    struct sigaction action = {.sa_handler = count};
    sigaction(SIGPIPE, &action, NULL);
    while (write(fd, "x", 1) == 1) usleep(1000);
    say("write: %s in the end, SIGPIPE %d", error_name(errno), broken_pipes);
    int result = send(fd, "x", 1, MSG_NOSIGNAL);
    say("send with MSG_NOSIGNAL: %s, SIGPIPE %d", result < 0 ? error_name(errno) : "sent", broken_pipes);
}
// The client stops speaking and goes on listening; then the server stops too.
static void half_close(void) {
    int fd = paired("server");
    if (serving) {
        ready(fd, POLLRDHUP, -1);
        say("the client stopped: %s", ready(fd, ALL, 0));
        read_on(fd), read_on(fd), read_on(fd);
        meet(); // the client has tried what it may no longer do
        put(fd, "answer");
        shutdown(fd, SHUT_WR);
        say("both stopped: %s", ready(fd, ALL, 0));
        outcome("send after shutdown", send(fd, "x", 1, MSG_NOSIGNAL));
    } else {
        put(fd, "question");
        outcome("shutdown", shutdown(fd, SHUT_WR));
        outcome("shutdown again", shutdown(fd, SHUT_WR));
        outcome("send after shutdown", send(fd, "x", 1, MSG_NOSIGNAL));
        meet();
        ready(fd, POLLRDHUP, -1);
        say("both stopped: %s", ready(fd, ALL, 0));
        read_on(fd), read_on(fd);
    }
    meet();
}

// One who does not want to read; the other does not notice.
static void shut_reading(void) {
    int fd = paired("server");
    if (serving) {
        meet();
        if (outcome("send to one who has shut reading down", send(fd, "data", 4, MSG_NOSIGNAL)) < 0) die("send");
        meet();
        read_on(fd);
    } else {
        outcome("shutdown", shutdown(fd, SHUT_RD));
        say("poll: %s", ready(fd, ALL, 0));
        read_on(fd);
        meet();
        meet();
        wait_for_bytes(fd, 4);
        read_on(fd), read_on(fd);
        put(fd, "still here");
        outcome("shutdown of both ways", shutdown(fd, SHUT_RDWR));
        outcome("a third way", shutdown(fd, 3));
        outcome("of an unconnected one", shutdown(stream("server"), SHUT_WR));
    }
    meet();
}

static void after_close(void) {
    int fd = paired("server");
    if (serving) {
        close(fd);
        meet();
    } else {
        meet();
        say("poll: %s", ready(fd, POLLRDHUP, -1));
        read_on(fd), read_on(fd);
        write_to_failure(fd);
        read_on(fd);
    }
    meet();
}

// TCP takes what is written first after the peer has closed, and fails once the peer has said that nobody reads it.
static void first_write(void) {
    int fd = paired("server");
    if (serving) {
        close(fd);
        meet();
    } else {
        meet();
        ready(fd, POLLRDHUP, -1);
        outcome("the first write", send(fd, "a", 1, MSG_NOSIGNAL));
        ready(fd, POLLHUP, -1);
        outcome("the second write", send(fd, "b", 1, MSG_NOSIGNAL));
    }
    meet();
}

// What was said before the end arrives before the end.
static void last_words(void) {
    int fd = paired("server");
    if (serving) {
        put(fd, "last words");
        close(fd);
    } else {
        ready(fd, POLLRDHUP, -1);
        say("poll: %s", ready(fd, ALL, 0));
        read_on(fd), read_on(fd);
    }
    meet();
}

static void unread(void) {
    int fd = paired("server");
    if (serving) {
        wait_for_bytes(fd, 4);
        close(fd);
        meet();
    } else {
        put(fd, "lost");
        meet();
        ready(fd, POLLHUP, -1);
        say("poll: %s", ready(fd, ALL, 0));
        say("SO_ERROR: %s", error_name(number_of(fd, SOL_SOCKET, SO_ERROR)));
        read_on(fd);
        write_to_failure(fd);
    }
    meet();
}

static void linger_reset(void) {
    int fd = paired("server");
    if (serving) {
        struct linger hard = {.l_onoff = 1};
        outcome("SO_LINGER", setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard));
        close(fd);
        meet();
    } else {
        meet();
        ready(fd, POLLHUP, -1);
        say("poll: %s", ready(fd, ALL, 0));
        read_on(fd), read_on(fd);
        show_names("reset", fd);
        write_to_failure(fd);
    }
    meet();
}

static void reset_while_writing(void) {
    int fd = paired("server");
    if (serving) {
        struct linger hard = {.l_onoff = 1};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
        meet();
        close(fd);
        meet();
    } else {
        meet();
        meet();
        ready(fd, POLLHUP, -1);
        write_to_failure(fd);
        read_on(fd);
    }
    meet();
}

static void lingering(void) {
    int fd = paired("server");
    if (serving) {
        char text[8] = "";
        bring(fd, text, 5);
        say("read \"%s\"", text);
        read_on(fd);
        close(fd);
    } else {
        struct linger soft = {.l_onoff = 1, .l_linger = 10};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &soft, sizeof soft);
        put(fd, "words");
        outcome("close", close(fd));
    }
    meet();
}

static void take_and_stop(int listener) {
    int fd = taken(listener);
    put(fd, "up");
    bring(fd, (char[1]){0}, 1);
    raise(SIGSTOP);
}
static void take_leave_and_stop(int listener) {
    int fd = taken(listener);
    put(fd, "up");
    wait_for_bytes(fd, 1); // and does not read them
    raise(SIGSTOP);
}
static void peer_killed(void) {
    for (int round = 0; round < 2; round++) {
        if (serving) {
            int listener = listening("server", round);
            pid_t pid = child(round ? take_leave_and_stop : take_and_stop, listener);
            meet();
            waitpid(pid, NULL, WUNTRACED);
            kill(pid, SIGKILL);
            reap("the peer", pid);
            close(listener);
        } else {
            char text[4] = "";
            meet();
            int fd = dial("server", round);
            bring(fd, text, 2);
            put(fd, "?");
            ready(fd, POLLIN | POLLRDHUP, -1);
            say("poll: %s", ready(fd, ALL, 0));
            read_on(fd);
            write_to_failure(fd);
        }
        meet();
    }
}

// One thread waits in read when another ends the connection.
static void woken(void) {
    int fd = paired("server");
    if (serving) {
        pthread_t thread = asleep_in_thread(read_on, fd);
        shutdown(fd, SHUT_RDWR);
        pthread_join(thread, NULL);
        meet();
    } else {
        read_on(fd);
        meet();
    }
    meet();
}

const struct scenario endings[] = {
    {"half-close", half_close},
    {"shut-reading", shut_reading},
    {"after-close", after_close},
    {"first-write", first_write},
    {"last-words", last_words},
    {"unread", unread},
    {"linger-reset", linger_reset},
    {"reset-while-writing", reset_while_writing},
    {"lingering", lingering},
    {"peer-killed", peer_killed},
    {"woken", woken},
    {0},
};
