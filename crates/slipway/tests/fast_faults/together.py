# So many connected, and written to, before the first is used; at a port that may be named.
import socket, sys
port = int(sys.argv[3]) if len(sys.argv) > 3 else 5000
every = [socket.create_connection((sys.argv[1], port)) for _ in range(int(sys.argv[2]))]
for connection in every: connection.sendall(b"x")
print("all are connected", flush=True)
for connection in every:
    with connection:
        if connection.recv(1) != b"x": sys.exit("a connection ended before its time")
print("all are served", flush=True)
