#!/usr/bin/env python3
"""Runs the trials of failure-detection and records them: drive.py FOLDER LIMIT REPEAT RUNTIME,… FAILURE,… MACHINES

A trial is a new lab of four nodes, a program that communicates all the time, and a failure of n3 two seconds after its first
sign of life. What then happens within LIMIT seconds is a line of FOLDER/records.jsonl."""

import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path

LAB, LOST, NODES = "failure-detection", "n3", ["n1", "n2", "n3", "n4"]
HERE = Path(__file__).resolve().parent
HOSTS = ",".join(NODES)
START, LEAD = 30.0, 2.0

# By its name: what runs on this machine, `agent` launching through Slipway and `ssh` inside of n1 as on any cluster.
RUNTIMES = {
    "openmpi-agent": ["slipway", "run", "--quiet", "--mpi", "openmpi", "--out", "{out}", LAB, "--", "/opt/beat/openmpi", "{seconds}"],
    "mpich-agent": ["slipway", "run", "--quiet", "--mpi", "mpich", "--out", "{out}", LAB, "--", "/opt/beat/mpich", "{seconds}"],
    "openmpi-ssh": ["slipway", "exec", LAB, "n1", "--", "mpirun.openmpi", "--allow-run-as-root", "--host", HOSTS,
                    "--mca", "btl", "tcp,self", "--mca", "mpi_yield_when_idle", "1", "-n", "4", "/opt/beat/openmpi", "{seconds}"],
    "mpich-ssh": ["slipway", "exec", LAB, "n1", "--", "mpiexec.hydra", "-launcher", "ssh", "-iface", "eth0", "-hosts", HOSTS,
                  "-genv", "UCX_TLS", "tcp,self", "-n", "4", "/opt/beat/mpich", "{seconds}"],
    "charm-ssh": ["slipway", "exec", LAB, "n1", "--", "/opt/beat/venv/bin/python", "-m", "charmrun.start", "+p4", "++nodelist",
                  "/opt/charm/nodelist", "/opt/charm/beat.py", "{seconds}"],
}
FAILURES = {
    "graceful": ["slipway", "kill", "--quiet", LAB, LOST, "--how", "graceful"],
    "soft": ["slipway", "kill", "--quiet", LAB, LOST, "--how", "soft"],
    "hard": ["slipway", "kill", "--quiet", LAB, LOST, "--how", "hard"],
    "link cut": ["slipway", "cut", "--quiet", LAB, LOST],
}


class Program:
    """A program whose lines come with the time at which they came."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines, self.said = queue.Queue(), []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic(), line))
        self.process.wait()
        self.lines.put((time.monotonic(), None))

    def until(self, deadline):
        """Lines up to a time; the last is None when the program has ended."""
        while (left := deadline - time.monotonic()) > 0:
            try:
                when, line = self.lines.get(timeout=left)
            except queue.Empty:
                return
            self.said.append(line or "")
            yield when, line
            if line is None:
                return


def left_over():
    """How many of the program's processes the other nodes still have."""
    count = 0
    for node in NODES:
        if node != LOST:
            command = ["slipway", "exec", LAB, node, "--", "pgrep", "-fc", "^/opt/beat/"]
            # pgrep counts neither itself nor its parents' names; it ends with 1 where there is none.
            count += int(subprocess.run(command, stdout=subprocess.PIPE, text=True).stdout or 0)
    return count


def trial(folder, runtime, failure, number, limit, machines):
    out = folder / f"{runtime}-{failure.replace(' ', '-')}-{number}"
    words = {"out": str(out), "seconds": str(int(limit + 60))}
    on = ["--machines", machines] if machines else []
    subprocess.run(["slipway", "up", "--quiet", *on, HERE / "lab.yaml"], check=True)
    try:
        program = Program([word.format(**words) for word in RUNTIMES[runtime]])
        record = {"runtime": runtime, "failure": failure, "number": number, "limit": limit}
        if not any((line or "").startswith("beat") for _, line in program.until(time.monotonic() + START)):
            return record | {"outcome": "never started", "said": "".join(program.said)[-4000:]}
        for _ in program.until(time.monotonic() + LEAD):
            pass
        program.said.clear()
        failed = time.monotonic()
        breaking = subprocess.Popen(FAILURES[failure])
        noticed = beat = ended = None
        for when, line in program.until(failed + limit):
            if line is None:
                ended = when - failed
            elif line.startswith("beat"):
                beat = when - failed
            elif line.strip() and noticed is None:
                noticed = when - failed
        if breaking.wait() != 0:
            raise SystemExit(f"failure-detection: failed to make node {LOST} fail: {FAILURES[failure]}")
        going_on = ended is None and beat is not None and beat > limit - 5
        outcome = "aborted" if ended is not None else "goes on" if going_on else "hangs"
        return record | {"outcome": outcome, "ended": ended, "noticed": noticed, "last_beat": beat, "left_over": left_over(),
                         "code": program.process.poll(), "said": "".join(program.said)[-4000:]}
    finally:
        subprocess.run(["slipway", "down", "--quiet", LAB], check=True)


def main():
    folder, limit, repeat = Path(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
    runtimes, failures, machines = sys.argv[4].split(","), sys.argv[5].split(","), sys.argv[6]
    with open(folder / "records.jsonl", "a") as records:
        for number in range(1, repeat + 1):
            for runtime in runtimes:
                for failure in failures:
                    record = trial(folder, runtime, failure, number, limit, machines)
                    print(json.dumps(record), file=records, flush=True)
                    ended = f" after {record['ended']:.1f} s" if record.get("ended") else ""
                    print(f"failure-detection: round {number}: {runtime}, {failure}: {record['outcome']}{ended}", file=sys.stderr)


main()
