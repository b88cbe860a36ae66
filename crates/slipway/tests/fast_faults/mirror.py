# Gives back what it is sent.
import socket, threading
def serve(connection):
    try:
        while data := connection.recv(65536): connection.sendall(data)
    except OSError: pass
    connection.close()
listener = socket.create_server(("", 5000), family=socket.AF_INET6, dualstack_ipv6=True, backlog=4096)
while True: threading.Thread(target=serve, args=[listener.accept()[0]], daemon=True).start()
