// A program that means harm, and says what came of it, one line each. Usage: hostile DEED SERVER [NUMBER]
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/net_tstamp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

enum { ROUNDS = 2000, MANY = 1000000, PEERPIDFD = 77, PASSRIGHTS = 83, NETNS_COOKIE = 71, PACING = 47 };
#define NOWHERE ((void *)16)

static const char *server;
static int number;

static void die(const char *what) {
    printf("cannot %s: %s\n", what, strerrorname_np(errno));
    exit(1);
}

static void tell(const char *what, long result) {
    printf("%s: %s\n", what, result < 0 ? strerrorname_np(errno) : "done");
}

static struct sockaddr_in at(const char *ip, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    if (inet_pton(AF_INET, ip, &address.sin_addr) == 1) return address;
    struct addrinfo hints = {.ai_family = AF_INET}, *found;
    if (getaddrinfo(ip, NULL, &hints, &found)) die("find the server");
    address.sin_addr = ((struct sockaddr_in *)found->ai_addr)->sin_addr;
    return address;
}

// A socket that was handed out: connected to the server, which has greeted and sends back what it gets.
static int handed_out(void) {
    struct sockaddr_in address = at(server, 5000);
    char word[5];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(fd, (void *)&address, sizeof address)) die("connect");
    if (recv(fd, word, 5, MSG_WAITALL) != 5) die("hear the greeting");
    return fd;
}

static void show_alive(int fd) {
    char byte = 0;
    struct pollfd readable = {fd, POLLIN, 0};
    bool alive = send(fd, "x", 1, MSG_NOSIGNAL) == 1 && poll(&readable, 1, 120000) == 1 && read(fd, &byte, 1) == 1;
    printf("it is %s\n", alive && byte == 'x' ? "what it was" : "no longer what it was");
}

static long send_descriptor(int to) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    memcpy(CMSG_DATA(&control.header), &(int){1}, sizeof(int));
    struct iovec data = {"x", 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    return sendmsg(to, &message, MSG_NOSIGNAL);
}

static long set(int fd, int level, int name, int value) {
    return setsockopt(fd, level, name, &value, sizeof value);
}

// By a filter that drops them all.
static long see_packets(int fd) {
    struct sock_filter drop = BPF_STMT(BPF_RET | BPF_K, 0);
    return setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &(struct sock_fprog){1, &drop}, sizeof(struct sock_fprog));
}

// What such a socket lets itself be used for.
static void powers(void) {
    int fd = handed_out();
    struct sockaddr_in elsewhere = at("127.0.0.1", 1), any = at("0.0.0.0", 0), nobody = {.sin_family = AF_UNSPEC};
    struct sockaddr_in6 any6 = {.sin6_family = AF_INET6}, elsewhere6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT, .sin6_port = 1};
    struct sockaddr_un path = {AF_UNIX, "/tmp/name"}, abstract = {AF_UNIX, "\0name"};
    tell("connect", connect(fd, (void *)&elsewhere, sizeof elsewhere));
    tell("connect by IPv6", connect(fd, (void *)&elsewhere6, sizeof elsewhere6));
    tell("connect to a path", connect(fd, (void *)&path, sizeof path));
    tell("disconnect", connect(fd, (void *)&nobody, sizeof nobody));
    tell("bind", bind(fd, (void *)&any, sizeof any));
    tell("bind to IPv6", bind(fd, (void *)&any6, sizeof any6));
    tell("bind to a path", bind(fd, (void *)&path, sizeof path));
    tell("bind to an abstract name", bind(fd, (void *)&abstract, sizeof abstract));
    tell("listen", listen(fd, 1));
    tell("accept", accept(fd, NULL, NULL));
    tell("let descriptors pass", set(fd, SOL_SOCKET, PASSRIGHTS, 1));
    tell("see its packets", see_packets(fd));
    tell("let credentials pass", set(fd, SOL_SOCKET, SO_PASSCRED, 1));
    tell("be of a device", setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, "lo", 3));
    tell("connect by sending", set(fd, IPPROTO_TCP, TCP_FASTOPEN_CONNECT, 1));
    tell("be repaired", set(fd, IPPROTO_TCP, TCP_REPAIR, 1));
    tell("have a protocol above", setsockopt(fd, IPPROTO_TCP, TCP_ULP, "tls", 3));
    tell("open its namespace", ioctl(fd, SIOCGSKNS));
    tell("open its peer's process", getsockopt(fd, SOL_SOCKET, PEERPIDFD, &number, &(socklen_t){sizeof number}));
    show_alive(fd);
}

