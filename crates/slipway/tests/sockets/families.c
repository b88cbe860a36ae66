// Sockets that are no TCP streams: everything about them is as always.
#include "observer.h"

static int datagrams(const char *host) {
    int fd = socket(at(host, 0).sa.sa_family, SOCK_DGRAM, 0);
    if (fd < 0) die("make a socket");
    return fd;
}

static void udp(const char *server, const char *client) {
    int fd = datagrams(server);
    struct address own = at(serving ? server : client, serving ? 0 : -1), peer = {.length = sizeof peer.storage};
    char text[16] = "";
    show_names("fresh", fd);
    if (serving) {
        outcome("bind", bind(fd, &own.sa, own.length));
        show_names("bound", fd);
        meet();
        outcome("recvfrom", recvfrom(fd, text, sizeof text, 0, &peer.sa, &peer.length));
        say("\"%s\" of %s", text, shown(&peer.sa));
        outcome("connect", connect(fd, &peer.sa, peer.length));
        show_names("connected", fd);
        outcome("send", send(fd, "answer", 6, 0));
        outcome("listen", listen(fd, 1));
        opened("accept", accept(fd, NULL, NULL));
    } else {
        meet();
        outcome("connect", connected(fd, server, 0));
        show_names("connected", fd);
        outcome("connect again", connected(fd, server, 0));
        outcome("send", send(fd, "question", 8, 0));
        outcome("recv", recv(fd, text, sizeof text, 0));
        say("\"%s\"", text);
        struct sockaddr nothing = {.sa_family = AF_UNSPEC};
        outcome("AF_UNSPEC", connect(fd, &nothing, sizeof nothing));
        struct address now = {.length = sizeof now.storage};
        outcome("getpeername", getpeername(fd, &now.sa, &now.length));
        outcome("connect elsewhere", connected(fd, server, 1));
        outcome("send to where nobody listens", send(fd, "x", 1, 0));
        say("poll: %s", ready(fd, POLLIN, -1));
        outcome("recv", recv(fd, text, 1, 0));
        say("domain %d, type %d, protocol %d", number_of(fd, SOL_SOCKET, SO_DOMAIN), number_of(fd, SOL_SOCKET, SO_TYPE),
            number_of(fd, SOL_SOCKET, SO_PROTOCOL));
        say("TCP_NODELAY: %s", error_name(-number_of(fd, IPPROTO_TCP, TCP_NODELAY)));
    }
    meet();
}
static void udp4(void) { udp("server", "client"); }
static void udp6(void) { udp("ip6-server", "ip6-client"); }

static const char *path_shown(const struct sockaddr_un *path, socklen_t length) {
    static char ring[4][160];
    static int next;
    char *text = ring[next++ % 4];
    size_t bytes = length - offsetof(struct sockaddr_un, sun_path);
    if (length <= offsetof(struct sockaddr_un, sun_path)) return "no name";
    if (path->sun_path[0]) snprintf(text, 160, "%.*s (%u bytes)", (int)bytes, path->sun_path, length);
    else snprintf(text, 160, "@%.*s (%u bytes)", (int)bytes - 1, path->sun_path + 1, length);
    return text;
}
static void show_paths(const char *what, int fd) {
    struct sockaddr_un own, peer;
    socklen_t own_length = sizeof own, peer_length = sizeof peer;
    if (getsockname(fd, (void *)&own, &own_length) < 0) die("ask for a name");
    int failed = getpeername(fd, (void *)&peer, &peer_length) < 0 ? errno : 0;
    const char *shown_peer = failed ? error_name(failed) : path_shown(&peer, peer_length);
    say("%s: own %s, peer %s", what, path_shown(&own, own_length), shown_peer);
}

