# SPDX-License-Identifier: Apache-2.0
"""Runs generated scripts as jobs and by themselves, and looks for what differs."""

import collections
import json
import pathlib
import tempfile

from generate import draw, render
from plain_jobs import BIN, HERE, Done, alone, call, python, told

TOLERANCE = 1e-6  # of float64: what is wrong is wrong by more, what is right by less


def distance(some, others):
    """The largest, as a part of the value where that is large."""
    if len(some) != len(others):
        return float("inf")
    return max((abs(a - b) / max(1.0, abs(b)) for a, b in zip(some, others)), default=0.0)


def read(text):
    return {word: json.loads(told(text, word)) for word in ("SEEN", "EVALUATED", "VALUES")}


def refusal(plan, done, logs):
    """What is wrong with the end of a script that was stopped, or None."""
    notes = " ".join(done.notes())
    if plan.refused is None:
        return f"it was stopped without need: {notes}"
    if plan.refused not in notes:
        return f"it was stopped for another reason than {plan.refused}: {notes}"
    if any("STEP 2\n" in log for log in logs):
        return f"it was stopped later than at its first step: {notes}"
    return None


def compare_exactly(found, one):
    for rank, mine in enumerate(found):
        for word in ("VALUES", "EVALUATED"):
            apart = distance(mine[word], one[word])
            if not apart <= TOLERANCE:
                return f"{word} of worker {rank} differ from those of one process by {apart:.3g}"
    return None


def compare_samples(plan, found, one):
    """Where one process cannot draw the same, it trains on every sample as often."""
    together = collections.Counter(sample for mine in found for sample in mine["SEEN"])
    if plan.loader in ("drop_last",) or plan.loop in ("breaks", "cycle", "endless"):
        return None if max(together.values()) <= plan.epochs + 17 else "a sample was seen too often"
    wanted = len(one["SEEN"]) // plan.epochs
    whole = (wanted % (plan.workers * plan.batch)) in (0, *range(2 * plan.workers, plan.workers * plan.batch))
    if whole and sorted(together.values()) != [plan.epochs] * wanted:
        return f"of {wanted} samples {len(together)} were seen, each {sorted(set(together.values()))} times"
    return None


def compare(plan, done, directory, script):
    """What is wrong, or None."""
    logs = [done.log(rank).decode(errors="replace") for rank in range(plan.workers)]
    if done.code == 2:
        return refusal(plan, done, logs)
    if done.code != 0:
        return f"it ended with {done.code}: {done.err[-1500:]}"
    if plan.refused is not None:
        return f"it went on, though {plan.refused} cannot be right"
    found = [read(log) for log in logs]
    if any(mine["VALUES"] != found[0]["VALUES"] for mine in found):
        return "the workers have ended with different weights, and nobody has said so"
    one = read(alone(directory, HERE / "normalized.py", plan.workers if plan.normalizes else 1, script,
                     plan.batch * plan.workers))
    if plan.exact:
        return compare_exactly(found, one)
    if len(found[0]["EVALUATED"]) != len(one["EVALUATED"]) or \
            any(mine["EVALUATED"] != found[0]["EVALUATED"] for mine in found):
        return "evaluations differ between workers, or there are not as many as in one process"
    return compare_samples(plan, found, one)


def check(seed, directory):
    """Runs the script of a seed. Returns what is wrong, or None."""
    plan = draw(seed)
    directory.mkdir(parents=True, exist_ok=True)
    script = directory / f"seed{seed}.py"
    script.write_text(render(plan))
    place = directory / "job"
    done = Done(place, call(place, BIN / "psd_run", "--workers", plan.workers, "--grace_ms", 200, "--", python(),
                            script, plan.batch))
    return compare(plan, done, directory, script)


def replay(seed):
    """For the command line."""
    with tempfile.TemporaryDirectory() as scratch:
        wrong = check(seed, pathlib.Path(scratch))
    print(f"seed {seed}: {wrong or 'as it should be'}; {draw(seed)}")
    return 1 if wrong else 0
