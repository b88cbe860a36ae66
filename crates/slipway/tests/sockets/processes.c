// Programs of every kind that share, pass on and lose their descriptors.
#include "observer.h"

enum { ACTIVATED = 3 }; // SD_LISTEN_FDS_START

static void connect_and_say(const char *who) {
    int fd = stream("server");
    outcome("connect", connected(fd, "server", 0));
    show_names(who, fd);
    send_byte(who, fd, *who);
    close(fd);
}

// What this program does when it is executed by itself.
int helper(int count, char **words) {
    if (strcmp(words[1], "--use") == 0 && count == 3) {
        int fd = atoi(words[2]);
        show_names("the executed program", fd);
        send_byte("the executed program", fd, 'e');
    } else if (strcmp(words[1], "--connect") == 0) {
        say("real user %d, effective user %d", (int)getuid(), (int)geteuid());
        connect_and_say("executed");
    } else if (strcmp(words[1], "--serve-standard-input") == 0) {
        int fd = opened("accept", accept(STDIN_FILENO, NULL, NULL));
        show_names("accepted", fd);
        send_byte("the executed program", fd, 'i');
    } else if (strcmp(words[1], "--serve-activated") == 0) {
        const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
        if (!pid || atoi(pid) != getpid() || !fds || atoi(fds) != 1) die("find what it was given");
        int fd = opened("accept", accept(ACTIVATED, NULL, NULL));
        send_byte("the service", fd, 's');
    }
    return 0;
}

static void as_nobody(void) {
    if (setgid(65534) < 0 || setuid(65534) < 0) die("become nobody");
}
static void run_setuid(int unused) {
    (void)unused;
    as_nobody();
    execl("/var/tmp/observer", "observer", "--connect", NULL);
    die("execute");
}
static void set_user_id(void) {
    if (serving) return serve(1);
    // On the node's own root: what is mounted into it changes no user.
    int from = open(self(), O_RDONLY), to = open("/var/tmp/observer", O_WRONLY | O_CREAT | O_TRUNC, 0755);
    while (sendfile(to, from, NULL, 1 << 20) > 0) {}
    if (fchmod(to, 04755) < 0) die("make a program");
    close(to);
    meet();
    reap("the program", child(run_setuid, 0));
    unlink("/var/tmp/observer");
}

static void unprivileged(int unused) {
    (void)unused;
    as_nobody();
    connect_and_say("nobody");
    struct address low = at("client", 0);
    low.in.sin_port = htons(80);
    outcome("bind port 80", bind(stream("client"), &low.sa, low.length));
    prctl(PR_SET_DUMPABLE, 0);
    connect_and_say("undumpable");
}
static void other_users(void) {
    if (serving) return serve(3);
    meet();
    struct address low = at("client", 0);
    low.in.sin_port = htons(80);
    outcome("root binds port 80", bind(stream("client"), &low.sa, low.length));
    reap("nobody", child(unprivileged, 0));
    prctl(PR_SET_DUMPABLE, 0);
    connect_and_say("root, undumpable");
}

static void execute_after_vfork(void) {
    if (serving) return serve(2);
    meet();
    pid_t pid = vfork();
    if (pid == 0) {
        execl(self(), self(), "--connect", NULL);
        _exit(1);
    }
    reap("the child", pid);
    // A child that connects while it still has its parent's memory.
    int fd = stream("server");
    struct address target = at("server", 0);
    pid = vfork();
    if (pid == 0) _exit(connect(fd, &target.sa, target.length) == 0 ? 0 : 1);
    reap("the child in its parent's memory", pid);
    show_names("the parent's", fd);
    send_byte("the parent", fd, 'v');
}

static int connect_shared(void *fd) { return connected(*(int *)fd, "server", 0) < 0; }
static void shared_descriptors(void) {
    if (serving) return serve(1);
    meet();
    static char stack[1 << 16] __attribute__((aligned(16)));
    int fd = stream("server");
    pid_t pid = clone(connect_shared, stack + sizeof stack, CLONE_FILES | SIGCHLD, &fd);
    if (pid < 0) die("clone");
    reap("the one who shares", pid);
    show_names("the other's", fd);
    send_byte("the other", fd, 's');
}

// A thread whose numbers mean other files than those of the rest of its process: it shares memory, but no descriptors.
static int alone(void *numbers) {
    int fd = ((int *)numbers)[0], done = ((int *)numbers)[1];
    if (dup2(stream("server"), fd) != fd) die("have a socket there");
    outcome("the thread connects", connected(fd, "server", 0));
    show_names("the thread's", fd);
    send_byte("the thread", fd, 't');
    return write(done, "d", 1) < 0;
}
static void own_descriptors(void) {
    if (serving) return serve(1);
    meet();
    static char stack[1 << 16] __attribute__((aligned(16)));
    int pipes[2], done[2];
    char byte = 0;
    if (pipe(pipes) < 0 || pipe(done) < 0) die("make a pipe");
    int numbers[] = {pipes[1], done[1]};
    if (clone(alone, stack + sizeof stack, CLONE_VM | CLONE_SIGHAND | CLONE_THREAD, numbers) < 0) die("clone");
    if (read(done[0], &byte, 1) != 1) die("wait for the thread");
    outcome("connect by the same number outside it", connected(pipes[1], "server", 0));
    if (write(pipes[1], "p", 1) != 1) die("write");
    outcome("the process still has a pipe there", read(pipes[0], &byte, 1));
}

