// Usage: observer FOLDER server|client GROUP [SCENARIO]
// Runs a group's scenarios one after another, in step with the same program on the other side, which it meets in FOLDER.
#include "observer.h"

// A scenario that takes longer is stuck, and says so.
enum { PATIENCE_SECONDS = 120 };

static const struct {
    const char *name;
    const struct scenario *scenarios;
} groups[] = {
    {"addresses", addresses}, {"connecting", connecting}, {"failing", failing},   {"accepting", accepting},
    {"options", options},     {"flags", flags},           {"data", data},         {"endings", endings},
    {"refusals", refusals},   {"families", families},     {"processes", processes}, {"sweeps", sweeps},
};

bool serving;
static const char *scenario;
static int base_port;
static int to_peer, from_peer;

void say(const char *format, ...) {
    char line[1024];
    int kept = errno;
    int length = snprintf(line, sizeof line, "%s %s ", scenario, serving ? "server" : "client");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line + length, sizeof line - length - 1, format, arguments);
    va_end(arguments);
    strcat(line, "\n");
    if (write(STDOUT_FILENO, line, strlen(line)) < 0) _exit(1);
    errno = kept;
}

const char *error_name(int number) {
    static const struct {
        int number;
        const char *name;
    } names[] = {
#define NAME(error) {error, #error}
        NAME(E2BIG), NAME(EACCES), NAME(EADDRINUSE), NAME(EADDRNOTAVAIL), NAME(EAFNOSUPPORT), NAME(EAGAIN), NAME(EALREADY),
        NAME(EBADF), NAME(ECONNABORTED), NAME(ECONNREFUSED), NAME(ECONNRESET), NAME(EDESTADDRREQ), NAME(EFAULT),
        NAME(EHOSTUNREACH), NAME(EINPROGRESS), NAME(EINTR), NAME(EINVAL), NAME(EISCONN), NAME(EMFILE), NAME(EMSGSIZE),
        NAME(ENETUNREACH), NAME(ENODATA), NAME(ENOENT), NAME(ENOMEM), NAME(ENOPROTOOPT), NAME(ENOSYS), NAME(ENOTCONN),
        NAME(ENOTSOCK), NAME(ENXIO), NAME(EOPNOTSUPP), NAME(EPERM), NAME(EPIPE), NAME(EPROTONOSUPPORT), NAME(EPROTOTYPE),
        NAME(ERANGE), NAME(ESPIPE), NAME(ETIMEDOUT), NAME(ENODEV), NAME(EEXIST), NAME(ENOTTY), NAME(ENOTDIR), NAME(EDOM), NAME(EPROTO),
#undef NAME
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].number == number) return names[i].name;
    static char other[24];
    snprintf(other, sizeof other, "error %d", number);
    return number ? other : "0";
}

long outcome(const char *what, long result) {
    if (result < 0) say("%s: %s", what, error_name(errno));
    else say("%s: %ld", what, result);
    return result;
}

int opened(const char *what, int fd) {
    say("%s: %s", what, fd < 0 ? error_name(errno) : "a descriptor");
    return fd;
}

void die(const char *what) {
    say("cannot %s: %s", what, error_name(errno));
    _exit(1);
}

void meet(void) {
    char byte = '.';
    if (write(to_peer, &byte, 1) != 1) die("tell the other side");
    while (read(from_peer, &byte, 1) != 1)
        if (errno != EINTR) die("hear from the other side");
}

// A pipe between the nodes, made by whoever comes first.
static int pipe_of(const char *folder, const char *side) {
    char path[256];
    snprintf(path, sizeof path, "%s/%s.%s", folder, scenario, side);
    if (mkfifo(path, 0600) < 0 && errno != EEXIST) die("make a pipe");
    int fd = open(path, O_RDWR | O_CLOEXEC); // both ways, so that it waits for nobody
    if (fd < 0) die("open a pipe");
    return fd;
}

static int port_shown(in_port_t port, char *into, size_t size) {
    int number = ntohs(port);
    if (number >= base_port && number < base_port + 10) return snprintf(into, size, "P%d", number - base_port);
    return number < 1024 ? snprintf(into, size, "%d", number) : snprintf(into, size, "PORT");
}

