#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Searches every state of the models of fail-over, and plants every known bug in them.

Four kinds of checks:
  sound     all states are searched: no assertion fails, and nothing waits for ever
  ends      the same, and no cycle is found: so every run comes to its end
  reached   the situation named is among those searched: a model that never gets there shows nothing
  caught    the bug planted makes an assertion fail, or a run hang: whichever it says here

    tests/models/check.py                 all checks, one after the other
    tests/models/check.py --only sum      those with "sum" in their names: a model, a switch, a kind
    tests/models/check.py --list          only their names

What was found stands in build/models/results.json, by the text of the model and its switches, so a run that was interrupted
goes on. Exit code 0: all as expected; 1: not; 4: spin or a C compiler is missing (tools/setup.sh models).
"""
import argparse
import dataclasses
import fcntl
import hashlib
import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
ASSERTION, HANG = "assertion violated", "invalid end state"


@dataclasses.dataclass(frozen=True)
class Check:
    """One search: a model, the switches it is compiled with, and what has to come out."""

    model: str
    kind: str
    switches: tuple = ()
    finds: str = ""  # for what is caught: how it shows

    @property
    def name(self):
        return " ".join([self.model, self.kind, *self.switches])


def sound(model, *configurations):
    return [Check(model, "sound", tuple(words.split())) for words in configurations]


def ends(model, *configurations):
    return [Check(model, "ends", tuple(words.split())) for words in configurations]


def reached(model, *configurations):
    return [Check(model, "reached", tuple(words.split()), ASSERTION) for words in configurations]


def caught(model, finds, *configurations):
    return [Check(model, "caught", tuple(words.split()), finds) for words in configurations]


# Bugs and situations first: they take seconds, and a model that is broken shows there. What can be seen in one round is
# looked for in one: there is less to search.
CHECKS = [
    *caught("replicate", ASSERTION, "BUG_ACK_FIRST", "BUG_NO_FENCE", "BUG_SOLO_ALONE", "BUG_PROMOTE_ANY",
            "BUG_EARLY_ELIGIBLE", "ASYNCHRONOUS BUG_NO_MARKS"),
    *reached("replicate", "ROUNDS=1 REACH_TWO_PROMOTIONS", "ROUNDS=1 FAULTS=1 REACH_DEPOSED_ANSWERS", "ROUNDS=1 REACH_LOST"),
    *ends("replicate", "FAULTS=1"),
    *sound("replicate", "FAULTS=2", "ASYNCHRONOUS FAULTS=1", "ASYNCHRONOUS FAULTS=2 ROUNDS=1"),

    *caught("sum", HANG, "BUG_NO_HOLD", "BUG_RELEASE_BY_SOME", "BUG_NO_BASE", "KEEP BUG_NO_SHOW", "MIXED BUG_KEEPER_PROVES"),
    *caught("sum", ASSERTION, "BUG_IN_PLACE", "BUG_RESULT_AS_GRADIENT", "BUG_LATE_ANSWER",
            "FAULTS=1 LEAVERS=1 ROUNDS=1 BUG_HEARS_THE_DEAD"),
    *reached("sum", "ROUNDS=1 REACH_SHOWN_TWICE", "ROUNDS=1 KEEP REACH_SHOWN_TWICE", "ROUNDS=1 MIXED REACH_SHOWN_TWICE",
             "ROUNDS=1 FAULTS=3 REACH_OVER", "ROUNDS=1 FAULTS=1 LEAVERS=1 REACH_LEAVER"),
    *ends("sum", "FAULTS=2", "MIXED FAULTS=2"),
    *sound("sum", "FAULTS=2", "FAULTS=2 ROUNDS=3", "KEEP FAULTS=2", "KEEP FAULTS=2 ROUNDS=3", "MIXED FAULTS=2",
           "MIXED FAULTS=2 ROUNDS=3", "MIXED WORKERS=3 FAULTS=1", "WORKERS=3 FAULTS=1 LEAVERS=1"),

    *caught("master", ASSERTION, "BUG_NO_TERM", "BUG_SAME_NUMBER", "BUG_FORGETS", "BUG_WORKERS_FIRST", "BUG_ONE_LANE_ACTS",
            "BUG_FIRST_REPLY", "BUG_STAYS_FROZEN"),
    *reached("master", "REACH_FINISHES_FOR_THE_FIRST", "REACH_DECIDES_ANEW", "REACH_NOTHING_TO_DO", "REACH_OLD_VIEW_LIVES"),
    *ends("master", ""),
    *sound("master", ""),

    *caught("join", ASSERTION, "BUG_NO_PROMISE", "BUG_TOO_EARLY"),
    *reached("join", "REACH_PROMISE_HELD_UP", "REACH_LANES_APART"),
    *ends("join", ""),
    *sound("join", ""),

    *caught("cut", ASSERTION, "FAULTS=1 BUG_ALONE_ON_SILENCE", "FAULTS=1 BUG_DROPPED_YET_PROMOTED",
            "CUTS=2 BUG_DEPOSED_WITHOUT_HEIR", "BUG_NO_FENCE"),
    *caught("cut", HANG, "BUG_PAIR_UNREPORTED", "BUG_WORKER_UNREPORTED", "BUG_ONE_END_REPORTS",
            "BUG_BACKUP_HELPS_ITSELF", "WORKER_CUTS_ONLY DEATHS_AFTER_LEAVING WORKERS=3 FAULTS=1 BUG_STALE_LEAVE"),
    *reached("cut", "REACH_DEPOSED_BY_WORKERS", "REACH_BACKUP_DROPPED", "WORKER_CUTS_ONLY WORKERS=3 REACH_LEFT_OUT",
             "CUTS=2 ON_DEATH_FAIL REACH_NAMED_END"),
    *ends("cut", "CUTS=1"),
    *sound("cut", "CUTS=1 ROUNDS=2", "CUTS=1 FAULTS=1", "CUTS=2", "CUTS=2 ON_DEATH_FAIL", "CUTS=1 FAULTS=1 WORKERS=3"),
]


def needs():
    """Names what is missing, and leaves."""
    missing = [program for program in ("spin", "gcc") if shutil.which(program) is None]
    if missing:
        print(f"models: {' and '.join(missing)} not found: tools/setup.sh models installs them", file=sys.stderr)
        sys.exit(4)


def alone(out):
    """Two runs would overwrite each other's results. The lock lasts as long as the file is open."""
    lock = open(out / "lock", "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"models: another run is under way in {out}")
    return lock


def spin_version():
    return subprocess.run(["spin", "-V"], capture_output=True, text=True, check=True).stdout.strip()


def key_of(check, version):
    """What a result depends on. Another text of the model, another switch: another result."""
    text = (HERE / f"{check.model}.pml").read_text()
    return hashlib.sha256("\0".join([version, text, check.name, check.finds]).encode()).hexdigest()


def build(check, folder, memory_mib):
    """Makes the program that searches. Short searches are not worth an optimizing compiler."""
    source = folder / f"{check.model}.pml"
    shutil.copy(HERE / source.name, source)
    made = subprocess.run(["spin", "-a", *(f"-D{word}" for word in check.switches), source.name], cwd=folder,
                          capture_output=True, text=True)
    if made.returncode != 0 or not (folder / "pan.c").exists():
        sys.exit(f"models: {check.name}: spin does not take the model:\n{made.stdout}{made.stderr}")
    search = ["-DNP", "-DNOFAIR"] if check.kind == "ends" else ["-DSAFETY"]
    effort = "-O2" if check.kind in ("sound", "ends") else "-O0"
    subprocess.run(["gcc", effort, "-w", *search, "-DCOLLAPSE", f"-DMEMLIM={memory_mib}", "-o", "pan", "pan.c"], cwd=folder,
                   check=True)


def number(pattern, text):
    found = re.search(pattern, text, re.MULTILINE)
    return float(found.group(1)) if found else None


def search(check, folder, seconds):
    """Runs it. None for what its output does not say."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = ["./pan", "-m10000", "-w24" if check.kind in ("sound", "ends") else "-w20"]
    command += ["-l"] if check.kind == "ends" else []
    try:
        text = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=seconds,
                              preexec_fn=lambda: os.nice(10)).stdout  # others may need the cores
    except subprocess.TimeoutExpired:
        text = f"stopped after {seconds} s"
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    (folder / "output").write_text(text)
    found = re.search(r"^pan:1: (.*)$", text, re.MULTILINE)
    return {
        "errors": number(r"errors: (\d+)", text),
        "states": number(r"^\s*([\d.e+]+) states, stored", text),
        "depth": number(r"depth reached (\d+)", text),
        "mib": number(r"^\s*([\d.]+)\s+total actual memory", text),
        "seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "found": found.group(1) if found else "",
        "whole": "max search depth too small" not in text and "MEMLIM" not in text and "out of memory" not in text,
    }


def verdict(check, result):
    """"ok", or in a word what is wrong."""
    if result["errors"] is None or (not result["whole"] and not result["errors"]):
        return "NOT FINISHED"
    if check.kind in ("sound", "ends"):
        return "BROKEN" if result["errors"] else "ok"
    if not result["errors"]:
        return "MISSED"
    return "ok" if result["found"].startswith(check.finds) else "OTHER ERROR"


def line(check, result):
    states, depth = f"{result['states'] or 0:,.0f}", f"{result['depth'] or 0:,.0f}"
    told = {"sound": "", "ends": ""}.get(check.kind, re.sub(r" [^a-z].*at depth (\d+)\)$", r" at depth \1", result["found"]))
    return (f"{check.model:<9} {check.kind:<7} {' '.join(check.switches):<50} {result['verdict']:<12} {states:>12} {depth:>6} "
            f"{result['seconds']:>7.1f} {result['mib'] or 0:>6.0f}  {told}")


def run(check, out, args):
    folder = out / re.sub(r"[^\w=]+", "-", check.name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    build(check, folder, args.memory)
    result = search(check, folder, args.seconds)
    result["verdict"] = verdict(check, result)
    if result["verdict"] == "ok":
        shutil.rmtree(folder)
    return result


def replay(check, folder):
    """How to see what went wrong."""
    switches = " ".join(f"-D{word}" for word in check.switches)
    return (f"          its output: {folder}/output; the steps that lead there: "
            f"cd {folder} && spin -t -p -g {switches} {check.model}.pml")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="checks with this in their names")
    parser.add_argument("--list", action="store_true", help="only the names")
    parser.add_argument("--out", type=pathlib.Path, default=TREE / "build" / "models", help="where results are kept")
    parser.add_argument("--seconds", type=int, default=1800, help="limit of each search, by the clock")
    parser.add_argument("--memory", type=int, default=4000, help="limit of each search, in MiB")
    args = parser.parse_args()
    checks = [check for check in CHECKS if args.only in check.name]
    if not checks:
        sys.exit(f"models: no check has \"{args.only}\" in its name; --list names them")
    if args.list:
        print("\n".join(check.name for check in checks))
        return
    needs()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # a search does not outlive its runner
    args.out.mkdir(parents=True, exist_ok=True)
    lock = alone(args.out)
    kept = args.out / "results.json"
    results = json.loads(kept.read_text()) if kept.exists() else {}
    version = spin_version()
    print(f"{'model':<9} {'kind':<7} {'switches':<50} {'verdict':<12} {'states':>12} {'depth':>6} {'cpu s':>7} {'MiB':>6}")
    bad = 0
    for check in checks:
        key = key_of(check, version)
        if results.get(key, {}).get("verdict") != "ok":
            results[key] = run(check, args.out, args)
            written = kept.with_suffix(".part")
            written.write_text(json.dumps(results, indent=1))
            written.replace(kept)
        print(line(check, results[key]), flush=True)
        if results[key]["verdict"] != "ok":
            bad += 1
            print(replay(check, args.out / re.sub(r"[^\w=]+", "-", check.name)), flush=True)
    print(f"models: {len(checks) - bad} of {len(checks)} as expected")
    lock.close()
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
