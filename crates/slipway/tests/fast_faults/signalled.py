"""A server and its clients, whose calls signals interrupt all the time.

signalled.py            serves: answers each client once, for ever
signalled.py HOST N     in each of four processes, N times: connects, is answered, and disconnects
"""

import collections

import os
import signal
import socket
import sys

PORT = 7300


def disturb(seconds):
    """From now on, again and again; calls are made anew."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)


def serve():
    with socket.create_server(("", PORT), backlog=512) as server:
        print("it listens", flush=True)
        disturb(50e-6)
        kept = collections.deque(maxlen=64)
        while True:
            client, _ = server.accept()
            if client.fileno() in [other.fileno() for other in kept]:
                sys.exit("a connection was given twice")
            said = client.recv(1)
            client.sendall(said)
            if said == b".":
                kept.clear()
            else:
                kept.append(client)
            del client


def call(address, word):
    with socket.socket() as server:
        server.connect(address)
        server.settimeout(30)
        server.sendall(word)
        if server.recv(1) != word:
            sys.exit("a connection ended")


if len(sys.argv) == 1:
    serve()
address = (socket.gethostbyname(sys.argv[1]), PORT)
for _ in range(4):
    if os.fork() == 0:
        disturb(200e-6)
        for _ in range(int(sys.argv[2])):
            call(address, b"x")
        os._exit(0)
served = sum(os.wait()[1] == 0 for _ in range(4))
call(address, b".")
print(served, "of four were served", flush=True)
