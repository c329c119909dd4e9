# SPDX-License-Identifier: Apache-2.0
"""One rank of the comparison of steps that run.sh makes: PyTorch's DDP over Gloo, beside the same ranks that train alone
at the same time; in turns, one thread per rank. The models are those of `paceline bench step`, parameter for parameter.
Prints one JSON line from rank 0.

Usage: step_peer.py RANK WORLD RENDEZVOUS_FILE STEPS MODEL OPTIMIZER
"""
import json
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

WARM_UP = 5
STRETCHES = 4
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


# name: how it is made, one rank's batch
MODELS = {
    "mlp": (Mlp, lambda: torch.randn(8, 2048)),
    "cnn": (Cnn, lambda: torch.randn(32, 1, 28, 28)),
    "gpt": (lambda: Gpt(256, 1024), lambda: text(8)),
    "gpt-wide": (lambda: Gpt(512, 2048), lambda: text(16)),
}
OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.001),
    "adam": lambda parameters: torch.optim.Adam(parameters, lr=0.0001, fused=True),
}


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


def stretch(make, optimizer, batch, steps, ddp_first):
    """Steps of both ways with new models, in turns; each time is the slowest rank's."""
    wraps = {"local": lambda model: model,
             "ddp": lambda model: DistributedDataParallel(model, gradient_as_bucket_view=True)}
    ways = {mode: Trainer(wraps[mode](make()), optimizer, batch)
            for mode in (sorted(wraps) if ddp_first else sorted(wraps, reverse=True))}
    for i in range(WARM_UP + steps):
        for way in list(ways.values()) if i % 2 == 0 else reversed(ways.values()):
            dist.barrier()
            way.step()
    return {mode: slowest(way.ms[WARM_UP:]) for mode, way in ways.items()}


def train(name, optimizer, steps):
    """As `paceline bench step` does it: where a model lies in memory decides a percent or two."""
    make, make_batch = MODELS[name]
    torch.manual_seed(0)
    local, batch = make(), make_batch()
    times, overheads = {"local": [], "ddp": []}, []
    for i in range(STRETCHES):
        count = steps // STRETCHES + (i < steps % STRETCHES)
        if count == 0:
            continue
        part = stretch(make, optimizer, batch, count, ddp_first=i % 2 == 1)
        overheads.append(statistics.median(ddp - alone for ddp, alone in zip(part["ddp"], part["local"])))
        for mode, ms in part.items():
            times[mode] += ms
    rows = [{"mode": mode, "optimizer": optimizer, "step_ms": {"min": min(ms), "median": statistics.median(ms)},
             "overhead_ms": statistics.mean(overheads) if mode == "ddp" else 0, "steps_ms": ms}
            for mode, ms in times.items()]
    return {"ranks": dist.get_world_size(), "model": name, "torch": torch.__version__,
            "parameters": sum(parameter.numel() for parameter in local.parameters()),
            "tensors": len(list(local.parameters())), "batch": batch.shape[0], "rows": rows}


def main():
    rank, world, meeting, steps = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    report = train(sys.argv[5], sys.argv[6], steps)
    if rank == 0:
        print(json.dumps(report), flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