// The first name that /etc/hosts has for an address, or the address for a name.
static bool look_up(bool by_name, const char *wanted, char *into, size_t size) {
    FILE *file = fopen("/etc/hosts", "re");
    char line[256], address[64], name[64];
    bool found = false;
    while (file && !found && fgets(line, sizeof line, file))
        if (sscanf(line, "%63s %63s", address, name) == 2 && strcmp(by_name ? name : address, wanted) == 0)
            found = snprintf(into, size, "%s", by_name ? address : name) > 0;
    if (file) fclose(file);
    return found;
}

const char *shown(const struct sockaddr *address) {
    static char ring[8][128];
    static int next;
    char *text = ring[next++ % 8], number[64], port[16], name[64];
    const struct sockaddr_in *in = (const void *)address;
    const struct sockaddr_in6 *in6 = (const void *)address;
    switch (address->sa_family) {
    case AF_INET:
        inet_ntop(AF_INET, &in->sin_addr, number, sizeof number);
        port_shown(in->sin_port, port, sizeof port);
        snprintf(text, 128, "%s:%s", look_up(false, number, name, sizeof name) ? name : number, port);
        break;
    case AF_INET6:
        port_shown(in6->sin6_port, port, sizeof port);
        if (IN6_IS_ADDR_V4MAPPED(&in6->sin6_addr)) {
            inet_ntop(AF_INET, &in6->sin6_addr.s6_addr[12], number, sizeof number);
            snprintf(text, 128, "[::ffff:%s]:%s", look_up(false, number, name, sizeof name) ? name : number, port);
        } else {
            inet_ntop(AF_INET6, &in6->sin6_addr, number, sizeof number);
            snprintf(text, 128, "[%s]:%s", look_up(false, number, name, sizeof name) ? name : number, port);
        }
        break;
    default: snprintf(text, 128, "family %d", address->sa_family);
    }
    return text;
}

void show_names(const char *what, int fd) {
    struct address own = {.length = sizeof own.storage}, peer = {.length = sizeof peer.storage};
    int own_failed = getsockname(fd, &own.sa, &own.length) < 0 ? errno : 0;
    int peer_failed = getpeername(fd, &peer.sa, &peer.length) < 0 ? errno : 0;
    say("%s: own %s (%u bytes), peer %s (%u bytes)", what, own_failed ? error_name(own_failed) : shown(&own.sa),
        own_failed ? 0 : own.length, peer_failed ? error_name(peer_failed) : shown(&peer.sa), peer_failed ? 0 : peer.length);
}

struct address at(const char *host, int port) {
    struct address address = {.length = sizeof(struct sockaddr_in)};
    char number[64];
    if (!look_up(true, host, number, sizeof number)) snprintf(number, sizeof number, "%s", host);
    if (inet_pton(AF_INET, number, &address.in.sin_addr) == 1) {
        address.in.sin_family = AF_INET;
        address.in.sin_port = htons(port < 0 ? 0 : base_port + port);
    } else if (inet_pton(AF_INET6, number, &address.in6.sin6_addr) == 1) {
        address.in6.sin6_family = AF_INET6;
        address.in6.sin6_port = htons(port < 0 ? 0 : base_port + port);
        address.length = sizeof(struct sockaddr_in6);
    } else die("find the address of a host");
    return address;
}

int stream(const char *host) {
    int fd = socket(at(host, 0).sa.sa_family, SOCK_STREAM, 0);
    if (fd < 0) die("make a socket");
    return fd;
}

int bound(const char *host, int port) {
    struct address address = at(host, port);
    int fd = stream(host), on = 1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(fd, &address.sa, address.length) < 0) die("bind");
    return fd;
}

int listening(const char *host, int port) {
    int fd = bound(host, port);
    if (listen(fd, 64) < 0) die("listen");
    return fd;
}

int connected(int fd, const char *host, int port) {
    struct address address = at(host, port);
    return connect(fd, &address.sa, address.length);
}

int dial(const char *host, int port) {
    int fd = stream(host);
    if (connected(fd, host, port) < 0) die("connect");
    return fd;
}

int taken(int listener) {
    int fd = accept(listener, NULL, NULL);
    if (fd < 0) die("accept");
    return fd;
}

int paired(const char *host) {
    if (!serving) {
        meet();
        return dial(host, 0);
    }
    int listener = listening(host, 0);
    meet();
    int fd = taken(listener);
    close(listener);
    return fd;
}

