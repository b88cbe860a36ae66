"""Registrations that end while writes run, and forks with queue pairs open, by Debian's pyverbs."""

import ctypes
import mmap
import os
import threading

import pyverbs.enums as e
from pyverbs.cq import CQ
from pyverbs.device import Context
from pyverbs.mr import MR
from pyverbs.pd import PD
from pyverbs.qp import QP, QPCap, QPInitAttr
from pyverbs.wr import SGE, SendWR

from pairs import connect

LENGTH = 1 << 16
ACCESS = e.IBV_ACCESS_LOCAL_WRITE | e.IBV_ACCESS_REMOTE_WRITE
context = Context(name="slipway0")
domain = PD(context)
queue = CQ(context, 100)
source = MR(domain, LENGTH, ACCESS)


def make():
    cap = QPCap(max_send_wr=20, max_recv_wr=10, max_send_sge=1, max_recv_sge=1)
    return QP(domain, QPInitAttr(qp_type=e.IBV_QPT_RC, scq=queue, rcq=queue, cap=cap))


def write(pair, key, address):
    request = SendWR(
        opcode=e.IBV_WR_RDMA_WRITE,
        num_sge=1,
        sg=[SGE(source.buf, LENGTH, source.lkey)],
        send_flags=e.IBV_SEND_SIGNALED,
    )
    request.set_wr_rdma(key, address)
    pair.post_send(request)


def statuses(count):
    found = []
    while len(found) < count:
        found += [it.status for it in queue.poll(count)[1]]
    return found


def pairs():
    one, other = make(), make()
    connect(context, ACCESS, one, other)
    connect(context, ACCESS, other, one)
    return one, other


DONE, FLUSHED, REFUSED = e.IBV_WC_SUCCESS, e.IBV_WC_WR_FLUSH_ERR, e.IBV_WC_REM_ACCESS_ERR
source.write("x" * LENGTH, LENGTH)
for number in range(50):
    one, other = pairs()
    memory = mmap.mmap(-1, LENGTH)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    target = MR(domain, LENGTH, ACCESS, address)
    key = target.rkey
    ending = threading.Thread(target=target.close)
    for at in range(8):
        if at == number % 8:
            ending.start()
        write(one, key, address)
    ending.join()
    found = statuses(8)
    assert set(found) <= {DONE, FLUSHED, REFUSED}, found
    # The registration has ended: nothing reaches the memory any more.
    memory[:] = bytes(LENGTH)
    if set(found) == {DONE}:
        write(one, key, address)
        assert statuses(1) == [REFUSED]
    assert memory[:] == bytes(LENGTH)
    one.close()
    other.close()

one, other = pairs()
target = MR(domain, LENGTH, ACCESS)
for program in [None, "/bin/true"]:
    write(one, target.rkey, target.buf)
    child = os.fork()
    if child == 0:
        if program:
            os.execv(program, [program])
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert statuses(1) == [DONE]
    target.write("." * LENGTH, LENGTH)
    write(one, target.rkey, target.buf)
    assert statuses(1) == [DONE] and target.read(LENGTH, 0) == b"x" * LENGTH
print("all hazards")
