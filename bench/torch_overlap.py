#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How much of the communication hides behind the backward pass of a PyTorch model?

    .venv-frameworks/bin/python bench/torch_overlap.py [--repeat N] [--trace FILE]      (root)

The server is on one host, the worker on another: two network namespaces and a cable, shaped so that
gradients take about as long to the server and back as backward takes to compute them (the rate is
measured first). Then four kinds of steps take turns: computing alone, communicating alone, one after
the other, and as Poseidon does it. Of what there is to hide, sequential - max(computing,
communicating), at least 0.7 must be recovered. The Chrome trace shows the last steps."""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TREE = pathlib.Path(__file__).resolve().parents[1]
BIN = TREE / "bin"
ADDRESSES = ("10.215.7.1", "10.215.7.2")
TARGET = 0.7
DEADLINE_S = 580


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=16)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--repeat", type=int, default=9, help="steps of each kind [9]")
    parser.add_argument("--overlap", choices=("backward", "forward"), default="backward")
    parser.add_argument("--trace", type=os.path.abspath, default=os.path.abspath("overlap.json"),
                        help="where the Chrome trace goes [overlap.json]")
    parser.add_argument("--json", type=os.path.abspath,
                        help="append a line for programs to this file")
    parser.add_argument("--calibrate", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


# ---- the worker


class Training:
    """A chain of equal layers, and the four kinds of steps."""

    def __init__(self, args):
        import torch

        torch.set_num_threads(1)
        torch.manual_seed(0)
        layers = []
        for _ in range(args.layers):
            layers += [torch.nn.Linear(args.width, args.width, bias=False), torch.nn.ReLU()]
        self.model = torch.nn.Sequential(*layers)
        self.data = torch.randn(args.batch, args.width)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4)

    def distribute(self, args):
        import poseidon.torch as psd

        psd.init()
        psd.DistributedOptimizer(self.optimizer, model=self.model, overlap=args.overlap)
        self.engine = self.optimizer._poseidon
        self.span = psd.trace.span

    def backward(self):
        """Seconds of the backward pass."""
        with self.span("forward"):
            loss = self.model(self.data).square().mean()
        begin = time.perf_counter()
        with self.span("backward"):
            loss.backward()
        return time.perf_counter() - begin

    def computing(self):
        with self.engine.no_sync():
            self.backward()
        self.optimizer.zero_grad()

    def communicating(self):
        self.engine.note_step(self)  # so that a round is missing
        self.engine.begin_missing_round(self)
        self.engine.synchronize()

    def sequential(self):
        with self.engine.no_sync():
            self.backward()
        self.communicating()
        self.optimizer.zero_grad()

    def overlapped(self):
        self.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def timed(function):
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


def calibrate(args):
    """Prints the seconds of a backward pass and the bytes of its gradients."""
    import contextlib

    training = Training(args)
    training.span = lambda name: contextlib.nullcontext()
    seconds = statistics.median(training.backward() for _ in range(5))
    size = sum(4 * parameter.numel() for parameter in training.model.parameters())
    print(json.dumps({"backward_s": seconds, "bytes": size}))


def worker(args):
    training = Training(args)
    training.distribute(args)
    import poseidon.torch as psd

    kinds = ("computing", "communicating", "sequential", "overlapped")
    times = {kind: [] for kind in kinds}
    for kind in kinds:
        getattr(training, kind)()
    training.overlapped()
    for _ in range(args.repeat):
        for kind in kinds:
            if kind == "overlapped":
                training.overlapped()  # the step before it overlaps, too
            times[kind].append(timed(getattr(training, kind)))
            if args.overlap == "forward":
                training.optimizer.finish()
    psd.trace.start(args.trace)
    for _ in range(3):
        training.overlapped()
    psd.trace.stop()
    print(json.dumps(times))


# ---- the hosts


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=True)


class Cable:
    """Two hosts, shaped in both directions."""

    def __init__(self, rate_mbit):
        mark = os.getpid() % 100000
        self.hosts = [f"psdover{mark}a", f"psdover{mark}b"]
        ends = [f"po{mark}a", f"po{mark}b"]
        for host in self.hosts:
            ip("netns", "add", host)
        ip("link", "add", ends[0], "netns", self.hosts[0], "type", "veth", "peer", "name", ends[1],
           "netns", self.hosts[1])
        for host, end, address in zip(self.hosts, ends, ADDRESSES):
            ip("-n", host, "addr", "add", f"{address}/24", "dev", end)
            ip("-n", host, "link", "set", "lo", "up")
            ip("-n", host, "link", "set", end, "up")
            subprocess.run(["tc", "-n", host, "qdisc", "add", "dev", end, "root", "tbf", "rate",
                            f"{rate_mbit}mbit", "burst", "256kb", "latency", "50ms"], check=True)

    def on(self, number, *command):
        return ["ip", "netns", "exec", self.hosts[number], *map(str, command)]

    def remove(self):
        for host in self.hosts:
            subprocess.run(["ip", "netns", "del", host], capture_output=True, check=False)


def skip(reason):
    print(f"overlap: skipped: {reason}")
    sys.exit(0)


def worker_command(args, *more):
    words = [f"--{key}={value}" for key, value in vars(args).items()
             if value is not None and key != "calibrate"]
    return [sys.executable, str(pathlib.Path(__file__).resolve()), *words, *more]


def environment(**more):
    library = (BIN / "ps_server").resolve().parent / "libpsd.so.0"
    return {**os.environ, "PYTHONPATH": str(TREE / "python"), "PSD_LIB": str(library), **more}


def measure(args, rate_mbit):
    """The times of all kinds of steps, on two hosts of which this one knows nothing."""
    cable, daemons = Cable(rate_mbit), []
    with tempfile.TemporaryDirectory(prefix="psd_overlap") as directory:
        secret, ready = f"{directory}/secret", f"{directory}/ready"
        try:
            subprocess.run([BIN / "psd_run", "secret", secret], check=True)
            os.mkfifo(ready)
            variables = environment(PSD_SECRET_FILE=secret)
            log = open(f"{directory}/daemons", "w", encoding="utf-8")
            daemons.append(subprocess.Popen(
                ["sh", "-c", 'exec 3>"$1"; shift; exec "$@"', "sh", ready,
                 *cable.on(0, BIN / "ps_master", "--workers", 1, "--servers", 1, "--bind",
                           ADDRESSES[0], "--port", 0, "--ready_fd", 3)],
                env=variables, stdout=log, stderr=log))
            with open(ready, encoding="utf-8") as pipe:
                master = pipe.readline().strip()
            daemons.append(subprocess.Popen(
                cable.on(0, BIN / "ps_server", "--index", 0, "--master_address", master, "--bind",
                         ADDRESSES[0]), env=variables, stdout=log, stderr=log))
            done = subprocess.run(
                cable.on(1, *worker_command(args)), capture_output=True, text=True, check=False,
                timeout=DEADLINE_S, env={**variables, "PSD_MASTER_ADDRESS": master,
                                         "PSD_RANK": "0"})
            if done.returncode != 0:
                said = pathlib.Path(directory, "daemons").read_text(encoding="utf-8")
                sys.exit(f"overlap: the worker failed:\n{done.stdout}{done.stderr}\n{said}")
            return json.loads(done.stdout.splitlines()[-1])
        finally:
            for daemon in daemons:
                if daemon.poll() is None:
                    daemon.terminate()
                daemon.wait()
            cable.remove()


def report(args, rate_mbit, times):
    middle = {kind: statistics.median(seconds) for kind, seconds in times.items()}
    hidden = middle["sequential"] - max(middle["computing"], middle["communicating"])
    share = (middle["sequential"] - middle["overlapped"]) / hidden if hidden > 0 else 0.0
    for kind, seconds in middle.items():
        print(f"overlap: {kind:14} {seconds * 1e3:8.1f} ms a step")
    print(f"overlap: at {rate_mbit} Mbit/s {share:.2f} of what can be hidden is hidden, "
          f"target >= {TARGET}: "
          f"{'met' if share >= TARGET else 'MISSED'}; trace in {args.trace}")
    if args.json:
        line = {"name": "torch_overlap", "overlap": args.overlap, "value": share, "unit": "share",
                "rate_mbit": rate_mbit, "target": TARGET, **middle}
        with open(args.json, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def main():
    args = parse()
    if args.calibrate:
        calibrate(args)
    elif "PSD_MASTER_ADDRESS" in os.environ:
        worker(args)
    else:
        if os.geteuid() != 0:
            skip("network namespaces need root")
        if shutil.which("tc") is None or shutil.which("ip") is None:
            skip("no ip and tc: apt-get install iproute2")
        done = subprocess.run(worker_command(args, "--calibrate"), capture_output=True, text=True,
                              check=True, env=environment(), timeout=DEADLINE_S)
        found = json.loads(done.stdout)
        rate_mbit = max(20, round(found["bytes"] * 8 / found["backward_s"] / 1e6))
        report(args, rate_mbit, measure(args, rate_mbit))


if __name__ == "__main__":
    main()
