# SPDX-License-Identifier: Apache-2.0
"""Training steps of PyTorch's DDP over Gloo, beside the same ranks that train alone at the same time; in turns, one
thread per rank. Called by run.sh. The models are those of `paceline bench step`, parameter for parameter."""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 5
CLASSES = 10
VOCABULARY, CONTEXT, HEADS, BLOCKS = 128, 64, 4, 4


class Mlp(nn.Sequential):
    def __init__(self, width=2048):
        layers = [part for _ in range(3) for part in (nn.Linear(width, width), nn.ReLU())]
        super().__init__(*layers, nn.Linear(width, CLASSES))


class Cnn(nn.Module):
    """Of examples/03_ddp_fashion_mnist."""

    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, CLASSES)

    def forward(self, x):
        x = torch.relu(self.conv2(torch.relu(self.conv1(x))))
        return self.fc2(torch.relu(self.fc1(torch.max_pool2d(x, 2).flatten(1))))


class Block(nn.Module):
    """Pre-norm: attention, then a feed-forward part with GELU."""

    def __init__(self, width, hidden):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, hidden), nn.Linear(hidden, width)

    def attend(self, x):
        batch, length, width = x.shape
        heads = self.qkv(x).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = nn.functional.scaled_dot_product_attention(*heads.unbind(0), is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, width))

    def forward(self, x):
        x = x + self.attend(self.norm1(x))
        return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Mean over positions, then a linear layer; no norm at the end."""

    def __init__(self, width, hidden):
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.Sequential(*(Block(width, hidden) for _ in range(BLOCKS)))
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.positions(torch.arange(CONTEXT))
        return self.head(self.blocks(x).mean(1))


def text(batch):
    return torch.randint(VOCABULARY, (batch, CONTEXT))


# name: how it is made, one rank's batch, parameters
MODELS = {
    "mlp": (Mlp, lambda: torch.randn(8, 2048), 12_609_546),
    "cnn": (Cnn, lambda: torch.randn(32, 1, 28, 28), 1_199_882),
    "gpt": (lambda: Gpt(256, 1024), lambda: text(8), 3_210_762),
    "gpt-wide": (lambda: Gpt(512, 2048), lambda: text(16), 12_712_970),
}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.001),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.0001, fused=True),
}


def count_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


class Trainer:
    def __init__(self, model, optimizer, batch):
        self.model, self.batch = model, batch
        self.optimizer = OPTIMIZERS[optimizer](model.parameters())
        self.classes = torch.arange(batch.shape[0]) % CLASSES
        self.ms = []

    def step(self):
        begin = time.perf_counter()
        self.optimizer.zero_grad()
        nn.functional.cross_entropy(self.model(self.batch), self.classes).backward()
        self.optimizer.step()
        self.ms.append(1e3 * (time.perf_counter() - begin))


def slowest(ms):
    times = torch.tensor(ms, dtype=torch.float64)
    dist.all_reduce(times, op=dist.ReduceOp.MAX)
    return times.tolist()


def train(name, optimizer, steps):
    """Steps of both ways, in turns; each time is the slowest rank's."""
    make, make_batch, expected = MODELS[name]
    torch.manual_seed(0)
    local = make()
    if count_parameters(local) != expected:
        raise SystemExit(f"{name} has {count_parameters(local)} parameters, not {expected}")
    batch = make_batch()
    ways = {"local": Trainer(local, optimizer, batch),
            "ddp": Trainer(DistributedDataParallel(make(), gradient_as_bucket_view=True), optimizer, batch)}
    for i in range(WARM_UP + steps):
        for way in list(ways.values()) if i % 2 == 0 else reversed(ways.values()):
            dist.barrier()
            way.step()
    times = {mode: slowest(way.ms[WARM_UP:]) for mode, way in ways.items()}
    overheads = [ddp - alone for ddp, alone in zip(times["ddp"], times["local"])]
    rows = [{"mode": mode, "optimizer": optimizer, "step_ms": {"min": min(ms), "median": statistics.median(ms)},
             "overhead_ms": statistics.median(overheads) if mode == "ddp" else 0} for mode, ms in times.items()]
    return {"ranks": dist.get_world_size(), "model": name, "parameters": expected, "rows": rows}


def run_rank(arguments):
    rank, world, meeting, steps = int(arguments[0]), int(arguments[1]), arguments[2], int(arguments[3])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    for model in arguments[4].split(","):
        for optimizer in arguments[5].split(","):
            report = train(model, optimizer, steps)
            if rank == 0:
                print(json.dumps(report), flush=True)
    dist.barrier()
    dist.destroy_process_group()


def run_world(world, options):
    with tempfile.TemporaryDirectory() as folder:
        rest = [os.path.join(folder, "meeting"), str(options.steps), ",".join(options.models), ",".join(options.optimizers)]
        environment = dict(os.environ, OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo")
        ranks = [subprocess.Popen([sys.executable, __file__, "--rank", str(r), str(world), *rest], env=environment,
                                  stdout=subprocess.PIPE if r == 0 else None, text=True) for r in range(world)]
        for line in ranks[0].stdout:
            report = json.loads(line)
            print_report(report)
            yield report
        codes = [rank.wait() for rank in ranks]
        if any(codes):
            raise SystemExit(f"a rank of {world} failed: exit codes {codes}")


def print_report(report):
    local, ddp = (row["step_ms"]["median"] for row in report["rows"])
    print(f"{report['ranks']:5d} {report['model']:>9} {report['parameters']:>11,} {report['rows'][0]['optimizer']:>9} "
          f"{local:10.2f} {ddp:10.2f} {report['rows'][1]['overhead_ms']:12.2f}", flush=True)


def names_of(known):
    def read(text_of_names):
        names = text_of_names.split(",")
        for name in names:
            if name not in known:
                raise argparse.ArgumentTypeError(f"'{name}': must be one of {', '.join(known)}")
        return names
    return read


def parse():
    parser = argparse.ArgumentParser(prog="run.sh steps", description=__doc__)
    parser.add_argument("--ranks", type=lambda t: [int(n) for n in t.split(",")], default=[2, 4], help="numbers of ranks (2,4)")
    parser.add_argument("--models", type=names_of(MODELS), default=list(MODELS), help=f"of {','.join(MODELS)} (all)")
    parser.add_argument("--optimizers", type=names_of(OPTIMIZERS), default=["sgd"], help="sgd, adam (fused) (sgd)")
    parser.add_argument("--steps", type=int, default=30, help="that are measured, each way (30)")
    parser.add_argument("--json", help="write all figures there")
    options = parser.parse_args()
    if options.steps < 1 or min(options.ranks) < 1:
        parser.error("--steps and --ranks must be at least 1")
    return options


def main():
    options = parse()
    print(f"PyTorch {torch.__version__}, ms of a step: the slowest rank's, medians; overhead: median of paired differences")
    print(f"{'ranks':>5} {'model':>9} {'parameters':>11} {'optimizer':>9} {'local':>10} {'ddp':>10} {'overhead':>12}", flush=True)
    reports = [report for world in options.ranks for report in run_world(world, options)]
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump({"torch": torch.__version__, "steps": options.steps, "reports": reports}, file, indent=1)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        run_rank(sys.argv[2:])
    else:
        main()
