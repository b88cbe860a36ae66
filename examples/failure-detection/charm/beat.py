"""What beat.c does, with Charm++ through charm4py: beat.py SECONDS"""

import sys
import time

from charm4py import Chare, Group, Reducer, charm, coro


class Ring(Chare):
    @coro
    def run(self, seconds, done):
        started, said, step = time.monotonic(), 0.0, 0
        me, size = charm.myPe(), charm.numPes()
        going = True
        while going:
            step += 1
            self.thisProxy[(me + 1) % size].take(bytes(4096))
            now = time.monotonic() - started
            # Ends once any has reached its end: all hear the same.
            going = self.allreduce(now, Reducer.max).get() < seconds
            if me == 0 and now >= said + 0.25:
                print("beat", step, flush=True)
                said = now
        self.reduce(done)

    def take(self, block):
        pass


def main(args):
    done = charm.createFuture()
    Group(Ring).run(float(args[1]), done)
    done.get()
    charm.exit()


if __name__ == "__main__":
    charm.start(main)