enum { THREADS = 32 };
static void *connect_in_thread(void *number) {
    char id = *(char *)number, back = 0;
    int fd = dial("server", 0);
    struct address own = {.length = sizeof own.storage}, peer = {.length = sizeof peer.storage};
    if (write(fd, &id, 1) != 1 || read(fd, &back, 1) != 1) die("talk");
    if (getsockname(fd, &own.sa, &own.length) < 0 || getpeername(fd, &peer.sa, &peer.length) < 0) die("ask for names");
    if (back != id) die("be answered by one's own server");
    if (peer.in.sin_port != at("server", 0).in.sin_port || own.in.sin_addr.s_addr != at("client", 0).in.sin_addr.s_addr)
        die("have the right names");
    close(fd);
    return NULL;
}
static void in_parallel(void) {
    if (!serving) {
        pthread_t threads[THREADS];
        char numbers[THREADS];
        meet();
        for (int i = 0; i < THREADS; i++) numbers[i] = i, pthread_create(&threads[i], NULL, connect_in_thread, &numbers[i]);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        say("all have connected");
        return;
    }
    int listener = listening("server", 0);
    meet();
    bool seen[THREADS] = {0};
    int wrong = 0;
    for (int i = 0; i < THREADS; i++) {
        int fd = taken(listener);
        unsigned char id;
        bring(fd, (char *)&id, 1);
        if (id >= THREADS || seen[id]) wrong++;
        else seen[id] = true;
        if (write(fd, &id, 1) != 1) die("write");
        close(fd);
    }
    say("all came once: %s", wrong ? "no" : "yes");
}

static void hand_over_listener(int listener) {
    dup2(listener, STDIN_FILENO);
    execl(self(), self(), "--serve-standard-input", NULL);
    die("execute");
}
static void standard_input(void) {
    if (!serving) return be_told();
    int listener = listening("server", 0);
    pid_t pid = child(hand_over_listener, listener);
    close(listener);
    meet();
    reap("the program", pid);
}

// A service that is started when a client has come, as systemd does (sd_listen_fds(3)): it accepts from a listener that
// somebody else goes on holding.
static void activate(int listener) {
    char pid[16];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    if (listener != ACTIVATED && dup2(listener, ACTIVATED) != ACTIVATED) die("have the listener there");
    setenv("LISTEN_PID", pid, 1), setenv("LISTEN_FDS", "1", 1);
    execl(self(), self(), "--serve-activated", NULL);
    die("execute");
}
static void activated(void) {
    if (!serving) return be_told(), be_told();
    int listener = listening("server", 0);
    for (int i = 0; i < 2; i++) {
        meet();
        say("poll: %s", ready(listener, POLLIN, -1));
        reap("the service", child(activate, listener));
        say("poll afterwards: %s", ready(listener, POLLIN, 0));
    }
}

static void leave_a_grandchild(int fd) {
    pid_t parent = getpid();
    if (fork() == 0) {
        setsid();
        while (getppid() == parent) usleep(1000);
        connect_and_say("daemon");
        send_byte("daemon, by what it got", fd, 'd');
        _exit(0);
    }
}
static void orphaned(void) {
    if (serving) return serve(2);
    meet();
    int fd = dial("server", 0), gone[2];
    if (pipe(gone) < 0) die("make a pipe");
    reap("the child", child(leave_a_grandchild, fd));
    close(fd), close(gone[1]);
    if (read(gone[0], &(char){0}, 1) != 0) die("wait for the grandchild's end");
}

// No number is free: the socket that there is needs none.
static void no_descriptors(void) {
    if (serving) return serve(1);
    meet();
    struct address target = at("server", 0);
    int fd = stream("server");
    struct rlimit before, none;
    getrlimit(RLIMIT_NOFILE, &before);
    none = before;
    none.rlim_cur = fd + 1;
    setrlimit(RLIMIT_NOFILE, &none);
    outcome("connect", connect(fd, &target.sa, target.length));
    setrlimit(RLIMIT_NOFILE, &before);
    show_names("connected", fd);
    send_byte("send", fd, 'n');
}

static void connect_forever(int unused) {
    (void)unused;
    struct address target = at("server", 0);
    target.in.sin_addr.s_addr = htonl((ntohl(target.in.sin_addr.s_addr) & 0xffff0000) | 0x7b7b); // nobody has it
    connect(stream("server"), &target.sa, target.length);
}
static void accept_forever(int listener) {
    asleep_in_thread(connect_forever, 0);
    accept(listener, NULL, NULL);
}
// Killed while it waits in both calls; what it held is free at once.
static void killed(void) {
    if (!serving) {
        meet();
        outcome("connect to the killed one's", connected(stream("server"), "server", 0));
        meet();
        meet();
        outcome("connect to the next one's", connected(stream("server"), "server", 0));
        return;
    }
    int listener = listening("server", 0);
    pid_t pid = child(accept_forever, listener);
    close(listener);
    until_asleep(pid);
    kill(pid, SIGKILL);
    reap("the one who waited", pid);
    meet();
    meet();
    listener = listening("server", 0);
    meet();
    opened("accept", accept(listener, NULL, NULL));
}

const struct scenario processes[] = {
    {"set-user-id", set_user_id},
    {"other-users", other_users},
    {"vfork", execute_after_vfork},
    {"shared-descriptors", shared_descriptors},
    {"own-descriptors", own_descriptors},
    {"in-parallel", in_parallel},
    {"standard-input", standard_input},
    {"activated", activated},
    {"orphaned", orphaned},
    {"no-descriptors", no_descriptors},
    {"killed", killed},
    {0},
};
