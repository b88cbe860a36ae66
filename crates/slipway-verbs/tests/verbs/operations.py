"""Each operation between two queue pairs of one program, by Debian's pyverbs, with every byte looked at."""

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, RecvWR, SendWR

from pairs import connect

LENGTH = 40_000
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE | e.IBV_ACCESS_REMOTE_READ | e.IBV_ACCESS_REMOTE_ATOMIC
context = Context(name="slipway0")
domain = PD(context)
queue = CQ(context, 100)
memory = MR(domain, LENGTH, ACCESS)


def make():
    cap = QPCap(max_send_wr=10, max_recv_wr=10, max_send_sge=4, max_recv_sge=4)
    return QP(domain, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=queue, rcq=queue, cap=cap))


def wait(count):
    found = []
    while len(found) < count:
        found += queue.poll(count)[1]
    return sorted((it.opcode, it.status) for it in found)


def put(bytes_, at):
    memory.write(bytes_.decode("latin1"), len(bytes_), at)


def do(opcode, at, length, there, **atomic):
    request = SendWR(
        opcode=opcode, num_sge=1, sg=[SGE(memory.buf + at, length, memory.lkey)], send_flags=e.IBV_SEND_SIGNALED
    )
    if atomic:
        request.set_wr_atomic(memory.rkey, memory.buf + there, atomic["compare"], atomic.get("swap", 0))
    elif there is not None:
        request.set_wr_rdma(memory.rkey, memory.buf + there)
    one.post_send(request)


one, other = make(), make()
connect(context, ACCESS, one, other)
connect(context, ACCESS, other, one)

# Regions of pyverbs begin within a page: the first bytes are served by the owner's thread, the middle is mapped.
for source, target in [(0, 300), (9_000, 20_000), (9_000, 100), (0, 20_000)]:
    put(b"a" * 200, source)
    put(b"." * 200, target)
    other.post_recv(RecvWR(num_sge=1, sg=[SGE(memory.buf + target, 200, memory.lkey)]))
    do(e.IBV_WR_SEND, source, 200, None)
    assert wait(2) == [(e.IBV_WC_SEND, 0), (e.IBV_WC_RECV, 0)]
    assert memory.read(200, target) == b"a" * 200
    put(b"b" * 200, source)
    do(e.IBV_WR_RDMA_WRITE, source, 200, target)
    assert wait(1) == [(e.IBV_WC_RDMA_WRITE, 0)]
    assert memory.read(200, target) == b"b" * 200
    put(b"c" * 200, target)
    do(e.IBV_WR_RDMA_READ, source, 200, target)
    assert wait(1) == [(e.IBV_WC_RDMA_READ, 0)]
    assert memory.read(200, source) == b"c" * 200
    word = target + -(memory.buf + target) % 8
    put((5).to_bytes(8, "little"), word)
    do(e.IBV_WR_ATOMIC_FETCH_AND_ADD, source, 8, word, compare=37)
    assert wait(1) == [(e.IBV_WC_FETCH_ADD, 0)]
    do(e.IBV_WR_ATOMIC_CMP_AND_SWP, source, 8, word, compare=42, swap=7)
    assert wait(1) == [(e.IBV_WC_COMP_SWAP, 0)]
    assert memory.read(8, source) == (42).to_bytes(8, "little")
    assert memory.read(8, word) == (7).to_bytes(8, "little")

# Beyond the region: an error, and the queue pair flushes what comes after.
do(e.IBV_WR_RDMA_WRITE, 0, 200, LENGTH - 199)
assert wait(1) == [(e.IBV_WC_RDMA_WRITE, e.IBV_WC_REM_ACCESS_ERR)]
do(e.IBV_WR_SEND, 0, 8, None)
assert wait(1) == [(e.IBV_WC_SEND, e.IBV_WC_WR_FLUSH_ERR)]
print("all operations")
