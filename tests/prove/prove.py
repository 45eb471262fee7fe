# SPDX-License-Identifier: Apache-2.0
"""Kills servers and masters of real jobs, again and again, and looks whether anything was lost (docs/reliability.md).

    make prove [MINUTES=10] [JOBS=1]           goes on where it was; adds to what was run of the same sources, and as long as
                                               something is missing of what is asked for (asked.py), what adds to it
    tests/prove/prove.py --seed 4              one run once more, its files are kept; SEED is all that a run depends on
    tests/prove/prove.py --only bsp            runs of one mode; --way hosts: of one kind of network
    tests/prove/prove.py --scoreboard          only writes the scoreboard of what was run

Each run is a line in OUT/runs.jsonl. What a run that failed has left is in OUT/failed-SEED."""

import argparse
import hashlib
import json
import multiprocessing
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import traceback

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
sys.path.insert(0, str(HERE))
os.environ.setdefault("PSD_BIN", str(TREE / "build-prove"))

import asked  # noqa: E402
import calm  # noqa: E402
import mnist_run  # noqa: E402
import plan as plans  # noqa: E402
import scoreboard  # noqa: E402
from board import list_points  # noqa: E402
from field_run import FieldRun  # noqa: E402
from run import Run  # noqa: E402


KINDS = {"hosts": FieldRun, "mnist shm": mnist_run.MnistRun, "mnist tcp": mnist_run.MnistRun}


def source_hash():
    """Of all that the programs are made of."""
    files = subprocess.run(["git", "ls-files", "-z", "src", "include", "meson.build"], cwd=TREE, capture_output=True,
                           text=True, check=True).stdout.split("\0")
    whole = hashlib.sha256()
    for name in sorted(filter(None, files)):
        if not name.endswith("_test.c"):
            whole.update(name.encode() + b"\0" + (TREE / name).read_bytes())
    return whole.hexdigest()[:16]


def read_runs(path):
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def missing_of(out, source):
    return asked.missing([record for record in read_runs(out / "runs.jsonl") if record["source"] == source])


def prepare_jobs(out):
    """A secret and a list of jobs of our own, as the tests have."""
    out.mkdir(parents=True, exist_ok=True)
    runtime = out / "rt"
    runtime.mkdir(mode=0o700, exist_ok=True)
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    secret = out / "secret"
    if not secret.exists():
        subprocess.run([pathlib.Path(os.environ["PSD_BIN"]) / "psd_run", "secret", secret], check=True)
    os.environ["PSD_SECRET_FILE"] = str(secret)


def run_plan(plan, out, points, keep=False, calm_steps=calm.STEPS):
    directory = out / f"run-{plan.seed}"
    run = KINDS.get(plan.way, Run)(plan, directory, points)
    record = run.run()
    if record["verdict"] == "held" and run.digest is not None:
        record["bits"] = run.digest == (mnist_run.reference(out / "calm", plan.workers) if plan.shape == "mnist" else
                                        calm.reference(out / "calm", plan, record["steps"], calm_steps))
        record["digest"] = run.digest
        if not record["bits"]:
            record.update(verdict="failed", why="not the bits of a run without deaths")
    if record["verdict"] == "failed":
        shutil.rmtree(out / f"failed-{plan.seed}", ignore_errors=True)
        directory.rename(out / f"failed-{plan.seed}")
    elif not keep:
        shutil.rmtree(directory)
    return record


def in_words(record):
    blows = ", ".join(
        ("void" if blow["void"] else f"{'+'.join(blow.get('killed', [])) or 'nobody'}"
         f"{' at ' + blow['point'] if blow['point'] else ''}{' (stop)' if blow['action'] == 'stop' else ''}")
        for blow in record["blows"])
    return f"seed {record['seed']} {record['mode']} {record['way']}: {record['verdict']} {record['why']} ({record['seconds']} s: {blows})"


def work(number, args, source, points, deadline, seeds, lock):
    """One of several that share the work, until the time is over."""
    while time.monotonic() < deadline:
        with seeds.get_lock():
            seed = seeds.value
            seeds.value += 1
        plan = plans.draw(seed)
        if (args.only and plan.mode != args.only) or (args.way and plan.way != args.way):
            continue
        if not asked.adds(plan, missing_of(args.out, source)):
            continue
        try:
            record = run_plan(plan, args.out, points)
        except (KeyboardInterrupt, SystemExit):
            return
        except BaseException:  # the tool's own fault: no run, and no proof
            record = {"seed": seed, "mode": plan.mode, "way": plan.way, "meet": False, "verdict": "failed", "seconds": 0, "blows": [],
                      "why": traceback.format_exc()[-600:], "pushes": 0, "lost": 0, "doubled": 0, "passes": {}}
        record["source"] = source
        with lock, open(args.out / "runs.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        print(f"{number}: {in_words(record)}"[:400], flush=True)


def be_interrupted(*_):
    raise KeyboardInterrupt


def prove(args, source, points):
    seen = [record["seed"] for record in read_runs(args.out / "runs.jsonl")]
    seeds = multiprocessing.Value("q", max(seen, default=args.first - 1) + 1)
    lock = multiprocessing.Lock()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, be_interrupted)
    deadline = time.monotonic() + 60 * args.minutes
    workers = [multiprocessing.Process(target=work, args=(number, args, source, points, deadline, seeds, lock))
               for number in range(args.jobs)]
    for worker in workers:
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build-prove" / "prove")
    parser.add_argument("--seed", type=int, help="one run")
    parser.add_argument("--cell", choices=plans.CELLS, help="one run of a known kind")
    parser.add_argument("--first", type=int, default=0, help="seed of the first run of all")
    parser.add_argument("--only", default="", choices=("", *plans.MODES))
    parser.add_argument("--way", default="", help="runs of one kind: shm, tcp, hosts, ...")
    parser.add_argument("--scoreboard", action="store_true", help="write it, run nothing")
    parser.add_argument("--page", type=pathlib.Path, default=TREE / "docs" / "reliability.md")
    args = parser.parse_args()
    points = list_points(os.environ["PSD_BIN"])
    source = source_hash()
    prepare_jobs(args.out)
    if args.seed is not None or args.cell:
        plan = plans.CELLS[args.cell] if args.cell else plans.draw(args.seed)
        record = run_plan(plan, args.out, points, keep=True, calm_steps=0)
        print(json.dumps({key: value for key, value in record.items() if key != "passes"}, indent=1))
        sys.exit(0 if record["verdict"] != "failed" else 1)
    if not args.scoreboard:
        prove(args, source, points)
    records = read_runs(args.out / "runs.jsonl")
    wrong = scoreboard.write(args.page, [record for record in records if record["source"] == source], source, points)
    print(f"the scoreboard is in {args.page}")
    print("asked for, and not there yet: " + (asked.in_words(missing_of(args.out, source)) or "nothing"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
