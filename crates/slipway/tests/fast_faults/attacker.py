"""Does to the fast path what a hostile node can, for so many seconds: `attacker.py SEED SECONDS SERVER`."""
import array, os, random, resource, signal, socket, sys, threading, time

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
    for _ in range(200):
        thread = threading.Thread(target=abandon)
        try:
            thread.start()
        except RuntimeError:
            break
        threads.append(thread)
    for thread in threads:
        thread.join()


# One that never accepts, for the other attacker.
never = socket.create_server(("", 7000), backlog=4096)
print("ready", flush=True)
done = 0
while time.monotonic() < until:
    chance.choice([abandon, abandon, abandon, half_close, die, pass_descriptors, listen, crowd])()
    done += 1
print("did", done, flush=True)