int number_of(int fd, int level, int option) {
    int value = 0;
    socklen_t length = sizeof value;
    return getsockopt(fd, level, option, &value, &length) < 0 ? -errno : value;
}

const char *events(unsigned found) {
    static const struct {
        unsigned bit;
        const char *name;
    } names[] = {{EPOLLIN, "IN "}, {EPOLLPRI, "PRI "}, {EPOLLOUT, "OUT "}, {EPOLLERR, "ERR "}, {EPOLLHUP, "HUP "},
                 {EPOLLRDHUP, "RDHUP "}};
    static char text[64];
    *text = 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (found & names[i].bit) strcat(text, names[i].name);
    if (!*text) return "nothing";
    text[strlen(text) - 1] = 0;
    return text;
}

const char *ready(int fd, short wanted, int milliseconds) {
    struct pollfd poll_for = {.fd = fd, .events = wanted};
    if (poll(&poll_for, 1, milliseconds) < 0) die("poll");
    return events(poll_for.revents);
}

int bring(int fd, char *into, int bytes) {
    for (int got, all = 0; all < bytes; all += got)
        if ((got = read(fd, into + all, bytes - all)) <= 0) die("read what was sent");
    return bytes;
}

void wait_for_bytes(int fd, int bytes) {
    for (int found = 0; found < bytes; usleep(1000))
        if (ioctl(fd, FIONREAD, &found) < 0) die("ask what can be read");
}

pid_t child(void (*run)(int), int argument) {
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
        run(argument);
        _exit(0);
    }
    return pid;
}

void reap(const char *what, pid_t pid) {
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR) die("wait for a child");
    if (WIFSIGNALED(status)) say("%s: killed by signal %d", what, WTERMSIG(status));
    else if (WEXITSTATUS(status)) say("%s: code %d", what, WEXITSTATUS(status));
}

void tick(int milliseconds, void (*handler)(int), int with) {
    // From a child, because the one timer of alarm() is the scenario's limit.
    static pid_t ticker;
    if (ticker) kill(ticker, SIGKILL), waitpid(ticker, NULL, 0);
    ticker = 0;
    if (milliseconds == 0) return;
    struct sigaction action = {.sa_handler = handler, .sa_flags = with};
    sigaction(SIGUSR1, &action, NULL);
    pid_t parent = getpid();
    ticker = fork();
    if (ticker < 0) die("fork");
    while (ticker == 0) {
        usleep(milliseconds * 1000);
        if (kill(parent, SIGUSR1) < 0) _exit(1);
    }
}

void until_asleep(pid_t id) {
    char path[32], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", id);
    while (state != 'S') {
        FILE *file = fopen(path, "re");
        if (!file || fscanf(file, "%*d %*s %c", &state) != 1) die("look at a process");
        fclose(file);
    }
}

struct waiting {
    void (*run)(int);
    int argument;
    _Atomic pid_t thread;
};
static void *waits(void *about) {
    struct waiting *it = about;
    it->thread = (pid_t)syscall(SYS_gettid);
    it->run(it->argument);
    return NULL;
}
pthread_t asleep_in_thread(void (*run)(int), int argument) {
    static struct waiting it; // one at a time
    it.run = run, it.argument = argument, it.thread = 0;
    pthread_t thread;
    pthread_create(&thread, NULL, waits, &it);
    while (!it.thread) sched_yield();
    until_asleep(it.thread);
    return thread;
}

void nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

void watch(int epoll, int fd, unsigned wanted, uint64_t token) {
    struct epoll_event event = {.events = wanted, .data.u64 = token};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) < 0) die("register with epoll");
}

void heard(const char *what, int epoll, int milliseconds) {
    struct epoll_event found[4];
    int count = epoll_wait(epoll, found, 4, milliseconds);
    if (count <= 0) say("%s: %s", what, count ? error_name(errno) : "no event");
    for (int i = 0; i < count; i++)
        say("%s: %s of %#llx", what, events(found[i].events), (unsigned long long)found[i].data.u64);
}

void last_error(int fd) { say("SO_ERROR: %s", error_name(number_of(fd, SOL_SOCKET, SO_ERROR))); }

void send_byte(const char *what, int fd, char byte) { outcome(what, send(fd, &byte, 1, MSG_NOSIGNAL)); }

