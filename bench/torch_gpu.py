#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A plain script that trains a language model on a GPU: what exchanging gradients adds to a step.

    python3 bench/torch_gpu.py [--batches 8,32] [--kinds alone,auto] [--workers 2] [--servers 2] [--lanes 8] [--rounds N] [--trace FILE]

A transformer of 110.6 million parameters in f32 (442 MB of gradients), 512 tokens a sample, AdamW, bf16 autocast. Kinds
of jobs take turns, all workers on the same card: "alone", in which each trains by itself and nothing is exchanged; "auto",
the same script under psd_run, which knows nothing of Poseidon; "bf16", that with PSD_TORCH_GRADIENTS=bf16; "wrapped", with
poseidon.torch.DataParallel; "ddp", with DistributedDataParallel over gloo; and with --before TREE "before", which is
"auto" of another tree, built. Each worker has the same number of samples in all of them. Figures are the time of a step, the median of the blocks of a job and the median of the jobs,
and its ratio to that of "alone"; beside it how long worker 0 was in its three calls, which may return before the device is done. --trace: what torch's profiler saw of three steps of worker 0 under "auto", for Perfetto.
Without a GPU it says so and ends with 0."""

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
BLOCKS = 5
TOKENS, VOCABULARY, WIDTH, HEADS, LAYERS = 512, 32768, 768, 12, 12
WITHOUT = ["--auto", "off", "--personality", "torch"]  # no servers
KINDS = {"alone": WITHOUT, "auto": [], "bf16": [], "wrapped": ["--auto", "off"], "ddp": WITHOUT, "before": []}
PLAIN = ("auto", "bf16", "before")  # the script gets its share of the samples, and the job verifies itself


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", default="8,32", help="samples of each worker in a step [8,32]")
    parser.add_argument("--kinds", default="alone,auto,bf16,ddp", help="of jobs [alone,auto,bf16,ddp]")
    parser.add_argument("--before", type=os.path.abspath, help="a tree to compare with: kind \"before\"")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--servers", type=int, default=2)
    parser.add_argument("--lanes", type=int, help="of each server [as many as it chooses]")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each kind [3]")
    parser.add_argument("--steps", type=int, default=10, help="of a block; there are 5, and one to warm up [10]")
    parser.add_argument("--trace", type=os.path.abspath, help="file for a trace of worker 0")
    parser.add_argument("--kind_traced", default="auto", help="of which kind of job [auto]")
    parser.add_argument("--json", type=os.path.abspath, help="append a line for programs to this file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- a worker


def make_model(torch):
    nn = torch.nn

    class Language(nn.Module):
        """Tokens in, logits out; the output shares its weights with the embedding."""

        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(VOCABULARY, WIDTH)
            self.places = nn.Parameter(torch.zeros(TOKENS, WIDTH))
            layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, dropout=0.0, activation="gelu",
                                               batch_first=True, norm_first=True)
            self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)

        def forward(self, tokens):
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
            hidden = self.layers(self.tokens(tokens) + self.places, mask=mask, is_causal=True)
            return hidden @ self.tokens.weight.t()

    return Language()


def worker(args):
    import torch

    kind, batch = args.worker.split(":")
    batch = int(batch)
    if kind == "ddp":
        torch.distributed.init_process_group("gloo")
    torch.manual_seed(0)
    torch.set_num_threads(2)
    device = torch.device("cuda", 0)
    model = make_model(torch).to(device)
    if kind == "ddp":
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[0])
    if kind == "wrapped":
        import poseidon.torch as psd

        psd.init()
        model = psd.DataParallel(model)
    steps = (BLOCKS + 1) * args.steps
    share = args.workers if kind in PLAIN and args.workers > 1 else 1  # a plain script has everybody's samples, and gets its share of them
    data = torch.randint(0, VOCABULARY, (batch * steps * share, TOKENS), dtype=torch.int32)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(data), batch_size=batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    profiler, blocks, parts, begin = None, [], [], 0.0
    for number, (tokens,) in enumerate(loader):
        if number % args.steps == 0:
            torch.cuda.synchronize()
            blocks.append((time.perf_counter() - begin) / args.steps)
            begin = time.perf_counter()
        profiler = trace(torch, args, kind, profiler, steps - number)
        times = [time.perf_counter()]
        tokens = tokens.to(device, torch.int64, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens)
            loss = torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), tokens[:, 1:].flatten())
        times.append(time.perf_counter())
        loss.backward()
        times.append(time.perf_counter())
        optimizer.step()
        times.append(time.perf_counter())
        parts.append([after - before for before, after in zip(times, times[1:])])
    torch.cuda.synchronize()
    blocks.append((time.perf_counter() - begin) / args.steps)
    if profiler is not None:
        profiler.stop()
        profiler.export_chrome_trace(args.trace)
    blocks = blocks[2:-1] if profiler is not None else blocks[2:]  # without the start, and what the profiler slows down
    calls = [statistics.median(each) for each in zip(*parts[args.steps:-3])]
    print(json.dumps({"step_s": statistics.median(blocks), "calls_s": calls, "parameters": sum(p.numel() for p in model.parameters()),
                      "loss": loss.item()}), flush=True)


def trace(torch, args, kind, profiler, left):
    """The last three steps of worker 0."""
    if profiler is not None or left != 3 or not args.trace or kind != args.kind_traced or os.environ.get("PSD_RANK", "0") != "0":
        return profiler
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA])
    profiler.start()
    return profiler


# ---- the jobs


def run_job(args, kind, batch):
    words = [sys.executable, str(pathlib.Path(__file__).resolve()), f"--worker={kind}:{batch}",
             f"--workers={args.workers}", f"--steps={args.steps}"]
    words += [f"--trace={args.trace}", f"--kind_traced={args.kind_traced}"] if args.trace else []
    has_servers = KINDS[kind] is not WITHOUT
    options = [*KINDS[kind], *(["--servers", str(args.servers)] if has_servers else [])]
    options += ["--lanes", str(args.lanes)] if args.lanes and has_servers else []
    tree = pathlib.Path(args.before) if kind == "before" else TREE
    environment = {**os.environ, "PSD_LIB": str((tree / "bin" / "ps_server").resolve().parent / "libpsd.so.0")}
    environment |= {"PYTHONPATH": str(tree / "python")} if kind == "wrapped" else {}
    environment |= {"PSD_TORCH_GRADIENTS": "bf16"} if kind == "bf16" else {}
    with tempfile.TemporaryDirectory(prefix="psd_gpu") as directory:  # for the logs
        done = subprocess.run([str(tree / "bin" / "psd_run"), "--workers", str(args.workers), *options, "--", *words],
                              env=environment, cwd=directory, capture_output=True, text=True, check=False, timeout=300)
    found = [json.loads(line.split("] ", 1)[-1]) for line in done.stdout.splitlines() if '"step_s"' in line]
    if done.returncode != 0 or len(found) != args.workers:
        sys.exit(f"{kind}, batch {batch}: code {done.returncode}\n{done.stdout}{done.stderr}")
    if kind in PLAIN and args.workers > 1 and "verified: " not in done.stderr:
        sys.exit(f"{kind}, batch {batch}: the workers did not train together\n{done.stderr}")
    return {"step_s": max(each["step_s"] for each in found), "calls_s": found[0]["calls_s"], "losses": [each["loss"] for each in found],
            "parameters": found[0]["parameters"]}


def main():
    args = parse()
    if args.worker:
        return worker(args)
    import torch

    if not torch.cuda.is_available():
        print("no GPU here: nothing is measured")
        return 0
    kinds = args.kinds.split(",")
    print(f"{torch.cuda.get_device_name()}, {args.workers} workers, {args.servers} servers; time of a step")
    print(f"{'batch':>5} {'kind':8} {'ms':>8} {'of alone':>8}   calls of forward, backward, optimizer, ms")
    for batch in args.batches.split(","):
        found = {kind: [] for kind in kinds}
        for _ in range(args.rounds):
            for kind in kinds:
                found[kind].append(run_job(args, kind, batch))
        middle = {kind: statistics.median(each["step_s"] for each in runs) for kind, runs in found.items()}
        for kind in kinds:
            ratio = f"{middle[kind] / middle['alone']:8.2f}" if "alone" in middle else " " * 8
            calls = "  ".join(f"{seconds * 1e3:6.2f}" for seconds in found[kind][-1]["calls_s"])
            print(f"{batch:>5} {kind:8} {middle[kind] * 1e3:8.2f} {ratio}   {calls}", flush=True)
        if args.json:
            with open(args.json, "a", encoding="utf-8") as file:
                file.write(json.dumps({"batch": int(batch), "servers": args.servers, "lanes": args.lanes, **found}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
