# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts that tell late, or never, whether they train on what they read: training sees its part of every
sample once, evaluation sees everything, and the weights are those of one process with W times the batch."""

import json

import pytest

from plain_jobs import BIN, HERE, alone, by_kind, fixture_job, told, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


def values(text):
    return torch.tensor(json.loads(told(text, "VALUES")), dtype=torch.float64)


def check(job, tmp_path, kinds, workers, samples):
    script = HERE / "plain" / "roles.py"
    steps = 3 * -(-samples // (8 * workers))  # of "cycle": the batches of three epochs
    one = by_kind(alone(tmp_path, script, ",".join(kinds), 8 * workers, samples, steps))
    done = job(script, ",".join(kinds), 8, samples, steps, workers=workers)
    assert done.code == 0, done.out + done.err
    ranks = [by_kind(done.log(rank).decode()) for rank in range(workers)]
    for kind in kinds:
        for texts in ranks:
            assert (values(texts[kind]) - values(one[kind])).abs().max() <= 2e-7, kind
            assert told(texts[kind], "TESTED") == told(one[kind], "TESTED"), kind
            if kind == "peek":
                assert told(texts[kind], "PEEK") == "8 4"
        epochs = json.loads(told(one[kind], "SEEN"))
        together = [sample for texts in ranks for sample in json.loads(told(texts[kind], "SEEN"))]
        rest = samples % (8 * workers)
        if rest == 0 or rest >= 2 * workers:  # else workers without a sample borrow some, which count nothing
            assert sorted(together) == sorted(epochs), kind
        assert set(together) == set(epochs), kind


KINDS = ["evaluate_first", "late", "late_in_processes", "forgets", "no_grad_inside", "never_eval", "peek",
         "own_training_set", "counts", "ahead", "ahead_and_late", "cycle", "skips"]


def test_role_by_use(job, tmp_path):
    """If this fails, loops like those of HuggingFace's Trainer, accelerate, Ignite or skorch train wrong."""
    check(job, tmp_path, KINDS, 2, 90)


@pytest.mark.all
@pytest.mark.parametrize("kind,workers,samples", [
    ("late", 2, 96), ("late", 4, 90), ("late_in_processes", 2, 90), ("forgets", 2, 96), ("no_grad_inside", 2, 96),
    ("never_eval", 3, 96), ("evaluate_first", 2, 96), ("peek", 2, 96), ("own_training_set", 2, 90),
    ("ahead", 2, 90), ("ahead_and_late", 3, 99), ("cycle", 2, 90), ("skips", 2, 96)])
def test_role_by_use_in_a_job_of_its_own(job, tmp_path, kind, workers, samples):
    """If this fails, a loader is taken for the wrong role where nothing was trained before."""
    check(job, tmp_path, [kind], workers, samples)
