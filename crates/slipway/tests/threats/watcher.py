# Notes every frame that says `secret` or `marker`, and its sender, once it looks.
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ANY))
open("/tmp/came", "w").close()
while True:
    data, at = s.recvfrom(65536)
    if at[2] == 4: continue
    for word in re.findall(rb"(?:secret|marker)-[a-z0-9-]+", data):
        with open("/tmp/came", "a") as came: came.write(f"{word.decode()} {data[6:12].hex(':')}\n")
