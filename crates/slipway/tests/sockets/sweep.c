// Every option of the kernel's headers (include/uapi/linux, include/uapi/asm-generic/socket.h): read, set to what it is, to
// nothing, and to something, on sockets of every kind. Numbers stand for names that a C library may lack.
#include "observer.h"

// Its value: the same everywhere; a machine's or a moment's; a route's, where there is one by now; a connection's state and more.
enum shape { PLAIN, VARIES, ROUTED, STATE };
struct swept {
    const char *name;
    int level, number, on;
    enum shape shape;
};
// The last column is what a program sets to have it; some are kept from what would only harm the scenario itself.
static const struct swept swept[] = {
    {"SO_DEBUG", SOL_SOCKET, 1, 0, PLAIN}, // needs privileges
    {"SO_REUSEADDR", SOL_SOCKET, 2, 1, PLAIN},
    {"SO_TYPE", SOL_SOCKET, 3, 1, PLAIN},
    {"SO_ERROR", SOL_SOCKET, 4, 1, PLAIN},
    {"SO_DONTROUTE", SOL_SOCKET, 5, 1, PLAIN},
    {"SO_BROADCAST", SOL_SOCKET, 6, 1, PLAIN},
    {"SO_SNDBUF", SOL_SOCKET, 7, 65536, VARIES},
    {"SO_RCVBUF", SOL_SOCKET, 8, 65536, VARIES},
    {"SO_KEEPALIVE", SOL_SOCKET, 9, 1, PLAIN},
    {"SO_OOBINLINE", SOL_SOCKET, 10, 1, PLAIN},
    {"SO_NO_CHECK", SOL_SOCKET, 11, 1, PLAIN},
    {"SO_PRIORITY", SOL_SOCKET, 12, 1, PLAIN},
    {"SO_LINGER", SOL_SOCKET, 13, 1, PLAIN},
    {"SO_BSDCOMPAT", SOL_SOCKET, 14, 1, PLAIN},
    {"SO_REUSEPORT", SOL_SOCKET, 15, 1, PLAIN},
    {"SO_PASSCRED", SOL_SOCKET, 16, 1, PLAIN},
    {"SO_PEERCRED", SOL_SOCKET, 17, 1, PLAIN},
    {"SO_RCVLOWAT", SOL_SOCKET, 18, 1, PLAIN},
    {"SO_SNDLOWAT", SOL_SOCKET, 19, 1, PLAIN},
    {"SO_RCVTIMEO", SOL_SOCKET, 20, 1, PLAIN},
    {"SO_SNDTIMEO", SOL_SOCKET, 21, 1, PLAIN},
    {"SO_SECURITY_AUTHENTICATION", SOL_SOCKET, 22, 1, PLAIN},
    {"SO_BINDTODEVICE", SOL_SOCKET, 25, 0, PLAIN},
    {"SO_ATTACH_FILTER", SOL_SOCKET, 26, 1, PLAIN},
    {"SO_DETACH_FILTER", SOL_SOCKET, 27, 1, PLAIN},
    {"SO_PEERNAME", SOL_SOCKET, 28, 1, VARIES},
    {"SO_TIMESTAMP", SOL_SOCKET, 29, 1, PLAIN},
    {"SO_ACCEPTCONN", SOL_SOCKET, 30, 1, PLAIN},
    {"SO_PEERSEC", SOL_SOCKET, 31, 1, PLAIN},
    {"SO_PASSSEC", SOL_SOCKET, 34, 1, PLAIN},
    {"SO_TIMESTAMPNS", SOL_SOCKET, 35, 1, PLAIN},
    {"SO_MARK", SOL_SOCKET, 36, 1, PLAIN},
    {"SO_TIMESTAMPING", SOL_SOCKET, 37, 16, PLAIN},
    {"SO_PROTOCOL", SOL_SOCKET, 38, 1, PLAIN},
    {"SO_DOMAIN", SOL_SOCKET, 39, 1, PLAIN},
    {"SO_RXQ_OVFL", SOL_SOCKET, 40, 1, PLAIN},
    {"SO_WIFI_STATUS", SOL_SOCKET, 41, 1, PLAIN},
    {"SO_PEEK_OFF", SOL_SOCKET, 42, 1, PLAIN},
    {"SO_NOFCS", SOL_SOCKET, 43, 1, PLAIN},
    {"SO_LOCK_FILTER", SOL_SOCKET, 44, 0, PLAIN},
    {"SO_SELECT_ERR_QUEUE", SOL_SOCKET, 45, 1, PLAIN},
    {"SO_BUSY_POLL", SOL_SOCKET, 46, 1, PLAIN},
    {"SO_MAX_PACING_RATE", SOL_SOCKET, 47, 1000000000, PLAIN},
    {"SO_BPF_EXTENSIONS", SOL_SOCKET, 48, 1, PLAIN},
    {"SO_INCOMING_CPU", SOL_SOCKET, 49, 0, VARIES},
    {"SO_ATTACH_BPF", SOL_SOCKET, 50, 1, PLAIN},
    {"SO_ATTACH_REUSEPORT_CBPF", SOL_SOCKET, 51, 1, PLAIN},
    {"SO_ATTACH_REUSEPORT_EBPF", SOL_SOCKET, 52, 1, PLAIN},
    {"SO_CNX_ADVICE", SOL_SOCKET, 53, 1, PLAIN},
    {"SO_MEMINFO", SOL_SOCKET, 55, 1, VARIES},
    {"SO_INCOMING_NAPI_ID", SOL_SOCKET, 56, 1, VARIES},
    {"SO_COOKIE", SOL_SOCKET, 57, 1, VARIES},
    {"SO_PEERGROUPS", SOL_SOCKET, 59, 1, PLAIN},
    {"SO_ZEROCOPY", SOL_SOCKET, 60, 1, PLAIN},
    {"SO_TXTIME", SOL_SOCKET, 61, 1, PLAIN},
    {"SO_BINDTOIFINDEX", SOL_SOCKET, 62, 0, PLAIN},
    {"SO_TIMESTAMP_NEW", SOL_SOCKET, 63, 1, PLAIN},
    {"SO_TIMESTAMPNS_NEW", SOL_SOCKET, 64, 1, PLAIN},
    {"SO_TIMESTAMPING_NEW", SOL_SOCKET, 65, 16, PLAIN},
    {"SO_RCVTIMEO_NEW", SOL_SOCKET, 66, 1, PLAIN},
    {"SO_SNDTIMEO_NEW", SOL_SOCKET, 67, 1, PLAIN},
    {"SO_DETACH_REUSEPORT_BPF", SOL_SOCKET, 68, 1, PLAIN},
    {"SO_PREFER_BUSY_POLL", SOL_SOCKET, 69, 1, PLAIN},
    {"SO_BUSY_POLL_BUDGET", SOL_SOCKET, 70, 1, PLAIN},
    {"SO_NETNS_COOKIE", SOL_SOCKET, 71, 1, VARIES},
    {"SO_BUF_LOCK", SOL_SOCKET, 72, 1, PLAIN},
    {"SO_RESERVE_MEM", SOL_SOCKET, 73, 1, PLAIN},
    {"SO_TXREHASH", SOL_SOCKET, 74, 0, PLAIN},
    {"SO_RCVMARK", SOL_SOCKET, 75, 1, PLAIN},
    {"SO_PASSPIDFD", SOL_SOCKET, 76, 1, PLAIN},
    {"SO_PEERPIDFD", SOL_SOCKET, 77, 1, PLAIN},
    {"SO_DEVMEM_LINEAR", SOL_SOCKET, 78, 1, PLAIN},
    {"SO_DEVMEM_DMABUF", SOL_SOCKET, 79, 1, PLAIN},
    {"SO_DEVMEM_DONTNEED", SOL_SOCKET, 80, 1, PLAIN},
    {"SO_RCVPRIORITY", SOL_SOCKET, 82, 1, PLAIN},
    {"SO_PASSRIGHTS", SOL_SOCKET, 83, 1, PLAIN},
    {"IP_TOS", IPPROTO_IP, 1, 8, PLAIN},
    {"IP_TTL", IPPROTO_IP, 2, 33, PLAIN},
    {"IP_HDRINCL", IPPROTO_IP, 3, 1, PLAIN},
    {"IP_OPTIONS", IPPROTO_IP, 4, 1, PLAIN}, // the byte 1 is an option that does nothing
    {"IP_ROUTER_ALERT", IPPROTO_IP, 5, 1, PLAIN},
    {"IP_RECVOPTS", IPPROTO_IP, 6, 1, PLAIN},
    {"IP_RETOPTS", IPPROTO_IP, 7, 1, PLAIN},
    {"IP_PKTINFO", IPPROTO_IP, 8, 1, PLAIN},
    {"IP_PKTOPTIONS", IPPROTO_IP, 9, 1, PLAIN},
    {"IP_MTU_DISCOVER", IPPROTO_IP, 10, 2, PLAIN},
    {"IP_RECVERR", IPPROTO_IP, 11, 1, PLAIN},
    {"IP_RECVTTL", IPPROTO_IP, 12, 1, PLAIN},
    {"IP_RECVTOS", IPPROTO_IP, 13, 1, PLAIN},
    {"IP_MTU", IPPROTO_IP, 14, 1, ROUTED},
    {"IP_FREEBIND", IPPROTO_IP, 15, 1, PLAIN},
    {"IP_IPSEC_POLICY", IPPROTO_IP, 16, 1, PLAIN},
    {"IP_XFRM_POLICY", IPPROTO_IP, 17, 1, PLAIN},
    {"IP_PASSSEC", IPPROTO_IP, 18, 1, PLAIN},
    {"IP_TRANSPARENT", IPPROTO_IP, 19, 1, PLAIN},
    {"IP_ORIGDSTADDR", IPPROTO_IP, 20, 1, PLAIN},
    {"IP_MINTTL", IPPROTO_IP, 21, 1, PLAIN},
    {"IP_NODEFRAG", IPPROTO_IP, 22, 1, PLAIN},
    {"IP_CHECKSUM", IPPROTO_IP, 23, 1, PLAIN},
    {"IP_BIND_ADDRESS_NO_PORT", IPPROTO_IP, 24, 1, PLAIN},
    {"IP_RECVFRAGSIZE", IPPROTO_IP, 25, 1, PLAIN},
    {"IP_RECVERR_RFC4884", IPPROTO_IP, 26, 1, PLAIN},
    {"IP_MULTICAST_IF", IPPROTO_IP, 32, 0, PLAIN},
    {"IP_MULTICAST_TTL", IPPROTO_IP, 33, 2, PLAIN},
    {"IP_MULTICAST_LOOP", IPPROTO_IP, 34, 1, PLAIN},
    {"IP_ADD_MEMBERSHIP", IPPROTO_IP, 35, 1, PLAIN},
    {"IP_DROP_MEMBERSHIP", IPPROTO_IP, 36, 1, PLAIN},
    {"IP_UNBLOCK_SOURCE", IPPROTO_IP, 37, 1, PLAIN},
    {"IP_BLOCK_SOURCE", IPPROTO_IP, 38, 1, PLAIN},
    {"IP_ADD_SOURCE_MEMBERSHIP", IPPROTO_IP, 39, 1, PLAIN},
    {"IP_DROP_SOURCE_MEMBERSHIP", IPPROTO_IP, 40, 1, PLAIN},
    {"IP_MSFILTER", IPPROTO_IP, 41, 1, PLAIN},
    {"MCAST_JOIN_GROUP", IPPROTO_IP, 42, 1, PLAIN},
    {"MCAST_LEAVE_GROUP", IPPROTO_IP, 45, 1, PLAIN},
    {"MCAST_MSFILTER", IPPROTO_IP, 48, 1, PLAIN},
    {"IP_MULTICAST_ALL", IPPROTO_IP, 49, 1, PLAIN},
    {"IP_UNICAST_IF", IPPROTO_IP, 50, 0, PLAIN},
    {"IP_LOCAL_PORT_RANGE", IPPROTO_IP, 51, 0, PLAIN},
    {"IP_PROTOCOL", IPPROTO_IP, 52, 1, VARIES},
    {"IPT_SO_GET_INFO", IPPROTO_IP, 64, 1, PLAIN},
    {"SO_ORIGINAL_DST", IPPROTO_IP, 80, 1, PLAIN},
    {"IPV6_ADDRFORM", IPPROTO_IPV6, 1, 1, PLAIN},
    {"IPV6_2292PKTINFO", IPPROTO_IPV6, 2, 1, PLAIN},
    {"IPV6_2292HOPOPTS", IPPROTO_IPV6, 3, 1, PLAIN},
    {"IPV6_2292DSTOPTS", IPPROTO_IPV6, 4, 1, PLAIN},
    {"IPV6_2292RTHDR", IPPROTO_IPV6, 5, 1, PLAIN},
    {"IPV6_2292PKTOPTIONS", IPPROTO_IPV6, 6, 1, PLAIN},
    {"IPV6_CHECKSUM", IPPROTO_IPV6, 7, 1, PLAIN},
    {"IPV6_2292HOPLIMIT", IPPROTO_IPV6, 8, 1, PLAIN},
    {"IPV6_NEXTHOP", IPPROTO_IPV6, 9, 1, PLAIN},
    {"IPV6_AUTHHDR", IPPROTO_IPV6, 10, 1, PLAIN},
    {"IPV6_FLOWINFO", IPPROTO_IPV6, 11, 1, PLAIN},
    {"IPV6_UNICAST_HOPS", IPPROTO_IPV6, 16, 33, PLAIN},
    {"IPV6_MULTICAST_IF", IPPROTO_IPV6, 17, 0, PLAIN},
    {"IPV6_MULTICAST_HOPS", IPPROTO_IPV6, 18, 2, PLAIN},
    {"IPV6_MULTICAST_LOOP", IPPROTO_IPV6, 19, 1, PLAIN},
    {"IPV6_JOIN_GROUP", IPPROTO_IPV6, 20, 1, PLAIN},
    {"IPV6_LEAVE_GROUP", IPPROTO_IPV6, 21, 1, PLAIN},
    {"IPV6_ROUTER_ALERT", IPPROTO_IPV6, 22, 1, PLAIN},
    {"IPV6_MTU_DISCOVER", IPPROTO_IPV6, 23, 2, PLAIN},
    {"IPV6_MTU", IPPROTO_IPV6, 24, 1400, ROUTED},
    {"IPV6_RECVERR", IPPROTO_IPV6, 25, 1, PLAIN},
    {"IPV6_V6ONLY", IPPROTO_IPV6, 26, 0, PLAIN}, // has no connection by a mapped address
    {"IPV6_JOIN_ANYCAST", IPPROTO_IPV6, 27, 1, PLAIN},
    {"IPV6_LEAVE_ANYCAST", IPPROTO_IPV6, 28, 1, PLAIN},
    {"IPV6_MULTICAST_ALL", IPPROTO_IPV6, 29, 1, PLAIN},
    {"IPV6_ROUTER_ALERT_ISOLATE", IPPROTO_IPV6, 30, 1, PLAIN},
    {"IPV6_RECVERR_RFC4884", IPPROTO_IPV6, 31, 1, PLAIN},
    {"IPV6_FLOWLABEL_MGR", IPPROTO_IPV6, 32, 1, PLAIN},
    {"IPV6_FLOWINFO_SEND", IPPROTO_IPV6, 33, 1, PLAIN},
    {"IPV6_IPSEC_POLICY", IPPROTO_IPV6, 34, 1, PLAIN},
    {"IPV6_XFRM_POLICY", IPPROTO_IPV6, 35, 1, PLAIN},
    {"IPV6_HDRINCL", IPPROTO_IPV6, 36, 1, PLAIN},
    {"MCAST_JOIN_GROUP6", IPPROTO_IPV6, 42, 1, PLAIN},
    {"MCAST_MSFILTER6", IPPROTO_IPV6, 48, 1, PLAIN},
    {"IPV6_RECVPKTINFO", IPPROTO_IPV6, 49, 1, PLAIN},
    {"IPV6_PKTINFO", IPPROTO_IPV6, 50, 1, PLAIN},
    {"IPV6_RECVHOPLIMIT", IPPROTO_IPV6, 51, 1, PLAIN},
    {"IPV6_HOPLIMIT", IPPROTO_IPV6, 52, 1, PLAIN},
    {"IPV6_RECVHOPOPTS", IPPROTO_IPV6, 53, 1, PLAIN},
    {"IPV6_HOPOPTS", IPPROTO_IPV6, 54, 1, PLAIN},
    {"IPV6_RTHDRDSTOPTS", IPPROTO_IPV6, 55, 1, PLAIN},
    {"IPV6_RECVRTHDR", IPPROTO_IPV6, 56, 1, PLAIN},
    {"IPV6_RTHDR", IPPROTO_IPV6, 57, 1, PLAIN},
    {"IPV6_RECVDSTOPTS", IPPROTO_IPV6, 58, 1, PLAIN},
    {"IPV6_DSTOPTS", IPPROTO_IPV6, 59, 1, PLAIN},
    {"IPV6_RECVPATHMTU", IPPROTO_IPV6, 60, 1, PLAIN},
    {"IPV6_PATHMTU", IPPROTO_IPV6, 61, 1, ROUTED},
    {"IPV6_DONTFRAG", IPPROTO_IPV6, 62, 1, PLAIN},
    {"IP6T_SO_GET_INFO", IPPROTO_IPV6, 64, 1, PLAIN},
    {"IPV6_RECVTCLASS", IPPROTO_IPV6, 66, 1, PLAIN},
    {"IPV6_TCLASS", IPPROTO_IPV6, 67, 8, PLAIN},
    {"IPV6_AUTOFLOWLABEL", IPPROTO_IPV6, 70, 1, PLAIN},
    {"IPV6_ADDR_PREFERENCES", IPPROTO_IPV6, 72, 1, PLAIN},
    {"IPV6_MINHOPCOUNT", IPPROTO_IPV6, 73, 1, PLAIN},
    {"IPV6_ORIGDSTADDR", IPPROTO_IPV6, 74, 1, PLAIN},
    {"IPV6_TRANSPARENT", IPPROTO_IPV6, 75, 1, PLAIN},
    {"IPV6_UNICAST_IF", IPPROTO_IPV6, 76, 0, PLAIN},
    {"IPV6_RECVFRAGSIZE", IPPROTO_IPV6, 77, 1, PLAIN},
    {"IPV6_FREEBIND", IPPROTO_IPV6, 78, 1, PLAIN},
    {"IP6T_SO_ORIGINAL_DST", IPPROTO_IPV6, 80, 1, PLAIN},
    {"TCP_NODELAY", IPPROTO_TCP, 1, 1, PLAIN},
    {"TCP_MAXSEG", IPPROTO_TCP, 2, 1000, ROUTED},
    {"TCP_CORK", IPPROTO_TCP, 3, 1, PLAIN},
    {"TCP_KEEPIDLE", IPPROTO_TCP, 4, 70, PLAIN},
    {"TCP_KEEPINTVL", IPPROTO_TCP, 5, 70, PLAIN},
    {"TCP_KEEPCNT", IPPROTO_TCP, 6, 7, PLAIN},
    {"TCP_SYNCNT", IPPROTO_TCP, 7, 3, PLAIN},
    {"TCP_LINGER2", IPPROTO_TCP, 8, 9, PLAIN},
    {"TCP_DEFER_ACCEPT", IPPROTO_TCP, 9, 1, PLAIN},
    {"TCP_WINDOW_CLAMP", IPPROTO_TCP, 10, 65536, VARIES},
    {"TCP_INFO", IPPROTO_TCP, 11, 1, STATE},
    {"TCP_QUICKACK", IPPROTO_TCP, 12, 1, VARIES},
    {"TCP_CONGESTION", IPPROTO_TCP, 13, 1, VARIES},
    {"TCP_MD5SIG", IPPROTO_TCP, 14, 1, PLAIN},
    {"TCP_THIN_LINEAR_TIMEOUTS", IPPROTO_TCP, 16, 1, PLAIN},
    {"TCP_THIN_DUPACK", IPPROTO_TCP, 17, 1, PLAIN},
    {"TCP_USER_TIMEOUT", IPPROTO_TCP, 18, 9000, PLAIN},
    {"TCP_REPAIR", IPPROTO_TCP, 19, 1, PLAIN},
    {"TCP_REPAIR_QUEUE", IPPROTO_TCP, 20, 1, PLAIN},
    {"TCP_QUEUE_SEQ", IPPROTO_TCP, 21, 1, PLAIN},
    {"TCP_REPAIR_OPTIONS", IPPROTO_TCP, 22, 1, PLAIN},
    {"TCP_FASTOPEN", IPPROTO_TCP, 23, 1, PLAIN},
    {"TCP_TIMESTAMP", IPPROTO_TCP, 24, 1, VARIES},
    {"TCP_NOTSENT_LOWAT", IPPROTO_TCP, 25, 16384, PLAIN},
    {"TCP_CC_INFO", IPPROTO_TCP, 26, 1, VARIES},
    {"TCP_SAVE_SYN", IPPROTO_TCP, 27, 1, PLAIN},
    {"TCP_SAVED_SYN", IPPROTO_TCP, 28, 1, VARIES},
    {"TCP_REPAIR_WINDOW", IPPROTO_TCP, 29, 1, PLAIN},
    {"TCP_FASTOPEN_CONNECT", IPPROTO_TCP, 30, 0, PLAIN}, // connects by its first write, which differs (fast.md)
    {"TCP_ULP", IPPROTO_TCP, 31, 1, PLAIN},
    {"TCP_MD5SIG_EXT", IPPROTO_TCP, 32, 1, PLAIN},
    {"TCP_FASTOPEN_KEY", IPPROTO_TCP, 33, 1, PLAIN},
    {"TCP_FASTOPEN_NO_COOKIE", IPPROTO_TCP, 34, 1, PLAIN},
    {"TCP_ZEROCOPY_RECEIVE", IPPROTO_TCP, 35, 1, VARIES},
    {"TCP_INQ", IPPROTO_TCP, 36, 1, PLAIN},
    {"TCP_TX_DELAY", IPPROTO_TCP, 37, 1, PLAIN},
    {"TCP_AO_ADD_KEY", IPPROTO_TCP, 38, 1, PLAIN},
    {"TCP_AO_DEL_KEY", IPPROTO_TCP, 39, 1, PLAIN},
    {"TCP_AO_INFO", IPPROTO_TCP, 40, 1, PLAIN},
    {"TCP_AO_GET_KEYS", IPPROTO_TCP, 41, 1, PLAIN},
    {"TCP_AO_REPAIR", IPPROTO_TCP, 42, 1, PLAIN},
    {"TCP_IS_MPTCP", IPPROTO_TCP, 43, 1, PLAIN},
    {"TCP_RTO_MAX_MS", IPPROTO_TCP, 44, 5000, PLAIN},
    {"TCP_RTO_MIN_US", IPPROTO_TCP, 45, 50000, PLAIN},
    {"TCP_DELACK_MAX_US", IPPROTO_TCP, 46, 50000, PLAIN},
    {"UDP_CORK", IPPROTO_UDP, 1, 1, PLAIN},
    {"UDP_SEGMENT", IPPROTO_UDP, 103, 1, PLAIN},
    {"UDP_GRO", IPPROTO_UDP, 104, 1, PLAIN},
    {"IP_RAW", IPPROTO_RAW, 1, 1, PLAIN},
    {"ICMP_FILTER", IPPROTO_ICMP, 1, 1, PLAIN},
    {"SCTP_NODELAY", IPPROTO_SCTP, 3, 1, PLAIN},
    {"TLS_TX", 282, 1, 1, PLAIN},
    {"MPTCP_INFO", 284, 1, 1, PLAIN},
};
#define EACH(option) (const struct swept *option = swept; option < swept + sizeof swept / sizeof *swept; option++)

