# SPDX-License-Identifier: Apache-2.0
"""What a run without deaths ends with: the digests of the same workload, undisturbed, by step. Kept from run to run."""

import fcntl
import json
import pathlib
import re
import shutil
import sys

from run import HERE, MODE_OF_WORKER, workload

from helpers import Job

STEPS = 4096
END_S = 600


def reference(directory, plan, step, steps=STEPS):
    """The digest after that step; one file for each kind of workload, made longer when it is too short."""
    mode = MODE_OF_WORKER.get(plan.mode, plan.mode)
    path = pathlib.Path(directory) / f"{mode}-{plan.shape}-{plan.workers}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        known = json.loads(path.read_text()) if path.exists() else {}
        if str(step) not in known:
            known = measure(path.with_suffix(""), plan, mode, max(steps, 2 * step if steps else step))
            path.write_text(json.dumps(known))
    return known[str(step)]


def measure(directory, plan, mode, steps):
    """One server, no copies, over shared memory: what a step gives depends on none of these."""
    from tape import Tape

    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for rank in range(plan.workers):
        Tape(directory / f"{rank}.tape", create=True)
    job = Job(directory / "job", "--workers", plan.workers, "--servers", 1, "-o", "logs", "--", sys.executable,
              HERE / workload(mode), "--mode", mode, "--shape", plan.shape, "--tapes", directory, "--steps", steps,
              environment={"PYTHONPATH": f"{HERE}:{HERE.parent / 'cluster'}", "OMP_NUM_THREADS": "1"})
    code = job.wait(END_S)
    found = re.findall(r"digest (\d+) (\w+)", job.stdout())
    assert code == 0 and len(found) == plan.workers * (steps // 64), f"the calm run ended with {code}:\n{job.stderr()}"
    shutil.rmtree(directory)
    return dict(found)
