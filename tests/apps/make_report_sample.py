#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints report_sample.json: invented but plausible and complete results of `paceline compare`.

Byte counts follow the real formulas and the real ring; times and losses are made up.
    python3 tests/apps/make_report_sample.py > tests/apps/report_sample.json
"""
import json
import math
import random

PARAMETERS = [("conv1.weight", 288), ("conv1.bias", 32), ("conv2.weight", 18432), ("conv2.bias", 64),
              ("fc1.weight", 1179648), ("fc1.bias", 128), ("fc2.weight", 1280), ("fc2.bias", 10)]
BUCKETS = [["fc2.bias", "fc2.weight", "fc1.bias"],
           ["fc1.weight", "conv2.bias", "conv2.weight", "conv1.bias", "conv1.weight"]]
COUNT = dict(PARAMETERS)
ELEMENTS = sum(COUNT.values())
M = 4 * ELEMENTS
BATCH = 256
OUTPUT_BYTES = 4 * 10 * BATCH
INPUT_BYTES = 4 * 28 * 28 * BATCH
STEPS = 20
WORLDS = [2, 4]


def chunks_of(count, world):
    return [(count * c // world, count * (c + 1) // world) for c in range(world)]


def bucket_counts():
    return [sum(COUNT[name] for name in names) for names in BUCKETS]


def ring_link_bytes(world):
    """Edge r -> r+1: a bucket of b bytes takes 2b - c[r] - c[r+1]."""
    totals = [0] * world
    for count in bucket_counts():
        sizes = [end - begin for begin, end in chunks_of(count, world)]
        for r in range(world):
            totals[r] += 4 * (2 * count - sizes[r] - sizes[(r + 1) % world])
    return totals


def ddp_busiest(world):
    links = ring_link_bytes(world)
    return max(links[r] + links[r - 1] for r in range(world))


def participants(name, sent, received):
    return [{"name": f"{name} {i}", "sent": s, "received": r}
            for i, (s, r) in enumerate(zip(sent, received))]


def bytes_of(by_participant, links, per_link, scatter=0, gather=0):
    loads = [p["sent"] + p["received"] for p in by_participant]
    busiest = loads.index(max(loads))
    return {"busiest": loads[busiest], "others": loads[:busiest] + loads[busiest + 1:],
            "per_link": per_link, "scatter": scatter, "gather": gather,
            "by_participant": by_participant, "links": links}


def dp_bytes(world):
    others = range(1, world)
    links = [{"from": 0, "to": d, "bytes": M} for d in others]
    links += [{"from": d, "to": 0, "bytes": M} for d in others]
    load = [(world - 1) * M] + [M] * (world - 1)
    share = (world - 1) / world
    return bytes_of(participants("device", load, load), links, [],
                    int(INPUT_BYTES * share), int(OUTPUT_BYTES * share))


def ddp_bytes(world):
    edges = ring_link_bytes(world)
    links = [{"from": r, "to": (r + 1) % world, "bytes": b} for r, b in enumerate(edges)]
    received = [edges[r - 1] for r in range(world)]
    return bytes_of(participants("rank", edges, received), links, edges)


def formula_of(counted, text):
    return {"M": M, "busiest": counted["busiest"], "others": counted["others"],
            "per_link": counted["per_link"], "text": text}


def span(kind, label, begin, end, size=0):
    return {"kind": kind, "label": label, "begin_us": round(begin, 1), "end_us": round(end, 1),
            "bytes": size}


def single_lanes(ms):
    us = 1000 * ms
    return [{"name": "process", "spans": [
        span("forward", "", 0, 0.33 * us), span("backward", "", 0.33 * us, 0.97 * us),
        span("step", "", 0.97 * us, us)]}]


def dp_lanes(world, ms):
    """A copy stands on the lane of the device that is not device 0."""
    us = 1000 * ms
    lanes = []
    for d in range(world):
        late = 0.012 * us * d
        spans = [span("forward", "", 0.05 * us + late, 0.37 * us + late),
                 span("backward", "", 0.44 * us, 0.86 * us + late)]
        if d:
            down, up, turn = f"device 0 to {d}", f"device {d} to 0", 0.02 * us * (d - 1)
            spans = [span("replicate", down, turn, turn + 0.02 * us, M),
                     span("scatter", down, turn + 0.02 * us, turn + 0.024 * us, INPUT_BYTES // world),
                     *spans, span("gather", up, 0.42 * us, 0.424 * us, OUTPUT_BYTES // world),
                     span("reduce", up, 0.905 * us + turn, 0.92 * us + turn, M)]
        else:
            spans.append(span("step", "", 0.98 * us, us))
        lanes.append({"name": f"device {d}", "spans": sorted(spans, key=lambda s: s["begin_us"])})
    return lanes


def ddp_lanes(world, ms):
    us = 1000 * ms
    sizes = [4 * count for count in bucket_counts()]
    lanes = []
    for r in range(world):
        late = 0.015 * us * (r % 3)
        end = 0.86 * us + late
        lanes.append({"name": f"rank {r}", "spans": [
            span("forward", "", late, 0.31 * us + late),
            span("backward", "", 0.31 * us + late, end),
            span("allreduce", "ddp 0 bucket 0", 0.36 * us + late, 0.41 * us, sizes[0]),
            span("allreduce", "ddp 0 bucket 1", 0.55 * us + late, 0.94 * us, sizes[1]),
            span("wait", "", end, 0.95 * us),
            span("step", "", 0.95 * us, us)]})
    return lanes


def losses_of(rng, drift):
    noise = random.Random(7)
    return [(2.3 * math.exp(-0.09 * i) + 0.42 + 0.05 * noise.random()) * (1 + drift * i * rng.uniform(-1, 1))
            for i in range(STEPS)]


def times_of(rng, ms):
    times = [round(ms * (1 + 0.05 * abs(rng.gauss(0, 1))), 3) for _ in range(STEPS)]
    return times


def quantile(values, q):
    values = sorted(values)
    return values[round(q * (len(values) - 1))]


def run_of(rng, mechanism, world, ms, single_ms, counted, text, lanes, **more):
    times = times_of(rng, ms)
    median = quantile(times, 0.5)
    speed_up = 1.0 if mechanism == "single" else single_ms / median
    losses = losses_of(rng, 0.0 if mechanism == "single" else 4e-7)
    return {"mechanism": mechanism, "ranks": world,
            "step_ms": {"median": median, "p10": quantile(times, 0.1), "p90": quantile(times, 0.9)},
            "samples_per_s": round(1000 * BATCH / median, 1),
            "speed_up": round(speed_up, 3), "efficiency": round(speed_up / world, 3),
            "processes": more["processes"], "threads": more["threads"], "bytes": counted,
            "formula": formula_of(counted, text), "messages_per_step": more.get("messages", 0),
            "header_bytes_per_step": 64 * more.get("messages", 0), "overlap": more.get("overlap"),
            "communication_ms": more.get("communication_ms"),
            "device0_peak_bytes": more["peak"], "final_loss": losses[-1], "losses": losses,
            "step_times_ms": times, "buckets": more.get("buckets", []),
            "timeline": {"step": 11, "lanes": lanes}}


def dp_peak(world):
    return 2 * M + (world - 1) * M + OUTPUT_BYTES


def ddp_peak(world):
    return 2 * M + M // world + OUTPUT_BYTES // world


def alone(rng, mechanism, ms, single_ms, threads):
    nothing = bytes_of(participants("rank", [0], [0]), [], [])
    return run_of(rng, mechanism, 1, ms, single_ms, nothing, "0", single_lanes(ms), processes=1,
                  threads=threads, peak=2 * M + OUTPUT_BYTES)


def dp(rng, world, ms, single_ms):
    return run_of(rng, "dp", world, ms, single_ms, dp_bytes(world), "2(N-1)·M", dp_lanes(world, ms),
                  processes=1, threads=2 * world + 3, peak=dp_peak(world), overlap=0.0, communication_ms=0.09 * ms)


def ddp(rng, world, ms, single_ms):
    buckets = [{"label": f"ddp 0 bucket {i}", "bytes": 4 * count, "parameters": names}
               for i, (names, count) in enumerate(zip(BUCKETS, bucket_counts()))]
    return run_of(rng, "ddp", world, ms, single_ms, ddp_bytes(world), "4(N-1)/N·M",
                  ddp_lanes(world, ms), processes=world, threads=4 * world, peak=ddp_peak(world),
                  overlap=0.79 - 0.02 * world, communication_ms=0.44 * ms,
                  messages=len(BUCKETS) * 2 * (world - 1) * world, buckets=buckets)


def traffic(worlds):
    rows = []
    for n in worlds:
        dp_load, ddp_load = 2 * (n - 1) * M, ddp_busiest(n)
        rows.append({"ranks": n,
                     "dp": {"formula": dp_load, "simulated": dp_load,
                            "measured": dp_load if n in WORLDS else None},
                     "ddp": {"formula": ddp_load, "simulated": ddp_load,
                             "measured": ddp_load if n in WORLDS else None}})
    return rows


def ring_of(world):
    count = bucket_counts()[1]
    chunks = chunks_of(count, world)

    def send(r, c):
        begin, end = chunks[c]
        return {"from": r, "to": (r + 1) % world, "chunk": c, "begin": begin, "end": end,
                "bytes": 4 * (end - begin)}

    steps = [{"phase": phase, "sends": [send(r, (r - shift - i) % world) for r in range(world)]}
             for phase, shift in [("reduce_scatter", 1), ("all_gather", 0)] for i in range(world - 1)]
    return {"ranks": world, "count": count, "element_bytes": 4, "bucket": "ddp 0 bucket 1",
            "chunks": [{"begin": b, "end": e} for b, e in chunks], "steps": steps}


def row(what, dp_text, ddp_text):
    return {"what": what, "dp": dp_text, "ddp": ddp_text}


def each(n2, n4):
    return f"N=2: {n2}; N=4: {n4}"


def table():
    return [
        {"dimension": "process model", "rows": [
            row("processes", each(1, 1), each(2, 4)),
            row("threads, together", each(7, 11), each(8, 16)),
            row("what contends",
                "one allocator, one set of LibTorch thread pools, one page table. C++ has no interpreter lock: "
                "the devices' threads do run at the same time",
                "each rank has an allocator and thread pools of its own; ranks share only cores, caches and the "
                "memory bus")]},
        {"dimension": "gradient path", "rows": [
            row("steps of a gradient",
                "parameters to every device, forward, outputs to device 0, loss, backward, gradients to device 0, "
                "added there in device order, one optimizer step",
                "backward, bucket full, all-reduce beside the rest of backward, the same mean on each rank, an "
                "optimizer step on each rank"),
            row("through device 0 / rank 0", each("9.60 MB", "28.8 MB"), each("9.60 MB", "14.4 MB")),
            row("on a ring edge", "there is no ring", each("4.80 MB", "7.20 MB")),
            row("parameters sent again, per step", each("4.80 MB", "14.4 MB"),
                "none: same start, same gradients, same parameters")]},
        {"dimension": "performance", "rows": [
            row("step, median (p10 to p90)", each("131.0 ms (127.0 to 138.9)", "140.2 ms (138.4 to 148.0)"),
                each("118.4 ms (115.3 to 121.9)", "125.5 ms (122.0 to 128.1)")),
            row("speed-up over one thread", each("1.54", "1.44"), each("1.71", "1.61")),
            row("communication, and its share behind backward", each("8.1 ms, 0 %", "19.9 ms, 0 %"),
                each("51.0 ms, 75 %", "53.5 ms, 71 %"))]},
        {"dimension": "scale", "rows": [
            row("hosts", "one: all devices belong to one process",
                "one or many: ranks meet over the network"),
            row("busiest participant",
                "grows with N, 2(N-1)·M. " + each("9.60 MB", "28.8 MB") + "; N=1024: 9.82 GB (counted)",
                "all but constant, 4(N-1)/N·M on a ring. " + each("9.60 MB", "14.4 MB")
                + "; N=1024: 19.2 MB (counted)"),
            row("memory of device 0 / rank 0", each("14.4 MB", "24.0 MB") + "; N=1024: 4.92 GB (counted)",
                each("12.0 MB", "10.8 MB") + "; N=1024: 9.60 MB (counted)")]},
    ]


def report():
    rng = random.Random(4)
    single_ms = 202.0
    worlds = [2 ** i for i in range(1, 11)]
    runs = [alone(rng, "single", 196.0, single_ms, 2), alone(rng, "single_all_cores", 112.0, single_ms, 4)]
    for n, dp_ms, ddp_ms in [(2, 127.0, 115.0), (4, 138.0, 121.0)]:
        runs += [dp(rng, n, dp_ms, single_ms), ddp(rng, n, ddp_ms, single_ms)]
    difference = max(abs(a - b) / abs(b) for run in runs
                     for a, b in zip(run["losses"], runs[0]["losses"]))
    return {
        "paceline": "0.1.0", "made": "2026-11-29T23:40:00Z",
        "command": "paceline compare -n 2,4 --model cnn --steps 20 --algorithm ring",
        "verdict": "Here, train this model with one process on all cores: 2225 images/s, 1.03 times as fast as "
                   "DDP, 2 ranks, 1.14 times as fast as DP, 2 devices, 1.75 times as fast as one thread. Why: "
                   "LibTorch's own threads use the 2 cores better than copies of the model do; on more machines "
                   "only DDP goes on.",
        "losses_agree": True, "loss_tolerance": 0.001, "largest_loss_difference": difference,
        "machine": {"cores": 2, "cpu": "Example CPU @ 2.70 GHz", "memory_bytes": 8326434816,
                    "system": "Linux 6.1 x86_64", "libtorch": "2.15.0"},
        "model": {"name": "cnn", "description": "two convolutions, two linear layers",
                  "parameters": ELEMENTS, "trainable_bytes": M, "tensors": len(PARAMETERS)},
        "data": {"name": "Fashion-MNIST", "samples": 60000, "unit": "images"},
        "settings": {"steps": STEPS, "warm_up_steps": 2, "batch_size": BATCH, "algorithm": "ring",
                     "learning_rate": 0.01, "ranks": WORLDS},
        "runs": runs, "traffic": traffic(worlds),
        "growth": [{"ranks": n, "dp_device0_peak_bytes": dp_peak(n), "ddp_device0_peak_bytes": ddp_peak(n)}
                   for n in worlds],
        "ring": ring_of(4), "table": table(),
        "notes": ["All devices and ranks of this run are on one host: what a network would cost is not measured.",
                  "Memory is that of parameters, gradients and outputs; what autograd keeps for backward is not "
                  "measured."],
    }


if __name__ == "__main__":
    print(json.dumps(report(), indent=1, ensure_ascii=False))
