# One connection after the other, each used once; so many of them, or for ever, to port 5000 or another.
import socket, sys
left = int(sys.argv[2]) if len(sys.argv) > 2 else -1
port = int(sys.argv[3]) if len(sys.argv) > 3 else 5000
while left:
    left -= 1
    with socket.create_connection((sys.argv[1], port)) as connection:
        try:
            connection.sendall(b"x")
            served = connection.recv(1) == b"x"
        except (ConnectionResetError, BrokenPipeError): served = False
        if not served: print("it ended before its time", flush=True)
    if left % 100 == 0: print("a hundred calls", flush=True)