struct value {
    socklen_t length;
    int error;
    char bytes[512];
};
static struct value read_option(int fd, const struct swept *option) {
    struct value value = {.length = sizeof value.bytes};
    if (option->level == SOL_SOCKET && option->number == SO_ATTACH_FILTER) value.length = 0; // counted in instructions
    if (getsockopt(fd, option->level, option->number, value.bytes, &value.length) < 0) value.error = errno;
    return value;
}
static const char *shown_value(const struct swept *option, const struct value *value) {
    static char ring[2][64];
    static int next;
    char *text = ring[next++ % 2];
    long number = 0;
    if (value->length <= sizeof number) memcpy(&number, value->bytes, value->length);
    if (value->length == 4) number = (int)number;
    bool is_there = !value->error || (value->error == ENOTCONN && option->shape == ROUTED);
    if (is_there && option->shape == STATE) {
        // As long as this kernel has it, which a new socket tells.
        int fd = stream("server");
        struct value whole = read_option(fd, option);
        close(fd);
        snprintf(text, 64, "state %d, %s", value->bytes[0], value->length == whole.length ? "whole" : "cut short");
    }
    else if (is_there && option->shape != PLAIN) snprintf(text, 64, "there");
    else if (value->error) snprintf(text, 64, "%s", error_name(value->error));
    else snprintf(text, 64, "%ld (%u bytes)", number, value->length);
    return text;
}
static const char *put_option(int fd, const struct swept *option, const void *bytes, socklen_t length) {
    return setsockopt(fd, option->level, option->number, bytes, length) < 0 ? error_name(errno) : "0";
}

