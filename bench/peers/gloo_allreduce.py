# SPDX-License-Identifier: Apache-2.0
"""One rank of the comparison that allreduce.sh makes, on PyTorch's Gloo. Prints one JSON line from rank 0.

Usage: gloo_allreduce.py RANK WORLD RENDEZVOUS_FILE SIZES ITERATIONS
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist


def time_size(world, rank, size_bytes, iterations):
    data = torch.empty(size_bytes // 4)
    times = []
    for i in range(-3, iterations):
        data.fill_(rank + 1)
        dist.barrier()
        begin = time.perf_counter()
        dist.all_reduce(data)
        if i >= 0:
            times.append(time.perf_counter() - begin)
        assert bool((data == world * (world + 1) / 2).all()), "a wrong sum"
    return {"bytes": size_bytes, "median_us": 1e6 * statistics.median(times)}


def main():
    rank, world, meeting = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    sizes, iterations = [int(s) for s in sys.argv[4].split(",")], int(sys.argv[5])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    rows = [time_size(world, rank, size, iterations) for size in sizes]
    if rank == 0:
        print(json.dumps({"ranks": world, "torch": torch.__version__, "rows": rows}), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
