# SPDX-License-Identifier: Apache-2.0
"""All-reduces of paceline, Gloo (PyTorch) and Open MPI in turns; one table of ratios. Called by run.sh."""
import argparse
import json
import os
import statistics

from turns import (VENV, add_common_options, cells, check_common_options, header, list_of, play_round, ratio, run, run_paceline,
                   run_torch_ranks, stop_what_was_started, write_json)



def size_from(text):
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    factor = units.get(text[-1:], 1)
    digits = text[:-1] if text[-1:] in units else text
    if not digits.isdigit() or int(digits) * factor < 4 or int(digits) * factor % 4:
        raise argparse.ArgumentTypeError(f"'{text}' is no size of whole floats; write it as in 4K,1M,25M")
    return int(digits) * factor


def ranks_from(text):
    if text not in ("2", "4", "8", "16"):
        raise argparse.ArgumentTypeError(f"'{text}': must be 2, 4, 8 or 16 (sums of powers of two stay exact)")
    return int(text)


def parse():
    parser = argparse.ArgumentParser(prog="run.sh collectives", description=__doc__)
    parser.add_argument("--ranks", type=list_of(ranks_from), default=[2, 4, 8], help="numbers of ranks (2,4,8)")
    parser.add_argument("--sizes", type=list_of(size_from), default=[4 << 10, 1 << 20, 25 << 20, 100 << 20],
                        help="bytes of the buffers (4K,1M,25M,100M)")
    parser.add_argument("--seconds", type=float, default=0.5, help="for each size and turn (0.5)")
    parser.add_argument("--link", default="auto", help="ours: auto, shm or tcp (auto)")
    add_common_options(parser, rounds=5)
    options = parser.parse_args()
    check_common_options(parser, options)
    if options.seconds <= 0:
        parser.error("--seconds must be above 0")
    return options