// Reads each, sets it to what it is, then to nothing, and reads it again.
static void sweep(const char *what, int fd) {
    static const char nothing[512];
    for EACH (option) {
        struct value value = read_option(fd, option);
        char own[32] = "-";
        if (!value.error && option->shape != ROUTED) snprintf(own, sizeof own, "%s", put_option(fd, option, value.bytes, value.length));
        socklen_t length = value.error || value.length > sizeof nothing || value.length < 4 ? 4 : value.length;
        const char *zero = put_option(fd, option, nothing, length);
        char before[64];
        snprintf(before, sizeof before, "%s", shown_value(option, &value));
        value = read_option(fd, option);
        say("%s %s: %s, own %s, nothing %s, then %s", what, option->name, before, own, zero, shown_value(option, &value));
    }
}

static void swept_at(const char *host, const char *listens_at) {
    if (serving) {
        int listener = listening(listens_at, 0);
        meet();
        int fd = taken(listener);
        sweep("accepted", fd);
        sweep("listening", listener);
    } else {
        meet();
        int fd = dial(host, 0);
        sweep("connected", fd);
        sweep("new", stream(host));
    }
    meet();
}
static void swept4(void) { swept_at("server", "server"); }
static void swept6(void) { swept_at("ip6-server", "ip6-server"); }