// Ways around the calls that are heard.
static void detours(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0), pair = handed_out();
    struct sockaddr_in to = at(server, 5000);
    struct iovec data = {"x", 1};
    struct mmsghdr messages = {.msg_hdr = {.msg_name = &to, .msg_namelen = sizeof to, .msg_iov = &data, .msg_iovlen = 1}};
    tell("sendto", sendto(fd, "x", 1, MSG_FASTOPEN, (void *)&to, sizeof to));
    tell("sendmsg", sendmsg(fd, &messages.msg_hdr, MSG_FASTOPEN));
    tell("sendmmsg", sendmmsg(fd, &messages, 1, MSG_FASTOPEN));
    tell("io_uring", syscall(SYS_io_uring_setup, 1, (char[120]){0}));
    tell("userfaultfd", syscall(SYS_userfaultfd, 0));
    tell("a filter of its own that listens", syscall(SYS_seccomp, 1, 8, &(struct { uint16_t length; void *code; }){1, &(uint64_t){0x7fff000000000006}}));
    // The same processor's other calls: i386's by the old gate, x32's by a bit of the number.
    int on = 1;
    long result = -ENOSYS;
#ifdef __x86_64__
    int *low = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    *low = on;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(366), "b"(pair), "c"(SOL_SOCKET), "d"(PASSRIGHTS), "S"(low), "D"(4) : "r8", "r9", "r10", "r11", "memory");
#endif
    errno = -result, tell("setsockopt of i386", result);
    tell("setsockopt of x32", syscall(0x40000000 | 541, pair, SOL_SOCKET, PASSRIGHTS, &on, sizeof on));
    tell("connect of x32", syscall(0x40000000 | 42, pair, &to, sizeof to));
    show_alive(pair);
}

static void descriptor(void) {
    tell("a descriptor", send_descriptor(handed_out()));
}

static bool of_the_lab(struct sockaddr_in address) {
    uint32_t ip = ntohl(address.sin_addr.s_addr);
    return !ip || ip >> 16 == (10 << 8 | 64) || ip == INADDR_LOOPBACK;
}

static bool shows_strange_interfaces(int fd) {
    struct ifreq found[8];
    struct ifconf all = {.ifc_len = sizeof found, .ifc_req = found};
    if (ioctl(fd, SIOCGIFCONF, &all)) return false;
    for (int i = 0; i < all.ifc_len / (int)sizeof *found; i++)
        if (strcmp(found[i].ifr_name, "lo") && strcmp(found[i].ifr_name, "eth0")) return true;
    return false;
}

// Asks for the time of a packet by a message, or by an option. How much of the packet comes with it.
static int shown_of_packets(int fd, bool by_message) {
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SO_TIMESTAMPING}};
    int wanted = SOF_TIMESTAMPING_TX_SOFTWARE;
    memcpy(CMSG_DATA(&control.header), &wanted, sizeof wanted);
    struct iovec data = {"x", 1};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    if (!by_message) set(fd, SOL_SOCKET, SO_TIMESTAMPING, wanted | SOF_TIMESTAMPING_SOFTWARE);
    // One of unix sockets takes no such message.
    if (!by_message || sendmsg(fd, &message, MSG_NOSIGNAL) < 0) send(fd, "x", 1, MSG_NOSIGNAL);
    char packet[2048];
    read(fd, packet, 1);
    ssize_t length = recv(fd, packet, sizeof packet, MSG_ERRQUEUE | MSG_DONTWAIT);
    return length < 0 ? 0 : length;
}

