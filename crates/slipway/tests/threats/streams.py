"""What a hostile program tries with the streams that it is given. It says what came of it, a word a line."""

import fcntl, json, os, select, signal, stat, sys


def says(what, attempt):
    try:
        print(what, attempt(), file=sys.stderr)
    except OSError as error:
        print(what, "error", error.strerror, file=sys.stderr)


def write_input():
    """Opens what it may only read anew, for writing."""
    os.write(os.open("/proc/self/fd/0", os.O_WRONLY | os.O_NONBLOCK), b"HOSTILE")
    return "wrote"


def read_output():
    """Opens what it may only append to anew, for reading."""
    return os.read(os.open("/proc/self/fd/1", os.O_RDONLY | os.O_NONBLOCK), 4096)


def spoil_output():
    os.fchmod(1, 0o6755)
    os.fchown(1, 1, 1)
    return "changed"


def enter_input():
    os.fchdir(0)
    return os.listdir(".")


def spoil_pipes():
    for fd in 0, 1:
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_NONBLOCK)
        fcntl.fcntl(fd, 1031, 4096)  # F_SETPIPE_SZ
    return "changed"


def linger():
    """Leaves a process behind that keeps the terminal. Told to, it writes to it and reads what is typed on it."""
    go = "/tmp/go"
    os.mkfifo(go)
    os.mkfifo("/tmp/said")
    if os.fork():
        return "left one behind"
    os.setsid()
    for number in signal.SIGHUP, signal.SIGTTIN, signal.SIGTTOU:
        signal.signal(number, signal.SIG_IGN)
    with open(go) as told:
        told.read()
    said = {}
    for name, act in ("write", lambda: os.write(1, b"\x1b]0;HOSTILE\x07")), ("read", lambda: os.read(0, 100).decode()):
        try:
            said[name] = act()
        except OSError as error:
            said[name] = error.strerror
    with open("/tmp/said", "w") as out:
        json.dump(said, out)
    os._exit(0)


def identities():
    """Which files its streams are."""
    files = [os.fstat(fd) for fd in (0, 1, 2)]
    kinds = {stat.S_IFIFO: "pipe", stat.S_IFCHR: "device", stat.S_IFREG: "file", stat.S_IFSOCK: "socket", stat.S_IFDIR: "folder"}
    print(json.dumps([[kinds[stat.S_IFMT(file.st_mode)], file.st_dev, file.st_ino] for file in files]), flush=True)
    return "told"


says(sys.argv[1], globals()[sys.argv[1]])
