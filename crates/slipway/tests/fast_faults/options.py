"""Sets what programs set on nearly every connection, when it is told to on its input, and says what it has then.

options.py SERVER...
"""

import socket
import sys

NUMBERS = {"TCP_NODELAY": 1, "TCP_CORK": 0, "TCP_KEEPIDLE": 77, "TCP_KEEPINTVL": 7, "TCP_KEEPCNT": 3}

connections = [socket.create_connection((server, 5000)) for server in sys.argv[1:]]
print("connected", flush=True)
sys.stdin.readline()
for connection in connections:
    for name, number in NUMBERS.items():
        connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), number)
print("set", flush=True)
sys.stdin.readline()
for connection in connections:
    has = {name: connection.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in NUMBERS}
    assert has == NUMBERS, has
print("kept", flush=True)