class Contest:
    def __init__(self, options):
        self.options = options

    def ours(self, world, what, memory="resident", dtype="f32"):
        arguments = ["-n", world, "--link", self.options.link, "--seconds", self.options.seconds]
        if what != "futex":
            arguments += ["--memory", memory, "--dtype", dtype, "--sizes", self.sizes(dtype)]
        return run_paceline(self.options, what, arguments)

    def sizes(self, dtype):
        """As many elements of each type."""
        return ",".join(str(size // 2 if dtype == "bf16" else size) for size in self.options.sizes)

    def gloo(self, world, dtype="f32"):
        rest = [self.options.seconds, dtype, *self.sizes(dtype).split(",")]
        return run_torch_ranks(self.options, "Gloo", "gloo_allreduce.py", world, rest)

    def mpi(self, world):
        command = [f"{VENV}/bin/mpirun", "--oversubscribe", "--bind-to", "none", "-n", str(world)]
        command += ["--allow-run-as-root"] if os.geteuid() == 0 else []
        command += [f"{VENV}/mpi_allreduce", str(self.options.seconds), *map(str, self.options.sizes)]
        return json.loads(run("Open MPI", command, self.options.limit).splitlines()[-1])

    def contestants(self, world):
        """In the order of their turns."""
        return {
            "ours": lambda: self.ours(world, "allreduce"),
            "gloo": lambda: self.gloo(world),
            "mpi": lambda: self.mpi(world),
            "ours_private": lambda: self.ours(world, "allreduce", memory="private"),
            "gloo_bf16": lambda: self.gloo(world, "bf16"),
            "ours_bf16": lambda: self.ours(world, "allreduce", dtype="bf16"),
        }

    def single_copy(self):
        """Open MPI's ways to read another process's memory, as it lists them itself."""
        lines = run("ompi_info", [f"{VENV}/bin/ompi_info"], self.options.limit).splitlines()
        names = [line.split(":")[1].split()[0] for line in lines if "MCA smsc:" in line]
        version = [line.split(":")[1].strip() for line in lines if line.strip().startswith("Open MPI:")]
        return version[0], ", ".join(names) or "none"


def futex_us(contest, world, link):
    """A futex needs shared memory."""
    if link != "shm":
        return None
    return contest.ours(world, "futex")["rows"][0]["us"]["median"]


def run_world(contest, world):
    contestants = contest.contestants(world)
    taken, futex = {name: [] for name in contestants}, []
    for i in range(contest.options.rounds):
        for name, report in play_round(contestants, i, f"N = {world}, round {i + 1} of {contest.options.rounds}"):
            taken[name].append(report)
        one = futex_us(contest, world, taken["ours"][0]["link"])
        futex += [] if one is None else [one]
    return taken, futex


def median_us(reports, row, key="median"):
    return statistics.median(report["rows"][row]["us"][key] for report in reports)


def yardstick(reports, row, key):
    """Ours over the yardstick: the median of the rounds' ratios, and the best stretch of all."""
    whole = [ratio(report["rows"][row]["us"]["median"], report["rows"][row][key]) for report in reports]
    parts = [ratio(part["us"], part[key]) for report in reports for part in report["rows"][row]["segments"]]
    if None in whole:
        return None, None
    return statistics.median(whole), min(parts)


def rows_of(world, sizes, taken, futex):
    futex_median = statistics.median(futex) if futex else None
    for row, size in enumerate(sizes):
        us = {name: median_us(reports, row) for name, reports in taken.items()}
        roofline = yardstick(taken["ours"], row, "roofline_us")
        memcpy = yardstick(taken["ours"], row, "memcpy_us")
        yield {"ranks": world, "bytes": size, "us": us, "p99_us": median_us(taken["ours"], row, "p99"),
               "futex_us": futex_median,
               "gloo_over_ours": ratio(us["gloo"], us["ours"]), "mpi_over_ours": ratio(us["mpi"], us["ours"]),
               "gloo_over_private": ratio(us["gloo"], us["ours_private"]),
               "mpi_over_private": ratio(us["mpi"], us["ours_private"]),
               "bf16_over_f32": ratio(us["ours_bf16"], us["ours"]),
               "gloo_bf16_over_ours": ratio(us["gloo_bf16"], us["ours_bf16"]),
               "ours_over_roofline": roofline[0], "ours_over_memcpy": memcpy[0], "best_over_memcpy": memcpy[1],
               "ours_over_futex": ratio(us["ours"], futex_median)}


COLUMNS = [("ours us", lambda row: row["us"]["ours"]), ("p99 us", lambda row: row["p99_us"]),
           ("private us", lambda row: row["us"]["ours_private"]), ("gloo us", lambda row: row["us"]["gloo"]),
           ("mpi us", lambda row: row["us"]["mpi"]),
           ("gloo/ours", lambda row: row["gloo_over_ours"]), ("mpi/ours", lambda row: row["mpi_over_ours"]),
           ("gloo/priv", lambda row: row["gloo_over_private"]), ("mpi/priv", lambda row: row["mpi_over_private"]),
           ("bf16/f32", lambda row: row["bf16_over_f32"]), ("g/o bf16", lambda row: row["gloo_bf16_over_ours"]),
           ("/roofline", lambda row: row["ours_over_roofline"]), ("/memcpy", lambda row: row["ours_over_memcpy"]),
           ("best", lambda row: row["best_over_memcpy"]), ("/futex", lambda row: row["ours_over_futex"])]


def print_row(row):
    size = row["bytes"]
    name = f"{size >> 20}M" if size % (1 << 20) == 0 else f"{size >> 10}K" if size % 1024 == 0 else str(size)
    print(f"{row['ranks']:5d} {name:>6} {cells(row, COLUMNS)}", flush=True)


def main():
    options = parse()
    stop_what_was_started()
    contest = Contest(options)
    version, single_copy = contest.single_copy()
    print(f"all-reduce in place, f32 unless it says bf16 (as many elements); microseconds, medians of "
          f"{options.rounds} rounds of medians, in turns\nOpen MPI {version}, single copy by: {single_copy}; its waiting ranks "
          f"spin, and yield where there are more of them than cores\n")
    print(f"{'ranks':>5} {'bytes':>6} {header(COLUMNS)}", flush=True)
    rows, links, torch = [], {}, ""
    for world in options.ranks:
        taken, futex = run_world(contest, world)
        links[world], torch = taken["ours"][0]["link"], taken["gloo"][0]["torch"]
        for row in rows_of(world, options.sizes, taken, futex):
            print_row(row)
            rows.append(row)
    print(f"\nPyTorch {torch}; ours over {', '.join(sorted(set(links.values())))}. gloo/ours 5.00: Gloo takes five times "
          f"as long. /roofline, /memcpy, /futex: ours over these; best: the best stretch's over memcpy")
    write_json(options.json, {"openmpi": version, "single_copy": single_copy, "torch": torch, "links": links,
                              "rounds": options.rounds, "rows": rows})


if __name__ == "__main__":
    main()
