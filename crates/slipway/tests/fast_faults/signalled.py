"""A server and its clients, whose calls signals interrupt all the time.

signalled.py            serves: answers each client once, for ever
signalled.py HOST N     in each of four processes, N times: connects, is answered, and disconnects
"""

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
        while True:
            client, _ = server.accept()
            with client:
                client.sendall(client.recv(1))


def call(host, times):
    address = (socket.gethostbyname(host), PORT)
    disturb(200e-6)
    for _ in range(times):
        with socket.socket() as server:
            server.connect(address)
            server.settimeout(30)
            server.sendall(b"x")
            server.recv(1)


if len(sys.argv) == 1:
    serve()
for _ in range(4):
    if os.fork() == 0:
        call(sys.argv[1], int(sys.argv[2]))
        os._exit(0)
print(sum(os.wait()[1] == 0 for _ in range(4)), "of four were served", flush=True)
