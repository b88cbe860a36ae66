# Hears of nobody who has said nothing for an hour (TCP_DEFER_ACCEPT); gives back what is said.
import socket
listener = socket.create_server(("", 6000))
listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 3600)
print("it listens", flush=True)
while True:
    with listener.accept()[0] as connection: connection.sendall(connection.recv(1))
