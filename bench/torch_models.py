#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts under psd_run, beside DistributedDataParallel with gloo: models from small to large.

    .venv-frameworks/bin/python bench/torch_models.py [--models mlp,cnn] [--rounds N] [--steps N] [--workers 2]

Each model is one script, run as three kinds of jobs in turn: "auto", which knows nothing of Poseidon; "data_parallel", with
poseidon.torch.DataParallel; and "ddp". Rounds are interleaved, so that whatever else the machine does meets all of them.
Compared are the time of a step, the best block of each job, and the processor time of a step, servers and master
included, which is steadier on a busy machine. All kinds train on the same number of samples."""

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
KINDS = ("auto", "data_parallel", "ddp")


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default="mlp,cnn,language,resnet,wide,bert", help="which [all]")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--rounds", type=int, default=5, help="jobs of each kind [5]")
    parser.add_argument("--steps", type=int, help="of a block [by model]")
    parser.add_argument("--blocks", type=int, default=8, help="of a job, and one more to warm up [8]")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--profile", help="file for a profile of worker 0, with one kind")
    parser.add_argument("--json", type=os.path.abspath, help="append a line for programs to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- the models: each returns a module, a function of a batch that makes a loss, and inputs for n samples


def mlp(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, _classify(torch, model), (torch.randn(12800, 784), torch.randint(0, 10, (12800,))), 32


def cnn(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.Conv2d(16, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Flatten(), nn.Linear(32 * 12 * 12, 64), nn.ReLU(), nn.Linear(64, 10))
    return model, _classify(torch, model), (torch.randn(3200, 1, 28, 28), torch.randint(0, 10, (3200,))), 32


def language(torch):
    nn = torch.nn
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    model = nn.Sequential(nn.Embedding(1000, 128), nn.TransformerEncoder(layer, 2), nn.Linear(128, 1000))

    def loss(tokens, _labels):
        return nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())

    return model, loss, (torch.randint(0, 1000, (1600, 33)), torch.zeros(1600, dtype=torch.int64)), 8


def resnet(torch):
    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, begin, end, stride):
            super().__init__()
            self.path = nn.Sequential(nn.Conv2d(begin, end, 3, stride, 1, bias=False), nn.BatchNorm2d(end), nn.ReLU(),
                                      nn.Conv2d(end, end, 3, 1, 1, bias=False), nn.BatchNorm2d(end))
            self.short = nn.Conv2d(begin, end, 1, stride, bias=False) if stride > 1 else nn.Identity()

        def forward(self, x):
            return torch.relu(self.path(x) + self.short(x))

    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1), (128, 256, 2), (256, 256, 1), (256, 512, 2),
              (512, 512, 1)]
    model = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
                          *(Block(*width) for width in widths), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model, _classify(torch, model), (torch.randn(800, 3, 32, 32), torch.randint(0, 10, (800,))), 4


def wide(torch):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(784, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 256),
                          nn.ReLU(), nn.Linear(256, 10))
    return model, _classify(torch, model), (torch.randn(3200, 784), torch.randint(0, 10, (3200,))), 16


def bert(torch):
    import transformers

    config = transformers.BertConfig(vocab_size=1000, hidden_size=128, num_hidden_layers=2, num_attention_heads=2,
                                     intermediate_size=512, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    model = transformers.BertForSequenceClassification(config)

    def loss(tokens, labels):
        return torch.nn.functional.cross_entropy(model(input_ids=tokens).logits, labels)

    return model, loss, (torch.randint(0, 1000, (800, 32)), torch.randint(0, 2, (800,))), 4


def _classify(torch, model):
    return lambda inputs, labels: torch.nn.functional.cross_entropy(model(inputs), labels)


MODELS = {"mlp": (mlp, 100), "cnn": (cnn, 20), "language": (language, 20), "resnet": (resnet, 4), "wide": (wide, 4),
          "bert": (bert, 10)}


# ---- a worker


def job_cpu_s():
    """Processor time of this machine's part of the job: all children of our parent."""
    total, parent = 0, str(os.getppid())
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[1] == parent:
            total += int(fields[11]) + int(fields[12])
    return total / os.sysconf("SC_CLK_TCK")


