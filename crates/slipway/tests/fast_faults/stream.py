# One connection, on which the same comes back block by block, until it ends.
import os, socket, sys
connection = socket.create_connection((sys.argv[1], 5000))
try:
    while True:
        for _ in range(100):
            block = os.urandom(60000)
            connection.sendall(block)
            back = b""
            while len(back) < len(block):
                part = connection.recv(65536)
                if not part: raise EOFError
                back += part
            if back != block: sys.exit("something else came back")
        print("the same came back", flush=True)
except (OSError, EOFError) as end:
    print("ended:", type(end).__name__, flush=True)
