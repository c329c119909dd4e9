# SPDX-License-Identifier: Apache-2.0
"""Training steps of paceline and of PyTorch's DDP in turns, each beside the same ranks that train alone; one table of
ratios. Called by run.sh. One rank, and the model `many`, are ours alone."""
import argparse
import statistics

from turns import (ENVIRONMENT, KEEP_MEMORY, add_common_options, cells, check_common_options, header, list_of, one_of,
                   play_round, ratio, run_paceline, run_torch_ranks, stop_what_was_started, write_json)

MODELS = ["mlp", "cnn", "gpt", "gpt-wide", "many"]
WITHOUT_PEER = ["many"]
SAME_ON_BOTH_SIDES = ["parameters", "tensors", "batch"]


def ranks_from(text):
    if not text.isdigit() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"'{text}': must be a number of ranks from 1 to 64")
    return int(text)


def parse():
    parser = argparse.ArgumentParser(prog="run.sh steps", description=__doc__)
    parser.add_argument("--ranks", type=list_of(ranks_from), default=[1, 2, 4], help="numbers of ranks (1,2,4)")
    parser.add_argument("--models", type=list_of(one_of(MODELS)), default=MODELS, help=f"of {','.join(MODELS)} (all)")
    parser.add_argument("--optimizers", type=list_of(one_of(["sgd", "adam"])), default=["sgd"],
                        help="sgd, adam; PyTorch's Adam is the fused one (sgd)")
    parser.add_argument("--modes", type=list_of(one_of(["local", "ddp", "shared"])), default=["local", "ddp", "shared"],
                        help="of ours (local,ddp,shared)")
    parser.add_argument("--steps", type=int, help="that are measured, of each mode in each turn (30 to 150)")
    add_common_options(parser, rounds=3)
    parser.add_argument("--keep-memory", action="store_true",
                        help="malloc keeps what is freed, on both sides: else PyTorch's gradients are new pages in each step")
    options = parser.parse_args()
    check_common_options(parser, options, beside=["paceline-step"])
    if options.keep_memory:
        ENVIRONMENT.update(KEEP_MEMORY)
    if options.steps is not None and options.steps < 1:
        parser.error("--steps must be at least 1")
    return options


def ours(options, world, model, optimizer):
    steps = [] if options.steps is None else ["--steps", options.steps]
    return run_paceline(options, "step", ["-n", world, "--model", model, "--optimizer", optimizer,
                                          "--mode", ",".join(options.modes), *steps])


def pytorch(options, world, model, optimizer, like):
    """As many steps as our report `like` has."""
    return run_torch_ranks(options, f"PyTorch's DDP ({model}, {optimizer})", "step_peer.py", world,
                           [len(like["rows"][0]["steps_ms"]), model, optimizer])


def contestants_of(options, world, model, optimizer, reports):
    """`reports` gets what they report; the first round begins with ours."""
    contestants = {"ours": lambda: ours(options, world, model, optimizer)}
    if world > 1 and model not in WITHOUT_PEER:
        contestants["pytorch"] = lambda: pytorch(options, world, model, optimizer, reports["ours"][0])
    return contestants


def check_same(reports):
    """Both sides train the same model, or times say nothing."""
    for key in SAME_ON_BOTH_SIDES:
        values = {name: taken[-1][key] for name, taken in reports.items() if taken}
        if len(set(values.values())) > 1:
            raise SystemExit(f"{reports['ours'][-1]['model']} is not the same on both sides: "
                             f"{values['ours']} {key} in paceline, {values['pytorch']} in PyTorch")


def run_turns(options, world, model, optimizer):
    reports = {}
    contestants = contestants_of(options, world, model, optimizer, reports)
    reports.update({name: [] for name in contestants})
    for i in range(options.rounds):
        where = f"N = {world}, {model}, {optimizer}, round {i + 1} of {options.rounds}"
        for name, report in play_round(contestants, i, where):
            reports[name].append(report)
            check_same(reports)
    return reports


def figures_of(reports):
    """Of one side, by mode: medians over the rounds, and the least in-place share of gradient bytes."""
    figures = {}
    for mode in (row["mode"] for row in reports[0]["rows"]):
        rows = [row for report in reports for row in report["rows"] if row["mode"] == mode]
        overheads = [row["overhead_ms"] for row in rows if row["overhead_ms"] is not None]
        shares = [ratio(row["bytes_in_place"], row["bytes_in_place"] + row["bytes_copied"])
                  for row in rows if "bytes_in_place" in row]
        figures[mode] = {
            "step_ms": statistics.median(row["step_ms"]["median"] for row in rows),
            "overhead_ms": statistics.median(overheads) if overheads else None,
            "in_place_share": min(shares) if shares and None not in shares else None}
    return figures