// What it tells of the host.
static void looks(void) {
    int fd = handed_out(), native = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in own, peer;
    uint64_t cookie = 1;
    struct { int pid; unsigned uid, gid; } who;
    struct ifreq eth0 = {.ifr_name = "eth0"}, same = eth0;
    getsockname(fd, (void *)&own, &(socklen_t){sizeof own}), getpeername(fd, (void *)&peer, &(socklen_t){sizeof peer});
    printf("addresses: %s\n", of_the_lab(own) && of_the_lab(peer) ? "the lab's" : "others");
    getsockopt(fd, SOL_SOCKET, NETNS_COOKIE, &cookie, &(socklen_t){sizeof cookie});
    printf("cookie of its namespace: %ld\n", (long)cookie);
    getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &(socklen_t){sizeof who});
    printf("peer: process %d, user %d\n", who.pid, (int)who.uid);
    ioctl(fd, SIOCGIFADDR, &eth0), ioctl(native, SIOCGIFADDR, &same);
    printf("eth0: %s\n", memcmp(&eth0, &same, sizeof same) ? "another" : "the node's");
    printf("interfaces: %s\n", shows_strange_interfaces(fd) ? "others" : "the node's");
    char path[64], text[4096] = "";
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(path, text, sizeof text);
    printf("its file: %.8s%s\n", text, length > 8 && text[length - 1] == ']' ? "...]" : "");
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    FILE *info = fopen(path, "r");
    while (fgets(text, sizeof text, info)) *strchr(text, ':') = 0, printf("of its file: %s\n", text);
    printf("of its packets: %d and %d bytes\n", shown_of_packets(fd, true), shown_of_packets(fd, false));
    tell("open it anew", open((snprintf(path, sizeof path, "/proc/self/fd/%d", fd), path), O_RDWR));
}

// The router's process, by the number that it has outside.
static void processes(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", number);
    tell("signal", kill(number, SIGKILL));
    tell("trace", ptrace(PTRACE_SEIZE, number, 0, 0));
    tell("open memory", open(path, O_RDONLY));
    tell("read memory", syscall(SYS_process_vm_readv, number, &(struct iovec){path, 1}, 1, &(struct iovec){path, 1}, 1, 0));
    tell("open process", syscall(SYS_pidfd_open, number, 0));
    tell("take a descriptor", syscall(SYS_pidfd_getfd, 0, 0, 0));
}

// The routers' port, from within a node.
static void network(void) {
    static const char *const hosts[] = {"10.63.0.1", "10.63.0.2"};
    for (int i = 0; i < 2; i++) {
        struct sockaddr_in address = at(hosts[i], 6953);
        tell(hosts[i], connect(socket(AF_INET, SOCK_STREAM, 0), (void *)&address, sizeof address));
    }
}

// Lengths and places that lie, of every call that is heard. Only that all come back counts.
static void lengths(void) {
    int fds[] = {handed_out(), socket(AF_INET, SOCK_STREAM, 0)};
    const int sizes[] = {-1, 0, 1, 3, 4, 7, 15, 17, 128, 129, 0x7fffffff, (int)0x80000000};
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    void *const places[] = {NULL, NOWHERE, page, page + 4095, page + 4090, (void *)-1L, (void *)(1L << 47), lengths};
    enum { PLACES = sizeof places / sizeof *places, SIZES = sizeof sizes / sizeof *sizes };
    for (int f = 0; f < 2; f++)
        for (int p = 0; p < PLACES; p++)
            for (int s = 0; s < SIZES; s++) {
                // The length itself lies in a good place, and in each of the others.
                for (int q = 0; q <= PLACES; q++) {
                    int size = sizes[s];
                    void *length = q < PLACES ? places[q] : &size;
                    if (q < PLACES && s) continue;
                    syscall(SYS_getsockname, fds[f], places[p], length), syscall(SYS_getpeername, fds[f], places[p], length);
                    syscall(SYS_getsockopt, fds[f], IPPROTO_TCP, TCP_INFO, places[p], length);
                    syscall(SYS_getsockopt, fds[f], SOL_SOCKET, 28, places[p], length);
                    syscall(SYS_accept4, fds[f], places[p], length, SOCK_NONBLOCK);
                }
                syscall(SYS_setsockopt, fds[f], IPPROTO_TCP, TCP_NODELAY, places[p], sizes[s]);
                syscall(SYS_setsockopt, fds[f], SOL_SOCKET, SO_LINGER, places[p], sizes[s]);
                syscall(SYS_bind, fds[0], places[p], sizes[s]), syscall(SYS_connect, fds[0], places[p], sizes[s]);
                for (int request = 0x8910; request < 0x8a00; request += 3) ioctl(fds[f], request, places[p]);
                memset(page, 0x7f, 4096);
            }
    // A file that it may only read stays as it is.
    int file = open("/tmp/read-only", O_RDWR | O_CREAT | O_TRUNC, 0444);
    write(file, (char[4096]){0}, 4096);
    char *shared = mmap(NULL, 4096, PROT_READ, MAP_SHARED, open("/tmp/read-only", O_RDONLY), 0);
    tell("a name into a file that it may read", getsockname(fds[0], (void *)shared, &(socklen_t){16}));
    show_alive(fds[0]);
}

