# All connected before the first is used.
import socket, sys
every = [socket.create_connection((sys.argv[1], 5000)) for _ in range(int(sys.argv[2]))]
print("all are connected", flush=True)
for connection in every:
    connection.sendall(b"x")
    if connection.recv(1) != b"x": sys.exit("a connection ended before its time")
print("all are served", flush=True)