// A conversation between a parent and a child, each with the other's true credentials.
static void local(int type, struct sockaddr_un *path, socklen_t length) {
    int listener = socket(AF_UNIX, type, 0), gate[2];
    if (pipe(gate) < 0) die("make a pipe");
    show_paths("fresh", listener);
    outcome("bind", bind(listener, (void *)path, length));
    outcome("bind again", bind(listener, (void *)path, length));
    outcome("taken", bind(socket(AF_UNIX, type, 0), (void *)path, length));
    outcome("connect too early", connect(socket(AF_UNIX, type, 0), (void *)path, length));
    outcome("listen", listen(listener, 4));
    show_paths("listening", listener);
    pid_t pid = fork();
    if (pid == 0) {
        int fd = socket(AF_UNIX, type, 0);
        struct ucred peer;
        socklen_t room = sizeof peer;
        char byte;
        outcome("connect", connect(fd, (void *)path, length));
        outcome("connect again", connect(fd, (void *)path, length));
        show_paths("connected", fd);
        getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &room);
        say("SO_PEERCRED is the one who listens: %s, uid %d", peer.pid == getppid() ? "yes" : "no", (int)peer.uid);
        close(gate[1]);
        outcome("read", read(fd, &byte, 1));
        _exit(0);
    }
    char byte;
    close(gate[1]);
    if (read(gate[0], &byte, 1) != 0) die("wait for the child");
    struct sockaddr_un from;
    struct ucred peer;
    socklen_t room = sizeof from;
    int fd = opened("accept", accept4(listener, (void *)&from, &room, SOCK_CLOEXEC));
    say("accept's address: %s", path_shown(&from, room));
    show_paths("accepted", fd);
    room = sizeof peer;
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &room);
    say("SO_PEERCRED is the one who connected: %s, uid %d", peer.pid == pid ? "yes" : "no", (int)peer.uid);
    if (write(fd, "!", 1) != 1) die("write");
    reap("the child", pid);
    say("TCP_NODELAY: %s", error_name(-number_of(fd, IPPROTO_TCP, TCP_NODELAY)));
}

static struct sockaddr_un named(const char *path) {
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    strcpy(name.sun_path, path);
    return name;
}
static void local_path(void) {
    if (serving) return;
    struct sockaddr_un name = named("/tmp/observer.path");
    local(SOCK_STREAM, &name, sizeof name);
    unlink(name.sun_path);
    outcome("connect to what is removed", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&name, sizeof name));
}
static void local_abstract(void) {
    if (serving) return;
    struct sockaddr_un name = {.sun_family = AF_UNIX, .sun_path = "\0observer"};
    local(SOCK_STREAM, &name, offsetof(struct sockaddr_un, sun_path) + 9);
}
static void local_packets(void) {
    if (serving) return;
    struct sockaddr_un name = named("/tmp/observer.packets");
    local(SOCK_SEQPACKET, &name, offsetof(struct sockaddr_un, sun_path) + strlen(name.sun_path) + 1);
    unlink(name.sun_path);
}

// A path means what it means to the program: in its folder, with its rights, its umask and its root.
static void local_rights(int unused) {
    (void)unused;
    struct sockaddr_un forbidden = named("/etc/observer"), relative = named("observer.relative"), mine = named("/tmp/mine");
    if (setgid(65534) < 0 || setuid(65534) < 0) die("become nobody");
    outcome("nobody binds where it may not", bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&forbidden, sizeof forbidden));
    outcome("nobody connects to root's", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&relative, sizeof relative));
    outcome("nobody binds where it may", bind(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&mine, sizeof mine));
    struct stat owner;
    if (stat("/tmp/mine", &owner) < 0) die("look at the socket");
    say("it belongs to %d and has the permissions %o", (int)owner.st_uid, owner.st_mode & 07777);
}
static void local_meaning(void) {
    if (serving) return;
    if (mkdir("/tmp/observer.d", 0755) < 0 || chdir("/tmp/observer.d") < 0) die("make a folder");
    umask(0077);
    struct sockaddr_un relative = named("observer.relative"), rooted = named("/observer.rooted");
    int listener = socket(AF_UNIX, SOCK_STREAM, 0);
    outcome("bind a relative path", bind(listener, (void *)&relative, sizeof relative));
    outcome("listen", listen(listener, 4));
    struct stat found;
    outcome("it is in this folder", stat("/tmp/observer.d/observer.relative", &found));
    say("it has the permissions %o", found.st_mode & 07777);
    outcome("connect to a relative path", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&relative, sizeof relative));
    chmod("/tmp/observer.d", 0755);
    reap("nobody", child(local_rights, 0));
    outcome("chroot", chroot("/tmp/observer.d"));
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    outcome("bind in another root", bind(listener, (void *)&rooted, sizeof rooted));
    outcome("it is there", stat("observer.rooted", &found));
    outcome("listen", listen(listener, 4));
    outcome("connect in another root", connect(socket(AF_UNIX, SOCK_STREAM, 0), (void *)&rooted, sizeof rooted));
}

