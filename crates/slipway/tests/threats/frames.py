"""Frames made by hand, sent from inside a node by a raw socket."""
import json, os, random, re, select, socket, struct, sys, time

TUNNEL = 4789
ANY = 0x0003


def mac(text):
    return bytes.fromhex(text.replace(":", ""))


def own(device="eth0"):
    return mac(open(f"/sys/class/net/{device}/address").read().strip())


def ip4(text):
    return socket.inet_pton(socket.AF_INET, text)


def ip6(text):
    return socket.inet_pton(socket.AF_INET6, text)


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def packet4(protocol, body, source, target, options=b"", fragment=0, ttl=64):
    words = 5 + len(options) // 4
    head = struct.pack(
        "!BBHHHBBH4s4s", 0x40 | words, 0, 4 * words + len(body), 7, fragment, ttl, protocol, 0, ip4(source), ip4(target)
    ) + options
    return head[:10] + struct.pack("!H", checksum(head)) + head[12:] + body


def packet6(protocol, body, source, target, hops=255):
    return struct.pack("!IHBB", 6 << 28, len(body), protocol, hops) + ip6(source) + ip6(target) + body


def icmp6(kind, code, rest, source, target):
    body = struct.pack("!BBH", kind, code, 0) + rest
    pseudo = ip6(source) + ip6(target) + struct.pack("!II", len(body), 58)
    return packet6(58, body[:2] + struct.pack("!H", checksum(pseudo + body)) + body[4:], source, target)


def icmp4(kind, code, rest, source, target):
    body = struct.pack("!BBH", kind, code, 0) + rest
    return packet4(1, body[:2] + struct.pack("!H", checksum(body)) + body[4:], source, target)


def udp(source, target, data):
    return struct.pack("!HHHH", source, target, 8 + len(data), 0) + data


def frame4(to, sender, packet):
    return to + sender + b"\x08\x00" + packet


def frame6(to, sender, packet):
    return to + sender + b"\x86\xdd" + packet


def arp(to, sender, operation, sender_ip, target, target_ip):
    return to + sender + struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4, operation) + sender + ip4(sender_ip) + target + ip4(target_ip)


def vxlan(vni, frame):
    return struct.pack("!BBHI", 8, 0, 0, vni << 8) + frame


def raw(device="eth0"):
    s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ANY))
    s.bind((device, 0))
    return s


def try_send(s, frame):
    try:
        s.send(frame)
    except OSError:
        pass


# Whatever a bridge may take for itself: everybody, the groups that it keeps (IEEE 802.1Q, 8.6.3), its own.
GROUPS = [b"\xff" * 6] + [bytes([1, 0x80, 0xC2, 0, 0, n]) for n in range(16)] + [mac("01:00:5e:00:00:01"), mac("33:33:00:00:00:01")]


def of_hosts(s, sender, addresses):
    """Ethernet addresses of whoever answers for the hosts, and all that Slipway gives its bridges."""
    found = [bytes([2, 0xB0, 0, 0, 0, n]) for n in range(100, 160)]
    answers = 0
    for address in addresses:
        for own_ip in ("0.0.0.0", "10.63.0.77"):
            s.send(arp(b"\xff" * 6, sender, 1, own_ip, bytes(6), address))
    deadline = time.monotonic() + 0.3
    while (left := deadline - time.monotonic()) > 0 and select.select([s], [], [], left)[0]:
        frame = s.recv(65536)
        if frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\x02" and socket.inet_ntoa(frame[28:32]) in addresses:
            answers += 1
            found.append(frame[22:28])
    return found, answers
