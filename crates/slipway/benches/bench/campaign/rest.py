#!/usr/bin/env python3
"""A stand-in for the web process that workers of an OpenStudio server hand results to: rest.py FOLDER.

It answers `POST /data_points/ID/upload_file`, multipart, as that server does (`file[attachment]`), with one process and one
request at a time. It is kinder than the original: no database, no framework, and the body is written as it comes, in pieces
of 1 MiB. It prints its port and its process, and ends with its standard input.
"""

import http.server
import os
import sys
import threading

PIECE = 1 << 20


class Upload(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        boundary = b"--" + self.headers["Content-Type"].split("boundary=")[1].strip('"').encode()
        left = int(self.headers["Content-Length"])
        if self.headers.get("Expect", "").lower() == "100-continue":
            self.send_response_only(100)
            self.end_headers()
        path = os.path.join(sys.argv[1], self.path.strip("/").replace("/", "-"))
        # Heads of parts are short: the content begins after the first empty line of the last part.
        held, file = b"", None
        end = b"\r\n" + boundary
        while left > 0:
            piece = self.rfile.read(min(PIECE, left))
            if not piece:
                return
            left -= len(piece)
            held += piece
            if file is None:
                at = held.find(b"\r\n\r\n", held.find(b'filename="'))
                if at < 0:
                    continue
                file, held = open(path, "wb"), held[at + 4 :]
            # The end of the content may lie across two pieces.
            at = held.find(end)
            if at >= 0:
                file.write(held[:at])
                held = b""
                break
            file.write(held[: -len(end)])
            held = held[-len(end) :]
        while left > 0:
            left -= len(self.rfile.read(min(PIECE, left)))
        file.flush()
        os.fsync(file.fileno())
        file.close()
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = http.server.HTTPServer(("127.0.0.1", 0), Upload)
server.socket.listen(256)
print(server.server_address[1], os.getpid(), flush=True)
threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0)), daemon=True).start()
server.serve_forever()
