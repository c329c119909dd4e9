# SPDX-License-Identifier: Apache-2.0
"""What the comparisons of run.sh share: how a contestant is started, watched and stopped, and how a table is printed."""
import argparse
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
OURS = os.path.normpath(os.path.join(HERE, "../../build/release/paceline"))
VENV = os.path.join(HERE, ".venv")
ENVIRONMENT = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
# malloc keeps what is freed.
KEEP_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "MALLOC_TOP_PAD_": str(64 << 20)}
MOST_LINES = 40  # of what a failed contestant said


def list_of(read):
    return lambda text: [read(part) for part in text.split(",")]


def one_of(known):
    def read(name):
        if name not in known:
            raise argparse.ArgumentTypeError(f"'{name}': must be one of {', '.join(known)}")
        return name
    return read


def add_common_options(parser, rounds):
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of each contestant ({rounds})")
    parser.add_argument("--limit", type=float, default=1800, help="seconds that one turn may take (1800)")
    parser.add_argument("--json", help="write all figures there")
    parser.add_argument("--paceline", metavar="PATH", default=os.environ.get("PEERS_PACELINE") or OURS,
                        help="our binary ($PEERS_PACELINE, else build/release/paceline)")
    parser.add_argument("--check", action="store_true", help=argparse.SUPPRESS)


def check_common_options(parser, options, beside=()):
    """`beside`: what must lie in the folder of our binary, too."""
    if options.rounds < 1 or options.limit <= 0:
        parser.error("--rounds must be at least 1, --limit above 0")
    for file in [options.paceline, *(os.path.join(os.path.dirname(options.paceline), name) for name in beside)]:
        if not os.path.isfile(file) or not os.access(file, os.X_OK):
            parser.error(f"{file} is missing: build it (cmake --preset release && cmake --build --preset release), or name "
                         "another build with --paceline PATH")
    if options.check:
        sys.exit(0)


def stop_what_was_started():
    """When this program is told to end: contestants lead process groups of their own, which no terminal reaches."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))


def progress(text):
    print(f"  {text}", file=sys.stderr, flush=True)


def last_lines(text):
    return "\n".join(text.splitlines()[-MOST_LINES:])


def failure(who, code, said):
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"failed (exit code {code})"
    return SystemExit(f"{who} {how}:\n{last_lines(said)}")


def too_slow(who, limit, said):
    return SystemExit(f"{who}: not ended after {limit:g} s (--limit), so stopped:\n{last_lines(said)}")


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def end(process):
    """With all that it started: each contestant leads a process group."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run(who, command, limit):
    """What `command` prints. It ends this program if it fails or takes longer than `limit` seconds."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=said, text=True,
                                   start_new_session=True)
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            end(process)
            said.seek(0)
            raise too_slow(who, limit, said.read()) from None
        finally:
            end(process)
            process.stdout.close()
        said.seek(0)
        if process.returncode != 0:
            raise failure(who, process.returncode, out + said.read())
        return out


def run_paceline(options, what, arguments):
    """The JSON of `paceline bench what arguments`."""
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "bench.json")
        run("paceline", [options.paceline, "bench", what, *map(str, arguments), "--json", file], options.limit)
        with open(file, encoding="utf-8") as text:
            return json.load(text)


class Rank:
    """A process of PyTorch's; what it says goes to files in `folder`, so that it never waits for a reader."""

    def __init__(self, rank, script, arguments, folder):
        self.rank = rank
        self.out, self.err = os.path.join(folder, f"out{rank}"), os.path.join(folder, f"err{rank}")
        libraries = ":".join(filter(None, [os.path.join(VENV, "cuda_stand_ins"), os.environ.get("LD_LIBRARY_PATH")]))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([sys.executable, os.path.join(HERE, script), str(rank), *arguments], stdout=out,
                                            stderr=err, start_new_session=True,
                                            env=dict(ENVIRONMENT, LD_LIBRARY_PATH=libraries))

    def state(self):
        """As the kernel names it: a rank that is stopped, or that runs while all others sleep, is the one to look at."""
        with open(f"/proc/{self.process.pid}/stat", encoding="utf-8") as file:
            letter = file.read().rpartition(")")[2].split()[0]
        return {"R": "running", "S": "sleeping", "T": "stopped", "D": "waiting for a disk"}.get(letter, letter)


def first_failure_of(ranks, limit):
    """The error of the first rank that fails, or of those that have not ended in time; None once all have ended well."""
    deadline = time.monotonic() + limit
    running, ends = {}, select.poll()  # sleeps, where Popen.wait(timeout) would look every few milliseconds
    for rank in ranks:
        running[os.pidfd_open(rank.process.pid)] = rank
    for fd in running:
        ends.register(fd, select.POLLIN)
    try:
        while running:
            ended = ends.poll(1e3 * max(0, deadline - time.monotonic()))
            if not ended:
                names = ", ".join(f"rank {rank.rank} ({rank.state()})" for rank in running.values())
                return too_slow(names, limit, "".join(text_of(rank.err) for rank in running.values()))
            for fd, _ in ended:
                ends.unregister(fd)
                os.close(fd)
                rank = running.pop(fd)
                if rank.process.wait() != 0:
                    return failure(f"rank {rank.rank}", rank.process.returncode, text_of(rank.err))
        return None
    finally:
        for fd in running:
            os.close(fd)


def run_torch_ranks(options, name, script, world, arguments):
    """What rank 0 of `script RANK WORLD MEETING arguments` prints as JSON on its last line. If a rank fails or hangs, all
    are stopped, and so is this program."""
    with tempfile.TemporaryDirectory() as folder:
        rest = [str(world), os.path.join(folder, "meeting"), *map(str, arguments)]
        ranks = []
        try:
            for r in range(world):
                ranks.append(Rank(r, script, rest, folder))
            error = first_failure_of(ranks, options.limit)
        finally:
            for rank in ranks:
                end(rank.process)
        if error:
            raise SystemExit(f"{name} on {world} ranks: {error}")
        return json.loads(text_of(ranks[0].out).splitlines()[-1])


def play_round(contestants, i, where):
    """Name and report of each contestant; every second round goes the other way."""
    turns = list(contestants.items())
    for name, measure in turns if i % 2 == 0 else reversed(turns):
        progress(f"{where}: {name}")
        yield name, measure()


def ratio(a, b):
    return None if a is None or not b else a / b


def cells(row, columns):
    values = [column(row) for _, column in columns]
    return " ".join("         -" if value is None else f"{value:10.2f}" for value in values)


def header(columns):
    return " ".join(f"{name:>10}" for name, _ in columns)


def write_json(path, content):
    if path:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
