#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A training step of the click-through example, beside torch alone and DistributedDataParallel.

    .venv-frameworks/bin/python bench/torch_sparse.py [--rows N] [--batch N] [--repeat N]

The same DeepFM (examples/pytorch/clicks.py) three times: with torch's embeddings, sparse=True, in one process; the same under
DistributedDataParallel over gloo in two processes; and with rows that are with a server, two workers. All make the same steps on
the same ids, a batch that all processes together have. They take turns, and must end with the same loss."""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
RATE, DENSE_RATE, EPSILON, START = 0.05, 0.003, 1e-10, 0.01
KINDS = {"torch": 1, "ddp": 2, "poseidon": 2}  # and how many processes
GOALS = {"torch": 1.0, "ddp": 3.0}
TOLERANCE = 1e-3  # of the loss: they add in another order
WARM_STEPS = 5


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1000000, help="of each table [%(default)s]")
    parser.add_argument("--batch", type=int, default=4096, help="lines of a step, of all processes together [%(default)s]")
    parser.add_argument("--steps", type=int, default=20, help="of a timed run [%(default)s]")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each [%(default)s]")
    parser.add_argument("--json", type=os.path.abspath, help="append lines for programs to this file")
    parser.add_argument("--kind", choices=KINDS, help=argparse.SUPPRESS)
    parser.add_argument("--rank", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--meet", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- a process that trains --------------------------------------------------------------------------------------------------


def draw(args, rank, processes):
    """This process's lines of every step: counts, ids of all columns, labels."""
    import torch
    from clicks_draw import CATEGORIES, COUNTS

    generator = torch.Generator().manual_seed(1)
    for _ in range(WARM_STEPS + args.steps):
        # few ids come often: the square of a uniform number, twice
        ids = (torch.rand(args.batch, CATEGORIES, generator=generator) ** 4 * args.rows).long()
        counts = torch.randn(args.batch, COUNTS, generator=generator)
        labels = (torch.rand(args.batch, generator=generator) < 0.25).float()
        yield [part[rank::processes].contiguous() for part in (counts, ids, labels)]


def model_of(kind, args, rank):
    """The model, and what makes a step of it."""
    import torch
    from clicks import COUNTS, CATEGORIES, WIDTH, DeepFM
    from torch import nn

    class Net(nn.Module):
        """DeepFM with embeddings of any kind."""

        forward = DeepFM.forward

        def __init__(self, effects, factors):
            super().__init__()
            self.effects, self.factors = effects, factors
            self.deep = nn.Sequential(nn.Linear(COUNTS + CATEGORIES * WIDTH, 16), nn.ReLU(), nn.Linear(16, 1))
            self.counts = nn.Linear(COUNTS, 1)

    if kind == "poseidon":
        import poseidon.torch as psd
        psd.init()
        torch.manual_seed(1)
        how = dict(rule="adagrad", learning_rate=RATE, epsilon=EPSILON)
        net = Net(psd.EmbeddingBag("effects", 1, mode="sum", **how),
                  psd.Embedding("factors", WIDTH, init="constant", init_value=START, **how))
        model = psd.DataParallel(net)
        return model, [torch.optim.Adam(model.parameters(), lr=DENSE_RATE)], psd.barrier
    torch.manual_seed(1)
    net = Net(None, None)
    net.effects = nn.EmbeddingBag(args.rows, 1, mode="sum", sparse=True, _weight=torch.zeros(args.rows, 1))
    net.factors = nn.Embedding(args.rows, WIDTH, sparse=True, _weight=torch.full((args.rows, WIDTH), START))
    dense = [*net.deep.parameters(), *net.counts.parameters()]
    rows = [net.effects.weight, net.factors.weight]
    optimizers = [torch.optim.Adam(dense, lr=DENSE_RATE), torch.optim.Adagrad(rows, lr=RATE, eps=EPSILON)]
    if kind == "torch":
        return net, optimizers, lambda: None
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method=f"file://{args.meet}", rank=rank, world_size=KINDS["ddp"])
    return nn.parallel.DistributedDataParallel(net), optimizers, dist.barrier