void read_on(int fd) {
    char text[32] = "";
    int got = read(fd, text, sizeof text - 1);
    if (got < 0) say("read: %s", error_name(errno));
    else say("read: %d \"%s\"", got, text);
}

void put(int fd, const char *text) {
    if (send(fd, text, strlen(text), MSG_NOSIGNAL) != (ssize_t)strlen(text)) die("send");
}

void be_told(void) {
    meet();
    char byte = 0;
    int fd = dial("server", 0);
    outcome("read", read(fd, &byte, 1));
    say("it said %c", byte);
    close(fd);
}

void serve(int count) {
    int listener = listening("server", 0);
    meet();
    for (int i = 0; i < count; i++) {
        char text[64] = "";
        int fd = taken(listener), got, all = 0;
        while ((got = read(fd, text + all, sizeof text - 1 - all)) > 0) all += got;
        say("read \"%s\", then %s", text, got ? error_name(errno) : "the end");
        close(fd);
    }
}

static char own_path[256];
const char *self(void) { return own_path; }

// How a process ends, unless the other side gives up before it does: then this one would wait in vain.
static int end_of(pid_t pid, int other_gave_up) {
    struct pollfd ends[] = {{.fd = syscall(SYS_pidfd_open, pid, 0), .events = POLLIN}, {other_gave_up, POLLIN, 0}};
    if (ends[0].fd < 0 || poll(ends, 2, -1) < 0) die("wait for a process");
    if (!ends[0].revents) kill(pid, SIGKILL);
    close(ends[0].fd);
    int status;
    waitpid(pid, &status, 0);
    return status;
}

// One scenario in a process of its own, and nothing of it left behind.
static void run(const char *folder, const struct scenario *one, int number) {
    scenario = one->name;
    base_port = 20000 + 10 * number;
    to_peer = pipe_of(folder, serving ? "client" : "server");
    from_peer = pipe_of(folder, serving ? "server" : "client");
    int gave_up = pipe_of(folder, serving ? "server-gave-up" : "client-gave-up");
    int other_gave_up = pipe_of(folder, serving ? "client-gave-up" : "server-gave-up");
    alarm(2 * PATIENCE_SECONDS); // the other side may be stuck in the scenario before
    meet();
    alarm(0);
    pid_t pid = fork();
    if (pid < 0) die("fork");
    if (pid == 0) {
        // For what it executes of itself.
        char port[16];
        snprintf(port, sizeof port, "%d", base_port);
        setenv("OBSERVER_SCENARIO", scenario, 1);
        setenv("OBSERVER_SIDE", serving ? "server" : "client", 1);
        setenv("OBSERVER_PORT", port, 1);
        setpgid(0, 0);
        alarm(PATIENCE_SECONDS);
        one->run();
        exit(0);
    }
    int status = end_of(pid, other_gave_up);
    kill(-pid, SIGKILL);
    if (status && write(gave_up, "!", 1) != 1) die("tell the other side");
    close(to_peer), close(from_peer), close(gave_up), close(other_gave_up);
    if (WIFSIGNALED(status)) say("FAILED: killed by signal %d", WTERMSIG(status));
    else if (WEXITSTATUS(status)) say("FAILED: code %d", WEXITSTATUS(status));
}

int main(int count, char **words) {
    if (readlink("/proc/self/exe", own_path, sizeof own_path - 1) < 0) return 1;
    if (count > 1 && strncmp(words[1], "--", 2) == 0) {
        scenario = getenv("OBSERVER_SCENARIO");
        serving = strcmp(getenv("OBSERVER_SIDE"), "server") == 0;
        base_port = atoi(getenv("OBSERVER_PORT"));
        return helper(count, words);
    }
    if (count < 4) return fprintf(stderr, "usage: observer FOLDER server|client GROUP [SCENARIO]\n"), 2;
    serving = strcmp(words[2], "server") == 0;
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        if (strcmp(groups[i].name, words[3]) == 0) {
            for (int n = 0; groups[i].scenarios[n].name; n++)
                if (count < 5 || strcmp(words[4], groups[i].scenarios[n].name) == 0)
                    run(words[1], &groups[i].scenarios[n], n);
            return 0;
        }
    return fprintf(stderr, "there is no group %s\n", words[3]), 2;
}