def times(factor, value):
    return None if value is None else factor * value


def row_of(reports, world, optimizer):
    first = reports["ours"][0]
    mine = figures_of(reports["ours"])
    theirs = figures_of(reports["pytorch"]) if "pytorch" in reports else {}

    def of(side, mode, key="step_ms"):
        return side.get(mode, {}).get(key)

    overhead, their_overhead = of(mine, "ddp", "overhead_ms"), of(theirs, "ddp", "overhead_ms")
    return {"ranks": world, "model": first["model"], "optimizer": optimizer, "link": first["link"],
            **{key: first[key] for key in SAME_ON_BOTH_SIDES}, "ours": mine, "pytorch": theirs,
            "overhead_ratio": ratio(overhead, their_overhead) if (their_overhead or 0) > 0 else None,
            "pytorch_ddp_over_ours": ratio(of(theirs, "ddp"), of(mine, "ddp")),
            "overhead_percent_of_local": times(100, ratio(overhead, of(mine, "local"))),
            "overhead_us_per_tensor": times(1e3, ratio(overhead, first["tensors"])),
            "shared_over_local": ratio(of(mine, "shared"), of(mine, "local")),
            "shared_over_pytorch_local": ratio(of(mine, "shared"), of(theirs, "local")),
            "in_place_percent": times(100, of(mine, "ddp", "in_place_share"))}


def figure(side, mode, key="step_ms"):
    return lambda row: row[side].get(mode, {}).get(key)


def entry(key):
    return lambda row: row[key]


COLUMNS = [("local ms", figure("ours", "local")), ("ddp ms", figure("ours", "ddp")),
           ("shared ms", figure("ours", "shared")),
           ("PT local", figure("pytorch", "local")), ("PT ddp", figure("pytorch", "ddp")),
           ("over ms", figure("ours", "ddp", "overhead_ms")), ("PT over", figure("pytorch", "ddp", "overhead_ms")),
           ("over/PT", entry("overhead_ratio")), ("PT/ddp", entry("pytorch_ddp_over_ours")),
           ("over %", entry("overhead_percent_of_local")), ("us/tensor", entry("overhead_us_per_tensor")),
           ("sh/local", entry("shared_over_local")), ("sh/PT loc", entry("shared_over_pytorch_local")),
           ("in place %", entry("in_place_percent"))]

LEGEND = """PT: PyTorch {torch}, its Adam fused; ours over {links}. over: what a DDP step took longer than a local one of
the same turn: medians of four stretches with new models, and their mean. over/PT: our overhead over PyTorch's; PT/ddp 3.00:
a DDP step of PyTorch takes three times as long as ours; over %, us/tensor: our overhead of our local step, and for each
tensor of parameters; sh/local, sh/PT loc: a step of the shared optimizer over our local one, and PyTorch's; in place %: of
gradient bytes, the least of all rounds"""


def main():
    options = parse()
    stop_what_was_started()
    print(f"milliseconds of a step, the slowest rank's, one thread per rank; medians of {options.rounds} rounds of medians of "
          f"{options.steps or '30 to 150'} steps, in turns\n\n{'ranks':>5} {'model':>8} {'opt':>4} {header(COLUMNS)}", flush=True)
    rows, turns, torch = [], [], None
    for world, model, optimizer in ((n, m, o) for n in options.ranks for m in options.models for o in options.optimizers):
        reports = run_turns(options, world, model, optimizer)
        torch = reports["pytorch"][0]["torch"] if "pytorch" in reports else torch
        rows.append(row_of(reports, world, optimizer))
        turns.append({"ranks": world, "model": model, "optimizer": optimizer, **reports})
        print(f"{world:5d} {model:>8} {optimizer:>4} {cells(rows[-1], COLUMNS)}", flush=True)
        write_json(options.json, {"torch": torch, "rounds": options.rounds, "steps": options.steps,
                                  "cores": reports["ours"][0]["cores"], "rows": rows, "turns": turns})
    print("\n" + LEGEND.format(torch=torch or "(did not run)", links=", ".join(sorted({row["link"] for row in rows}))))


if __name__ == "__main__":
    main()
