#!/usr/bin/env python3
"""Runs `true` many times through another scheduler, on workers of this machine: peers.py dask|hyperqueue POINTS WORKERS.

Each point is a process, as with Slipway: both start one by their own means.
"""

import os
import subprocess
import sys
import tempfile


def dask(points, workers):
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None) as cluster:
        with Client(cluster) as client:
            run = client.map(lambda _: subprocess.run(["true"]).returncode, range(points), pure=False)
            assert sum(client.gather(run)) == 0


def hyperqueue(points, workers):
    from hyperqueue import Job, LocalCluster
    from hyperqueue.cluster import WorkerConfig

    os.chdir(tempfile.mkdtemp())
    with LocalCluster() as cluster:
        cluster.start_worker(WorkerConfig(cores=workers))
        client = cluster.client()
        job = Job(max_fails=0)
        for _ in range(points):
            job.program(["true"], stdout=None, stderr=None)
        client.wait_for_jobs([client.submit(job)])


if __name__ == "__main__":
    {"dask": dask, "hyperqueue": hyperqueue}[sys.argv[1]](int(sys.argv[2]), int(sys.argv[3]))