// A place that another thread changes all the time.
static struct sockaddr_in shown;
static int swapped[2], place;
static atomic_bool over;

static void *change_address(void *unused) {
    struct sockaddr_in all[] = {at(server, 5000), at("127.0.0.1", 1), at("10.63.0.1", 6953), {.sin_family = AF_UNSPEC}, {.sin_family = AF_INET6}};
    while (!over)
        for (int i = 0; i < 5; i++) memcpy((void *)&shown, &all[i], sizeof shown);
    return unused;
}

static void *change_descriptor(void *unused) {
    while (!over) dup2(swapped[0], place), dup2(swapped[1], place);
    return unused;
}

static void addresses(void) {
    pthread_t other;
    pthread_create(&other, NULL, change_address, NULL);
    int strange = 0, silent = 0;
    struct sockaddr_in to = at(server, 5000), peer;
    for (int i = 0; i < ROUNDS / 2; i++) {
        int fd = socket(AF_INET, SOCK_STREAM, 0);
        char word[5];
        if (!connect(fd, (void *)&shown, sizeof shown) && !getpeername(fd, (void *)&peer, &(socklen_t){sizeof peer})) {
            strange += peer.sin_addr.s_addr != to.sin_addr.s_addr;
            silent += recv(fd, word, 5, MSG_WAITALL) != 5;
        }
        close(fd);
    }
    over = true;
    pthread_join(other, NULL);
    printf("connected elsewhere: %d\nwithout a greeting: %d\n", strange, silent);
}

// Has `attempt` made again and again on a number that is now a socket that was handed out, now `native`, until it was made so
// often, or has gained so much.
static int race_for(int fd, int native, bool (*attempt)(void), int rounds, int enough) {
    pthread_t other;
    int gained = 0;
    swapped[0] = fd, swapped[1] = native, place = dup(native);
    over = false;
    pthread_create(&other, NULL, change_descriptor, NULL);
    for (int i = 0; i < rounds && gained < enough; i++) gained += attempt();
    over = true;
    pthread_join(other, NULL);
    close(place), close(native);
    return gained;
}

static int race(int fd, int native, bool (*attempt)(void)) { return race_for(fd, native, attempt, ROUNDS, ROUNDS); }

static bool binds(void) { return bind(place, (void *)&(struct sockaddr_un){AF_UNIX, "\0taken"}, 8), false; }
static bool lets_pass(void) { return set(place, SOL_SOCKET, PASSRIGHTS, 1), false; }
static bool paces(void) { return set(place, SOL_SOCKET, PACING, -1), false; }
static bool finds_interfaces(void) { return shows_strange_interfaces(place); }
static bool finds_name(void) {
    struct sockaddr_in own = {0};
    return !getsockname(place, (void *)&own, &(socklen_t){sizeof own}) && own.sin_family == AF_INET && !of_the_lab(own);
}
static bool finds_peer(void) {
    struct sockaddr_in peer = {0};
    return !getpeername(place, (void *)&peer, &(socklen_t){sizeof peer}) && peer.sin_family == AF_INET && !of_the_lab(peer);
}
static uint64_t cookie_of(int fd) {
    uint64_t cookie = 0;
    return getsockopt(fd, SOL_SOCKET, NETNS_COOKIE, &cookie, &(socklen_t){sizeof cookie}), cookie;
}
static bool finds_cookie(void) {
    uint64_t cookie = cookie_of(place);
    return cookie && cookie != cookie_of(swapped[1]);
}
// Its peer's, which for a socket of its own is itself.
static bool finds_process(void) {
    int process = -1, own = 1;
    char path[64], text[512] = "", *found;
    if (getsockopt(place, SOL_SOCKET, PEERPIDFD, &process, &(socklen_t){sizeof process})) return false;
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", process);
    int info = open(path, O_RDONLY);
    if (read(info, text, sizeof text - 1) > 0 && (found = strstr(text, "\nPid:"))) own = atoi(found + 5) == getpid();
    close(info), close(process);
    return !own;
}
static bool asks_for_packets(void) { return set(place, SOL_SOCKET, SO_TIMESTAMPING, SOF_TIMESTAMPING_SOFTWARE), false; }
static bool sees_packets(void) { return see_packets(place), false; }
static int unix_socket(void) {
    static int count;
    struct sockaddr_un name = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (bind(fd, (void *)&name, 4 + snprintf(name.sun_path + 1, 20, "n%d", count++))) die("bind a name");
    return fd;
}

