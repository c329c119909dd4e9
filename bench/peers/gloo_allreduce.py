# SPDX-License-Identifier: Apache-2.0
"""One rank of the comparison that run.sh makes, on PyTorch's Gloo: all-reduces in place, back to back, every
result checked. Prints one JSON line from rank 0.

Usage: gloo_allreduce.py RANK WORLD RENDEZVOUS_FILE SECONDS DTYPE BYTES...
"""
import json
import sys
import time

import torch
import torch.distributed as dist

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
MOST_TIMES = 20000
ROUND = 31  # calls; small integers times so many powers of two are exact in both types


def run_round(data, rank, world, calls):
    """Refills, makes one call that does not count and `calls` that do; the last result tells of all."""
    data.fill_(rank + 1)
    dist.barrier()
    dist.all_reduce(data)
    stamps = [time.perf_counter()]
    for _ in range(calls):
        dist.all_reduce(data)
        stamps.append(time.perf_counter())
    want = world * (world + 1) / 2 * float(world) ** calls
    assert bool((data == want).all()), "a wrong sum"
    return [end - begin for begin, end in zip(stamps, stamps[1:])]


def agreed(number, least, most):
    value = torch.tensor([min(max(int(number), least), most)])
    dist.broadcast(value, 0)
    return int(value)


def time_size(rank, world, size_bytes, dtype, seconds):
    data = torch.empty(size_bytes // dtype.itemsize, dtype=dtype)
    run_round(data, rank, world, 2)
    estimate = min(run_round(data, rank, world, 2))
    wanted = agreed(seconds / estimate, 5, MOST_TIMES)
    times = []
    while len(times) < wanted:
        times += run_round(data, rank, world, min(wanted, ROUND))
    slowest = torch.tensor(times, dtype=torch.float64)
    dist.all_reduce(slowest, op=dist.ReduceOp.MAX)
    us = (1e6 * slowest).sort().values.tolist()
    return {"bytes": size_bytes, "us": {"min": us[0], "median": us[len(us) // 2], "p99": us[len(us) * 99 // 100]}}


def main():
    rank, world, meeting = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    seconds, dtype, sizes = float(sys.argv[4]), DTYPES[sys.argv[5]], [int(size) for size in sys.argv[6:]]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    rows = [time_size(rank, world, size, dtype, seconds) for size in sizes]
    if rank == 0:
        print(json.dumps({"ranks": world, "torch": torch.__version__, "rows": rows}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
