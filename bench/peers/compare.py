# SPDX-License-Identifier: Apache-2.0
"""Runs paceline and Gloo in turns and prints one table of ratios. Called by allreduce.sh.

Usage: compare.py BUILD_DIR ROUNDS
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SIZES = [4096, 1 << 20, 25 << 20]
ITERATIONS = 15
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")


def last_json(text):
    for line in reversed(text.splitlines()):
        start = line.find("{")
        if start >= 0:
            return json.loads(line[start:])
    raise SystemExit("no JSON line in:\n" + text)


def run(command):
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=300)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return last_json(done.stdout)


def ours(build, world, extra=()):
    return run([f"{build}/paceline", "run", "-n", str(world), "--", f"{build}/bench/allreduce_bench",
                "--sizes", ",".join(map(str, SIZES)), "--iterations", str(ITERATIONS), *extra])


def gloo(world):
    with tempfile.TemporaryDirectory() as folder:
        arguments = [os.path.join(folder, "meeting"), ",".join(map(str, SIZES)), str(ITERATIONS)]
        ranks = [subprocess.Popen([sys.executable, f"{HERE}/gloo_allreduce.py", str(r), str(world), *arguments],
                                  env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for r in range(world)]
        outputs = [rank.communicate(timeout=300) for rank in ranks]
    for rank, (out, err) in zip(ranks, outputs):
        if rank.returncode != 0:
            raise SystemExit(f"Gloo failed ({rank.returncode}):\n{out}{err}")
    return last_json(outputs[0][0])


def times_of(report):
    return [row["median_us"] for row in report["rows"]]


def compare(build, rounds, world):
    mine, theirs = [], []
    for i in range(rounds):
        print(f"  N = {world}: round {i + 1} of {rounds}", file=sys.stderr)
        pair = [(mine, lambda: ours(build, world)), (theirs, lambda: gloo(world))]
        for results, measure in pair if i % 2 == 0 else reversed(pair):
            results.append(times_of(measure()))
    for i, size in enumerate(SIZES):
        a = statistics.median(t[i] for t in mine)
        b = statistics.median(t[i] for t in theirs)
        print(f"{world:5d} {size:10d} {a:12.0f} {b:12.0f} {b / a:8.2f}x")


def ready_seconds(build, world):
    begin = time.time()
    report = run([f"{build}/paceline", "run", "-n", str(world), "--", f"{build}/bench/allreduce_bench",
                  "--sizes", "4", "--iterations", "1"])
    return report["ready_at"] - begin


def main():
    build, rounds = sys.argv[1], int(sys.argv[2])
    print("blocking f32 all-reduce over TCP loopback, medians; > 1: paceline is faster")
    print(f"{'ranks':>5} {'bytes':>10} {'paceline us':>12} {'gloo us':>12} {'ratio':>9}")
    for world in (2, 4):
        compare(build, rounds, world)
    idle = ours(build, 2, ["--idle"])["idle_share"]
    print(f"a waiting rank uses {100 * idle:.2f} % of a core")
    ready = statistics.median(ready_seconds(build, 8) for _ in range(5))
    print(f"8 ranks are ready {ready:.3f} s after the launcher was started")


if __name__ == "__main__":
    main()