static void descriptors(void) {
    int fd = handed_out();
    race(fd, socket(AF_UNIX, SOCK_STREAM, 0), binds);
    race(fd, unix_socket(), lets_pass);
    printf("interfaces of the host: %d\n", race(fd, socket(AF_INET, SOCK_STREAM, 0), finds_interfaces));
    printf("names of the host: %d\n", race(fd, socket(AF_INET, SOCK_STREAM, 0), finds_name));
    printf("peers of the host: %d\n", race(fd, socket(AF_INET, SOCK_STREAM, 0), finds_peer));
    printf("cookies of the host: %d\n", race(fd, socket(AF_INET, SOCK_STREAM, 0), finds_cookie));
    int pair[2];
    socketpair(AF_UNIX, SOCK_STREAM, 0, pair);
    printf("processes of the host: %d\n", race(fd, pair[0], finds_process));
    race(fd, socket(AF_INET, SOCK_STREAM, 0), sees_packets);
    race(fd, socket(AF_INET, SOCK_STREAM, 0), asks_for_packets);
    printf("of its packets: %d bytes\n", shown_of_packets(fd, true));
    // The server sends a descriptor when it is told to, and says whether it could.
    char word = 0;
    send(fd, "F", 1, 0), read(fd, &word, 1);
    printf("a descriptor from the server: %s\n", word == '-' ? "refused" : "sent");
    show_alive(fd);
}

static bool disconnects(void) {
    connect(place, (void *)&(struct sockaddr_in){.sin_family = AF_UNSPEC}, sizeof(struct sockaddr_in));
    return send(swapped[0], "x", 1, MSG_NOSIGNAL) < 0;
}
static bool becomes_a_listener(void) {
    int listens = 0;
    listen(place, 1);
    return !getsockopt(swapped[0], SOL_SOCKET, SO_ACCEPTCONN, &listens, &(socklen_t){sizeof listens}) && listens;
}

// By two races in turn a connection between hosts becomes a listener there.
static void listens(void) {
    int fd = handed_out();
    if (!race_for(fd, socket(AF_INET, SOCK_STREAM, 0), disconnects, MANY, 1)) return (void)printf("connected\n");
    if (!race_for(fd, unix_socket(), becomes_a_listener, MANY, 1)) return (void)printf("disconnected\n");
    printf("listens\n"), fflush(stdout);
    getchar();
    printf("who came: %d\n", poll(&(struct pollfd){fd, POLLIN, 0}, 1, 0));
}

// Under a rule with a rate.
static void rates(void) {
    int fd = handed_out(), rate[2];
    getsockopt(fd, SOL_SOCKET, PACING, &rate[0], &(socklen_t){4});
    tell("as fast as it can", set(fd, SOL_SOCKET, PACING, -1));
    race(fd, socket(AF_INET, SOCK_STREAM, 0), paces);
    getsockopt(fd, SOL_SOCKET, PACING, &rate[1], &(socklen_t){4});
    printf("another rate: %d\n", rate[0] != rate[1]);
    show_alive(fd);
}

// Takes every port that the router may want here, and accepts nobody.
static void ports(void) {
    struct sockaddr_in own = at(server, 5001);
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (bind(listener, (void *)&own, sizeof own) || listen(listener, 1000)) die("listen");
    for (int port = 61000; port < 65536; port++) {
        own.sin_port = htons(port);
        bind(socket(AF_INET, SOCK_STREAM, 0), (void *)&own, sizeof own);
    }
    printf("listens\n"), fflush(stdout);
    pause();
}

int main(int count, char **words) {
    static const struct {
        const char *name;
        void (*run)(void);
    } deeds[] = {
        {"powers", powers}, {"detours", detours}, {"descriptor", descriptor}, {"looks", looks}, {"processes", processes}, {"network", network},
        {"lengths", lengths}, {"addresses", addresses}, {"descriptors", descriptors}, {"rates", rates}, {"ports", ports}, {"listens", listens},
    };
    struct rlimit many = {8192, 8192};
    if (count < 3) return 2;
    setrlimit(RLIMIT_NOFILE, &many);
    server = words[2], number = count > 3 ? atoi(words[3]) : 0;
    for (unsigned i = 0; i < sizeof deeds / sizeof *deeds; i++)
        if (!strcmp(words[1], deeds[i].name)) return deeds[i].run(), 0;
    return 2;
}
