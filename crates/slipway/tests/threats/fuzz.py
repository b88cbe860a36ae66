"""Sends frames of every kind to everybody for so many seconds. Follows frames.py. Arguments: seed, seconds, what is known of the
lab as JSON: macs, ipv4, ipv6, vnis."""
seed, seconds, known = int(sys.argv[1]), float(sys.argv[2]), json.loads(sys.argv[3])
dice = random.Random(seed)
devices = [name for name in os.listdir("/sys/class/net") if name != "lo"]
ports = [(raw(name), own(name)) for name in sorted(devices)]
macs = [mac(one) for one in known["macs"]] + [bytes([2, 0xB0, 0, 0, 0, n]) for n in range(100, 130)] + GROUPS
macs += [dice.randbytes(6) for _ in range(20)]
v4 = known["ipv4"] + ["10.63.0.1", "10.63.0.2", "255.255.255.255", "224.0.0.1", "127.0.0.1", "0.0.0.0", "10.63.255.255"]
v6 = known["ipv6"] + ["ff02::1", "ff02::2", "fe80::1", "::1", "::", "fd53:6c69:70ff::1", "fd53:6c69:70ff::2"]
numbers = [22, 53, 80, 111, 2049, 4789, 5000, 5001, 6953, 8472]
me = b""


def any_of(things):
    return things[dice.randrange(len(things))]


def noise(most):
    return dice.randbytes(dice.randrange(most))


def secret():
    return b"secret-fuzz" + noise(64)


def port():
    return any_of(numbers) if dice.random() < 0.8 else dice.randrange(65536)


def transport(data):
    kind = dice.randrange(5)
    if kind < 2:
        return 17, udp(port(), port(), data)
    if kind < 4:
        head = struct.pack("!HHIIBBHHH", port(), port(), dice.getrandbits(32), dice.getrandbits(32), 0x50, dice.randrange(64), 512, 0, 0)
        return 6, head + data
    return any_of([0, 2, 4, 41, 46, 47, 50, 51, 88, 89, 103, 112, 132, 136, 33, dice.randrange(256)]), noise(32) + data


def inner4(data=None):
    protocol, body = transport(secret() if data is None else data)
    options = any_of([b"", b"", b"\x01" * 4, b"\x83\x07\x04" + ip4(any_of(v4)) + b"\0", b"\x07\x07\x04" + bytes(5), noise(40)])
    options = options[: len(options) // 4 * 4][:40]
    fragment = any_of([0, 0, 0, 0x4000, 0x2000, 0x2001, 1, dice.randrange(8192)])
    return packet4(protocol, body, any_of(v4), any_of(v4), options, fragment, any_of([1, 64, 255]))


def inner6():
    protocol, body = transport(secret())
    for _ in range(dice.randrange(4)):
        length = dice.randrange(3)
        body = bytes([protocol, length]) + bytes([1, 4, 0, 0, 0, 0]) + bytes(8 * length) + body
        protocol = any_of([0, 43, 44, 60, 51, 135])
    return packet6(protocol, body, any_of(v6), any_of(v6), any_of([1, 64, 255]))


def error4():
    quoted = inner4(b"")[:28]
    kind, code, rest = any_of([(3, 4, dice.randrange(1500)), (3, any_of(range(16)), 0), (11, 0, 0), (12, 0, 0), (4, 0, 0)])
    return frame4(any_of(macs), me, icmp4(kind, code, struct.pack("!HH", 0, rest) + quoted, any_of(v4), any_of(v4)))


def redirect4():
    return frame4(any_of(macs), me, icmp4(5, dice.randrange(4), ip4(any_of(v4)) + inner4(b"")[:28], any_of(v4), any_of(v4)))


def error6():
    rest = struct.pack("!I", any_of([0, 1280, dice.randrange(65536)])) + inner6()[:120].replace(b"secret", b"hidden")
    return frame6(any_of(macs), me, icmp6(dice.randrange(1, 5), dice.randrange(4), rest, any_of(v6), any_of(v6)))


def advertisement():
    prefix = struct.pack("!BBBBIII", 3, 4, 64, 0xC0, 7200, 7200, 0) + ip6("2001:db8:bad::")
    mtu = struct.pack("!BBHI", 5, 1, 0, 1280)
    rest = struct.pack("!BBHII", 64, 0, 1800, 0, 0) + b"\x01\x01" + me + prefix + mtu
    return frame6(any_of(macs), me, icmp6(134, 0, rest, any_of(["fe80::1", "fe80::bad"] + v6), any_of(["ff02::1"] + v6)))


def neighbour6():
    kind = any_of([133, 135, 136, 137])
    rest = any_of([bytes(4), b"\xe0\0\0\0"]) + ip6(any_of(v6)) + (ip6(any_of(v6)) if kind == 137 else b"")
    rest += any_of([b"\x01\x01", b"\x02\x01"]) + any_of(macs)
    return frame6(any_of(macs), me, icmp6(kind, 0, rest, any_of(v6), any_of(v6)))


def tunnel():
    inner = frame4(any_of(macs), any_of(macs), inner4())
    vni = any_of(known["vnis"] + [0, 1, dice.randrange(1 << 24)])
    return frame4(any_of(macs), me, packet4(17, udp(port(), TUNNEL, vxlan(vni, inner)), any_of(v4), any_of(v4)))


def tagged():
    tags = b"".join(any_of([b"\x81\0", b"\x88\xa8"]) + struct.pack("!H", dice.randrange(65536)) for _ in range(dice.randrange(1, 4)))
    return any_of(macs) + me + tags + any_of([b"\x08\0" + inner4(), b"\x86\xdd" + inner6()])


def strange():
    kind = dice.randrange(65536)
    return any_of(macs) + me + struct.pack("!H", 0x1234 if kind == 0x0806 else kind) + secret()


def question():
    return arp(any_of(macs), any_of([me, me] + macs), dice.randrange(1, 10), any_of(v4), any_of(macs), any_of(v4))


KINDS = [
    lambda: frame4(any_of(macs), me, inner4()),
    lambda: frame6(any_of(macs), me, inner6()),
    error4, redirect4, error6, advertisement, neighbour6, tunnel, tagged, strange, question,
]


def mutated(frame):
    frame = bytearray(frame)
    # Not the type of the frame: what says that it is ARP may pass, whatever it is.
    for _ in range(dice.randrange(1, 6)):
        place = dice.randrange(len(frame))
        if place not in (12, 13):
            frame[place] ^= 1 << dice.randrange(8)
    return bytes(frame[: max(14, len(frame) - any_of([0, 0, dice.randrange(len(frame))]))])


sent = 0
end = time.monotonic() + seconds
while time.monotonic() < end:
    for _ in range(100):
        s, me = any_of(ports)
        if dice.random() < 0.1:
            frame = any_of(KINDS)()
            frame = frame[:6] + any_of(macs) + frame[12:]
        else:
            frame = any_of(KINDS)()
        try_send(s, mutated(frame) if dice.random() < 0.3 else frame)
        sent += 1
print(sent)