// An address of IPv4 by a socket of IPv6.
static const char *mapped(void) {
    static char text[64];
    char number[INET_ADDRSTRLEN];
    struct address address = at("server", 0);
    inet_ntop(AF_INET, &address.in.sin_addr, number, sizeof number);
    snprintf(text, sizeof text, "::ffff:%s", number);
    return text;
}
static void swept_mapped(void) { swept_at(mapped(), "::"); }

static const char *turned_on(int fd, const struct swept *option) {
    return put_option(fd, option, &option->on, sizeof option->on);
}

// Each is set before a connection, by the client, and by the server on its listener: the connection has it.
static void asked_at(const char *host, const char *listens_at, bool by_server) {
    char byte = '.';
    for EACH (option) {
        const char *set = "-";
        int fd;
        if (serving) {
            int listener = bound(listens_at, 0);
            if (by_server) set = turned_on(listener, option);
            if (listen(listener, 4) < 0) die("listen");
            meet();
            fd = taken(listener);
            close(listener);
        } else {
            fd = stream(host);
            if (!by_server) set = turned_on(fd, option);
            meet();
            if (connected(fd, host, 0) < 0) die("connect");
            put(fd, "."); // a listener may wait for it
        }
        if (serving == by_server) {
            struct value value = read_option(fd, option);
            say("%s: set %s, has %s", option->name, set, shown_value(option, &value));
        }
        if (serving) {
            bring(fd, &byte, 1);
            put(fd, "!");
        } else bring(fd, &byte, 1);
        meet(); // so that no address is in use when the next server comes
        close(fd);
    }
}
static void asked_by_client4(void) { asked_at("server", "server", false); }
static void asked_by_client6(void) { asked_at("ip6-server", "ip6-server", false); }
static void asked_by_client_mapped(void) { asked_at(mapped(), "::", false); }
static void asked_by_server4(void) { asked_at("server", "server", true); }
static void asked_by_server6(void) { asked_at("ip6-server", "ip6-server", true); }
static void asked_by_server_mapped(void) { asked_at(mapped(), "::", true); }

