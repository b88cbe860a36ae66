# One connection after the other, each used once; so many of them, or for ever.
import socket, sys
left = int(sys.argv[2]) if len(sys.argv) > 2 else -1
while left:
    left -= 1
    with socket.create_connection((sys.argv[1], 5000)) as connection:
        try:
            connection.sendall(b"x")
            served = connection.recv(1) == b"x"
        except (ConnectionResetError, BrokenPipeError): served = False
        if not served: print("it ended before its time", flush=True)
    if left % 100 == 0: print("a hundred calls", flush=True)