def train(args):
    """Prints seconds of a step and the last loss."""
    sys.path.insert(0, str(TREE / "examples" / "pytorch"))
    import torch
    torch.set_num_threads(1)
    rank, processes = args.rank, KINDS[args.kind]
    if args.kind == "poseidon":
        import poseidon.torch as psd
        psd.init()
        rank = psd.rank()
    data = list(draw(args, rank, processes))
    model, optimizers, meet = model_of(args.kind, args, rank)
    begin = 0.0
    for step, (counts, ids, labels) in enumerate(data):
        if step == WARM_STEPS:
            meet()
            begin = time.perf_counter()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(model(counts, ids), labels)
        loss.backward()
        if args.kind == "poseidon" and step + 1 < len(data):
            model.module.factors.next(data[step + 1][1])
            model.module.effects.next(data[step + 1][1])
        for optimizer in optimizers:
            optimizer.step()
    meet()
    seconds = (time.perf_counter() - begin) / args.steps
    print("RESULT " + json.dumps({"seconds": seconds, "loss": loss.item()}), flush=True)


# ---- the runner -------------------------------------------------------------------------------------------------------------


def commands(kind, args, directory):
    """What to start for one run."""
    words = [sys.executable, str(pathlib.Path(__file__).resolve()), "--kind", kind]
    words += [f"--{key}={getattr(args, key)}" for key in ("rows", "batch", "steps")]
    if kind == "poseidon":
        return [[str(TREE / "bin" / "psd_run"), "--workers", str(KINDS[kind]), "--servers", "1", " ".join(words)]]
    return [words + ["--rank", str(rank), "--meet", f"{directory}/meet"] for rank in range(KINDS[kind])]


def run(kind, args):
    """Seconds of a step, the slowest process's, and the mean of the last losses: each process has its part of the batch."""
    library = (TREE / "bin" / "ps_server").resolve().parent / "libpsd.so.0"
    environment = {**os.environ, "PYTHONPATH": str(TREE / "python"), "PSD_LIB": str(library)}
    with tempfile.TemporaryDirectory(prefix="psd_sparse") as directory:
        started = [subprocess.Popen(words, env=environment, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                   for words in commands(kind, args, directory)]
        answers = [process.communicate(timeout=600) for process in started]
    results = [json.loads(line.split("RESULT ", 1)[1]) for out, _ in answers for line in out.splitlines() if "RESULT " in line]
    if len(results) != KINDS[kind]:
        sys.exit(f"torch_sparse: {kind}: {len(results)} of {KINDS[kind]} processes came to the end:\n" + "\n".join(map("\n".join, answers)))
    return max(one["seconds"] for one in results), statistics.mean(one["loss"] for one in results)


def compare(args):
    seconds = {kind: [] for kind in KINDS}
    for _ in range(args.repeat):
        losses = {}
        for kind in KINDS:
            took, losses[kind] = run(kind, args)
            seconds[kind].append(took)
        for kind, loss in losses.items():
            if abs(loss - losses["torch"]) > TOLERANCE * abs(losses["torch"]):
                sys.exit(f"torch_sparse: {kind} ends with a loss of {loss}, torch alone with {losses['torch']}: "
                         "they did not compute the same")
    ours = statistics.median(seconds["poseidon"])
    print(f"\nA step of the click-through example, {args.batch} lines, tables of {args.rows} rows, in milliseconds.\n\n"
          "| Poseidon, 2 workers | beside | | ratio | goal |\n|---|---|---|---|---|")
    for kind, goal in GOALS.items():
        theirs = statistics.median(seconds[kind])
        ratio = statistics.median(other / own for other, own in zip(seconds[kind], seconds["poseidon"]))
        title = "torch, 1 process" if kind == "torch" else "DDP over gloo, 2 processes"
        print(f"| {ours * 1e3:.1f} | {title} | {theirs * 1e3:.1f} | {ratio:.2f} | {goal:.0f} |", flush=True)
        if args.json:
            line = {"name": "sparse: training step", "rows": args.rows, "batch": args.batch, "workers": KINDS["poseidon"],
                    "value": ours * 1e3, "unit": "ms", "reference": theirs * 1e3, "reference_name": title, "ratio": ratio,
                    "goal": goal, "repeat": args.repeat}
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    if parse().kind:
        train(parse())
    else:
        compare(parse())