def worker(args):
    kind, name = args.worker.split(":")
    import torch

    if kind == "ddp":
        torch.distributed.init_process_group("gloo")
        rank = torch.distributed.get_rank()
    elif kind == "data_parallel":
        import poseidon.torch as psd

        psd.init()
        rank = psd.rank()
    else:
        rank = int(os.environ.get("PSD_LOCAL_RANK", "0"))
    torch.set_num_threads(1)
    torch.manual_seed(0)
    make, steps = MODELS[name]
    steps = args.steps or steps
    model, loss_of, data, batch = make(torch)
    if kind == "ddp":
        _wrap(model, torch.nn.parallel.DistributedDataParallel(model))
    elif kind == "data_parallel":
        _wrap(model, psd.DataParallel(model))
    if kind != "auto":  # a plain script has the whole batch, and each worker a part of it
        data = [part[rank::args.workers] for part in data]
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*data), batch)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    blocks = []
    done, begin, cpu, all_cpu = 0, 0.0, 0.0, 0.0
    profiler = None
    while len(blocks) <= args.blocks:
        for inputs, labels in loader:
            if done == steps:  # the first block warms up
                blocks.append((time.perf_counter() - begin) / steps if begin else 0.0)
                if len(blocks) == 1:
                    cpu, all_cpu = time.process_time(), job_cpu_s()
                    profiler = _profiler(args, rank)
                if len(blocks) > args.blocks:
                    break
                done, begin = 0, time.perf_counter()
            optimizer.zero_grad()
            loss_of(inputs, labels).backward()
            optimizer.step()
            done += 1
    if profiler is not None:
        profiler.disable()
        profiler.dump_stats(args.profile)
    count = args.blocks * steps
    if rank == 0:
        print(json.dumps({"step_s": min(blocks[1:]), "median_s": statistics.median(blocks[1:]),
                          "parameters": sum(each.numel() for each in model.parameters()),
                          "cpu_s": (time.process_time() - cpu) / count, "job_cpu_s": (job_cpu_s() - all_cpu) / count}),
              flush=True)


def _profiler(args, rank):
    if not args.profile or rank != 0:
        return None
    import cProfile

    profiler = cProfile.Profile(time.thread_time)  # processor time: waits are somebody else's
    profiler.enable()
    return profiler


def _wrap(model, wrapper):
    """The losses call the model; from now on that is the wrapper, whose own call is of the class."""
    inner = model.forward
    state = {"inside": False}

    def forward(*words, **named):
        if state["inside"]:
            return inner(*words, **named)
        state["inside"] = True
        try:
            return wrapper(*words, **named)
        finally:
            state["inside"] = False

    model.forward = forward


# ---- the jobs


def run_job(args, kind, name):
    words = [sys.executable, str(pathlib.Path(__file__).resolve()), f"--worker={kind}:{name}",
             f"--workers={args.workers}", f"--blocks={args.blocks}"]
    words += [f"--steps={args.steps}"] if args.steps else []
    words += [f"--profile={os.path.abspath(args.profile)}"] if args.profile else []
    options = {"ddp": ["--personality", "torch", "--auto", "off"], "data_parallel": ["--auto", "off"],
               "auto": []}[kind]
    library = (TREE / "bin" / "ps_server").resolve().parent / "libpsd.so.0"
    environment = {**os.environ, "PSD_LIB": str(library)}
    if kind == "data_parallel":
        environment["PYTHONPATH"] = str(TREE / "python")
    with tempfile.TemporaryDirectory(prefix="psd_models") as directory:  # for the logs
        done = subprocess.run([str(TREE / "bin" / "psd_run"), "--workers", str(args.workers),
                               *([] if kind == "ddp" else ["--servers", "1"]), *options, "--", *words],
                              env=environment, cwd=directory, capture_output=True, text=True, check=False)
    found = [line.split("] ", 1)[-1] for line in done.stdout.splitlines() if '"step_s"' in line]
    if done.returncode != 0 or not found:
        sys.exit(f"{kind} {name}: code {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(found[0])


def main():
    args = parse()
    if args.worker:
        return worker(args)
    kinds = args.kinds.split(",")
    print("Medians of the jobs, best block of each. Ratios are DDP's figure divided by ours: above 1 ours is faster, or takes "
          "less processor time.")
    print(f"{'model':10} {'kind':14} {'step ms':>8} {'cpu ms':>8} {'job cpu ms':>10}  {'faster':>6} {'cpu':>6} {'job cpu':>7}")
    for name in args.models.split(","):
        found = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind in kinds:
                found[kind].append(run_job(args, kind, name))
        middle = {kind: {key: statistics.median(each[key] for each in runs) for key in runs[0]}
                  for kind, runs in found.items()}
        for kind in kinds:
            mine = middle[kind]
            line = f"{name:10} {kind:14} {mine['step_s'] * 1e3:8.3f} {mine['cpu_s'] * 1e3:8.3f} {mine['job_cpu_s'] * 1e3:10.3f}"
            if kind != "ddp" and "ddp" in middle:
                line += "  {:6.2f} {:6.2f} {:7.2f}".format(*(middle["ddp"][key] / max(mine[key], 1e-9)
                                                             for key in ("step_s", "cpu_s", "job_cpu_s")))
            print(line, flush=True)
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps({"model": name, "workers": args.workers, **found}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