// Each is set on a connection of its own.
static void asked_after(void) {
    int listener = serving ? listening("server", 0) : -1;
    meet();
    for EACH (option) {
        int fd = serving ? taken(listener) : dial("server", 0);
        const char *set = turned_on(fd, option);
        struct value value = read_option(fd, option);
        say("%s: set %s, has %s", option->name, set, shown_value(option, &value));
        meet();
        close(fd);
    }
}

// The same by somebody without privileges, and what setting it to nothing gives.
static void unprivileged(int fd) {
    if (setuid(65534) < 0) die("give privileges up");
    for EACH (option) {
        const char *on = turned_on(fd, option);
        int nothing = 0;
        say("%s: set %s, nothing %s", option->name, on, put_option(fd, option, &nothing, sizeof nothing));
    }
}
static void asked_without_privileges(void) {
    int fd = paired("server");
    reap("somebody", child(unprivileged, fd));
    meet();
}

// What is accepted from one listener again and again, by a call that waits for it, is as if it had never waited.
static void accepts(int listener) {
    static const struct swept asked[] = {
        {"IP_MULTICAST_TTL", IPPROTO_IP, IP_MULTICAST_TTL, 0, PLAIN},
        {"IPV6_MULTICAST_HOPS", IPPROTO_IPV6, IPV6_MULTICAST_HOPS, 0, PLAIN},
        {"IP_TTL", IPPROTO_IP, IP_TTL, 0, PLAIN},
        {"SO_ACCEPTCONN", SOL_SOCKET, SO_ACCEPTCONN, 0, PLAIN},
        {"TCP_THIN_LINEAR_TIMEOUTS", IPPROTO_TCP, 16, 0, PLAIN},
        {"TCP_INFO", IPPROTO_TCP, TCP_INFO, 0, STATE},
    };
    for (int time = 1;; time++) {
        int fd = taken(listener);
        for (size_t i = 0; i < sizeof asked / sizeof *asked; i++) {
            struct value value = read_option(fd, &asked[i]);
            say("time %d, %s: %s", time, asked[i].name, shown_value(&asked[i], &value));
        }
        put(fd, "!"); // it stays open: the next that it waits for is a connection
    }
}
static void accepted_again_at(const char *host, const char *listens_at) {
    int listener = serving ? listening(listens_at, 0) : -1, on = 1;
    // A seldom one, so that the fast path has to read all of the listener's.
    if (serving) setsockopt(listener, IPPROTO_TCP, 16, &on, sizeof on);
    pid_t pid = serving ? child(accepts, listener) : 0;
    for (int i = 0; i < 4; i++) {
        if (serving) until_asleep(pid);
        meet();
        char byte;
        if (!serving) bring(dial(host, 0), &byte, 1);
        meet();
    }
    if (serving) kill(pid, SIGKILL);
}
static void accepted_again4(void) { accepted_again_at("server", "server"); }
static void accepted_again6(void) { accepted_again_at("ip6-server", "ip6-server"); }
static void accepted_again_mapped(void) { accepted_again_at(mapped(), "::"); }

