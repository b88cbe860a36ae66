"""A hostile program: it speaks to its broker past the plug-in, and tries to reach the hosts' network by the stream that it gets.

Without arguments it makes a queue pair, prints its number, and waits. With that number and its node's address, it joins another
queue pair with it, and says what it can do with the stream.
"""

import array
import ctypes
import os
import socket
import struct
import sys

libc = ctypes.CDLL(None, use_errno=True)


def written(number):
    """A number as postcard writes it."""
    text = b""
    while number > 127:
        text += bytes([number & 127 | 128])
        number >>= 7
    return text + bytes([number])


def read(text):
    """The number at the beginning of a text."""
    return sum((byte & 127) << 7 * at for at, byte in enumerate(text[: next(i for i, b in enumerate(text) if b < 128) + 1]))


broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
broker.connect("/run/slipway/verbs.sock")


def ask(request):
    broker.send(request)
    reply, rights, _, _ = broker.recvmsg(256, socket.CMSG_SPACE(16))
    return reply, [number for _, _, data in rights for number in array.array("i", data[: len(data) // 4 * 4])]


# A reliable queue pair, in protection domain 1.
own = read(ask(b"\1\0\1")[0][2:])
if len(sys.argv) == 1:
    print(own, flush=True)
    sys.stdin.read()
    sys.exit()

gid = bytes(10) + b"\xff\xff" + socket.inet_aton(sys.argv[2])
stream = ask(b"\3" + written(own) + gid + written(int(sys.argv[1])))[1][0]


def say(what, result):
    print(what, "works" if result >= 0 else os.strerror(ctypes.get_errno()))


def address(port):
    return struct.pack("=H", socket.AF_INET) + struct.pack("!H", port) + socket.inet_aton(sys.argv[2]) + bytes(8)


# Disconnecting is no danger by itself.
libc.connect(stream, struct.pack("=H14x", socket.AF_UNSPEC), 16)
say("connect", libc.connect(stream, address(22), 16))
say("bind", libc.bind(stream, address(5555), 16))
say("options of TCP", libc.setsockopt(stream, socket.IPPROTO_TCP, 1, ctypes.byref(ctypes.c_int(0)), 4))
say("another interface", libc.setsockopt(stream, socket.SOL_SOCKET, 25, b"lo", 2))
print("names", socket.socket(fileno=stream).getsockname()[0])