static void local_datagrams(void) {
    if (serving) return;
    struct sockaddr_un name = named("/tmp/observer.datagrams");
    int one = socket(AF_UNIX, SOCK_DGRAM, 0), other = socket(AF_UNIX, SOCK_DGRAM, 0);
    outcome("bind", bind(one, (void *)&name, sizeof name));
    outcome("connect", connect(other, (void *)&name, sizeof name));
    show_paths("connected", other);
    outcome("send", send(other, "hello", 5, 0));
    char text[8];
    struct sockaddr_un from;
    socklen_t length = sizeof from;
    outcome("recvfrom", recvfrom(one, text, sizeof text, 0, (void *)&from, &length));
    say("of %s", path_shown(&from, length));
    struct sockaddr nothing = {.sa_family = AF_UNSPEC};
    outcome("AF_UNSPEC", connect(other, &nothing, sizeof nothing));
    outcome("send", send(other, "hello", 5, 0));
    outcome("autobind", bind(other, &nothing, sizeof(sa_family_t)));
    outcome("autobind a path's family", bind(other, (void *)&name, sizeof(sa_family_t)));
    length = sizeof from;
    getsockname(other, (void *)&from, &length);
    say("the kernel's name has %u bytes", length);
}

static void local_pair(void) {
    if (serving) return;
    int pair[2];
    struct ucred peer;
    socklen_t length = sizeof peer;
    outcome("socketpair", socketpair(AF_UNIX, SOCK_STREAM, 0, pair));
    show_paths("one of a pair", pair[0]);
    getsockopt(pair[0], SOL_SOCKET, SO_PEERCRED, &peer, &length);
    say("SO_PEERCRED is this process: %s", peer.pid == getpid() ? "yes" : "no");
    struct sockaddr_un name = named("/tmp/observer.pair");
    outcome("connect", connect(pair[0], (void *)&name, sizeof name));
    outcome("bind", bind(pair[0], (void *)&name, sizeof name));
    show_paths("bound", pair[0]);
    show_paths("the other", pair[1]);
    outcome("listen", listen(pair[0], 1));
    unlink(name.sun_path);
}

// The number that the kernel gives a netlink socket is the process's.
struct netlink_address {
    unsigned short family, padding;
    uint32_t number, groups;
};
static void netlink(void) {
    if (serving) return;
    for (int by_bind = 0; by_bind < 2; by_bind++) {
        int fd = opened("socket", socket(AF_NETLINK, SOCK_RAW, 0));
        struct netlink_address address = {.family = AF_NETLINK}, own;
        socklen_t length = sizeof own;
        if (by_bind) outcome("bind", bind(fd, (void *)&address, sizeof address));
        else outcome("connect", connect(fd, (void *)&address, sizeof address));
        outcome("getsockname", getsockname(fd, (void *)&own, &length));
        say("%u bytes, the number is the process's: %s", length, own.number == (uint32_t)getpid() ? "yes" : "no");
        close(fd);
    }
    struct if_nameindex *found = if_nameindex();
    for (struct if_nameindex *one = found; one && one->if_index; one++) say("there is %s", one->if_name);
    opened("a packet socket", socket(17, SOCK_RAW, 0));
}

const struct scenario families[] = {
    {"udp", udp4},
    {"udp6", udp6},
    {"local-path", local_path},
    {"local-abstract", local_abstract},
    {"local-packets", local_packets},
    {"local-meaning", local_meaning},
    {"local-datagrams", local_datagrams},
    {"local-pair", local_pair},
    {"netlink", netlink},
    {0},
};