// Requests of ioctl(2) and fcntl(2), and flags of send(2) and recv(2), as one side uses them while the other says and hears text.
static void request(const char *what, int fd, unsigned long number, int value) {
    int result = ioctl(fd, number, &value);
    say("%s: %s, %d", what, result < 0 ? error_name(errno) : "0", result < 0 ? 0 : value);
}
static void requests(void) {
    int fd = paired("server");
    if (serving) {
        put(fd, "hello");
        meet();
        char text[8];
        bring(fd, text, 4);
        meet();
        return;
    }
    wait_for_bytes(fd, 5);
    request("FIONREAD", fd, FIONREAD, 0);
    request("TIOCOUTQ", fd, TIOCOUTQ, 0);
    request("SIOCOUTQNSD", fd, 0x894B, 0);
    request("SIOCATMARK", fd, 0x8905, 0);
    request("FIOGETOWN", fd, 0x8903, 0);
    request("FIOSETOWN", fd, 0x8901, 0);
    request("SIOCGPGRP", fd, 0x8904, 0);
    request("SIOCSPGRP", fd, 0x8902, 0);
    request("FIOASYNC on", fd, FIOASYNC, 1);
    say("O_ASYNC: %s", fcntl(fd, F_GETFL) & O_ASYNC ? "on" : "off");
    request("FIOASYNC off", fd, FIOASYNC, 0);
    request("FIONBIO", fd, FIONBIO, 0);
    request("SIOCGSTAMP", fd, 0x8906, 0);
    request("a terminal's", fd, TCGETS, 0);
    request("one that nobody has", fd, 0xDEAD, 0);
    outcome("F_SETOWN", fcntl(fd, F_SETOWN, 1)), outcome("F_GETOWN", fcntl(fd, F_GETOWN));
    outcome("F_SETSIG", fcntl(fd, F_SETSIG, SIGUSR1)), outcome("F_GETSIG", fcntl(fd, F_GETSIG));
    outcome("F_GETPIPE_SZ", fcntl(fd, F_GETPIPE_SZ)), outcome("lseek", lseek(fd, 0, SEEK_CUR));
    char text[32];
    outcome("peek", recv(fd, text, 2, MSG_PEEK));
    outcome("MSG_ERRQUEUE", recv(fd, text, 1, MSG_ERRQUEUE | MSG_DONTWAIT));
    outcome("MSG_OOB", recv(fd, text, 1, MSG_OOB | MSG_DONTWAIT));
    outcome("MSG_CMSG_CLOEXEC", recv(fd, text, 1, MSG_CMSG_CLOEXEC));
    outcome("MSG_WAITALL", recv(fd, text, 2, MSG_WAITALL));
    outcome("MSG_TRUNC", recv(fd, text, 1, MSG_TRUNC));
    outcome("what is left", recv(fd, text, sizeof text, MSG_DONTWAIT));
    outcome("nothing", recv(fd, text, sizeof text, MSG_DONTWAIT));
    outcome("MSG_MORE", send(fd, "a", 1, MSG_MORE)), outcome("MSG_EOR", send(fd, "b", 1, MSG_EOR));
    outcome("MSG_CONFIRM", send(fd, "c", 1, MSG_CONFIRM)), outcome("MSG_DONTROUTE", send(fd, "d", 1, MSG_DONTROUTE));
    outcome("MSG_ZEROCOPY without its option", send(fd, "e", 1, MSG_ZEROCOPY));
    outcome("MSG_FASTOPEN", send(fd, "f", 1, MSG_FASTOPEN));
    outcome("MSG_OOB of nothing", send(fd, "", 0, MSG_OOB));
    outcome("an unknown flag", send(fd, "g", 1, 1 << 27));
    meet();
    meet();
}

const struct scenario sweeps[] = {
    {"swept4", swept4},
    {"swept6", swept6},
    {"swept_mapped", swept_mapped},
    {"asked_by_client4", asked_by_client4},
    {"asked_by_client6", asked_by_client6},
    {"asked_by_client_mapped", asked_by_client_mapped},
    {"asked_by_server4", asked_by_server4},
    {"asked_by_server6", asked_by_server6},
    {"asked_by_server_mapped", asked_by_server_mapped},
    {"asked_after", asked_after},
    {"asked_without_privileges", asked_without_privileges},
    {"accepted_again4", accepted_again4},
    {"accepted_again6", accepted_again6},
    {"accepted_again_mapped", accepted_again_mapped},
    {"requests", requests},
    {0},
};
