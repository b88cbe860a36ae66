"""What the kernel says to requests about other network namespaces than one's own (rtnetlink(7))."""
import errno, json, os, socket, struct, sys

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK, RTM_SETLINK, RTM_GETADDR, RTM_NEWADDR = 16, 17, 18, 19, 22, 20
IFNAME, MTU, MASTER, LINKINFO, NET_NS_PID, NET_NS_FD, TARGET_NETNSID = 3, 4, 10, 18, 19, 28, 46


def attribute(kind, body):
    return struct.pack("=HH", 4 + len(body), kind) + body + b"\0" * (-len(body) % 4)


def number(kind, value):
    return attribute(kind, struct.pack("=i", value))


def ask(kind, attributes, index=0, flags=5, change=0, up=0):
    """The error, by name, or `ok`. By default a request to be acknowledged."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as s:
        body = struct.pack("=BxHiII", 0, 0, index, up, change) + attributes
        s.send(struct.pack("=IHHII", 16 + len(body), kind, flags, 1, 0) + body)
        while True:
            answer = s.recv(65536)
            of, = struct.unpack_from("=H", answer, 4)
            if of == 2:
                error, = struct.unpack_from("=i", answer, 16)
                return errno.errorcode[-error] if error else "ok"
            if of == kind or of == RTM_NEWLINK:
                return "ok"


def pair(name, *more):
    """What makes a device of the kind that nothing else is needed for."""
    return attribute(LINKINFO, attribute(1, b"bridge")) + attribute(IFNAME, name + b"\0") + b"".join(more)
