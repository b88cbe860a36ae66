"""One end of a reliable connection, in a program of its own: what becomes of its messages?

It prints its queue pair's number, and reads its peer's, with the address of the peer's node. For each line "once" it sends a message,
for each "until" messages until one fails. It prints the status of the last (`enum ibv_wc_status`). For "more" it makes a region and
a queue pair. Its argument is the time of a
retry, as queue pairs have it: 4.096 µs times 2 to this power.
"""

import sys

from pyverbs.addr import AHAttr, GID, GlobalRoute
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.enums import IBV_ACCESS_LOCAL_WRITE, IBV_QPT_RC, IBV_SEND_SIGNALED, IBV_WR_SEND
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPAttr, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

context = Context(name="slipway0")
domain, queue = PD(context), CQ(context, 64)
memory = MR(domain, 64, IBV_ACCESS_LOCAL_WRITE)
part = SGE(memory.buf, 8, memory.lkey)
cap = QPCap(max_send_wr=16, max_recv_wr=16)
pair = QP(domain, QPInitAttr(qp_type=IBV_QPT_RC, scq=queue, rcq=queue, cap=cap))
print(pair.qp_num, flush=True)
number, address = input().split()

attributes = QPAttr(port_num=1)
pair.to_init(attributes)
mapped = "0000:" * 5 + "ffff:{:02x}{:02x}:{:02x}{:02x}".format(*(int(part) for part in address.split(".")))
route = GlobalRoute(dgid=GID(mapped), sgid_index=0)
attributes.ah_attr = AHAttr(gr=route, is_global=1, port_num=1)
attributes.dest_qp_num = int(number)
attributes.path_mtu = 5
attributes.max_rd_atomic = attributes.max_dest_rd_atomic = 1
attributes.min_rnr_timer, attributes.timeout = 12, int(sys.argv[1])
attributes.retry_cnt = attributes.rnr_retry = 7
attributes.rq_psn = attributes.sq_psn = 0
pair.to_rtr(attributes)
for _ in range(16):
    pair.post_recv(RecvWR(num_sge=1, sg=[part]))
pair.to_rts(attributes)
print("joined", flush=True)


def sent():
    """Sends a message. Gives its status."""
    pair.post_send(SendWR(opcode=IBV_WR_SEND, num_sge=1, sg=[part], send_flags=IBV_SEND_SIGNALED))
    while True:
        for done in queue.poll(16)[1]:
            if done.opcode < 128:
                return done.status
            pair.post_recv(RecvWR(num_sge=1, sg=[part]))


for line in sys.stdin:
    if line == "more\n":
        MR(domain, 64, IBV_ACCESS_LOCAL_WRITE), QP(domain, QPInitAttr(qp_type=IBV_QPT_RC, scq=queue, rcq=queue, cap=cap))
        print("made", flush=True)
        continue
    status = sent()
    while line == "until\n" and status == 0:
        status = sent()
    print(status, flush=True)
