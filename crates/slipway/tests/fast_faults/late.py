# Listens, and accepts nobody until somebody connects to the port above; then serves so many, one after the other.
import socket, sys
listener = socket.create_server(("", 6000), family=socket.AF_INET6, dualstack_ipv6=True, backlog=512)
begin = socket.create_server(("127.0.0.1", 6001))
print("it listens", flush=True)
begin.accept()
for _ in range(int(sys.argv[1])):
    with listener.accept()[0] as connection:
        while data := connection.recv(65536): connection.sendall(data)
print("all are served", flush=True)
