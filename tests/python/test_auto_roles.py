# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts that tell late, or never, whether they train on what they read: training sees its part of every
sample once, evaluation sees everything, and the weights are those of one process with W times the batch."""

import json

import pytest

from plain_jobs import BIN, HERE, alone, fixture_job, told, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


def values(text):
    return torch.tensor(json.loads(told(text, "VALUES")), dtype=torch.float64)


@pytest.mark.parametrize("kind,workers,samples", [
    ("late", 2, 96), ("late", 4, 90), ("late_in_processes", 2, 90), ("forgets", 2, 96), ("no_grad_inside", 2, 96),
    ("never_eval", 3, 96), ("evaluate_first", 2, 96), ("peek", 2, 96), ("own_training_set", 2, 90),
    ("ahead", 2, 90), ("ahead_and_late", 3, 99), ("cycle", 2, 90), ("skips", 2, 96)])
def test_role_by_use(job, tmp_path, kind, workers, samples):
    """If this fails, loops like those of HuggingFace's Trainer, accelerate, Ignite or skorch train wrong."""
    script = HERE / "plain" / "roles.py"
    steps = 3 * -(-samples // (8 * workers))  # of "cycle": the batches of three epochs
    one = alone(tmp_path, script, kind, 8 * workers, samples, steps)
    done = job(script, kind, 8, samples, steps, workers=workers)
    assert done.code == 0, done.out + done.err
    texts = [done.log(rank).decode() for rank in range(workers)]
    for text in texts:
        assert (values(text) - values(one)).abs().max() <= 2e-7
        assert told(text, "TESTED") == told(one, "TESTED")
        if kind == "peek":
            assert told(text, "PEEK") == "8 4"
    epochs = json.loads(told(one, "SEEN"))
    together = [sample for text in texts for sample in json.loads(told(text, "SEEN"))]
    rest = samples % (8 * workers)
    if rest == 0 or rest >= 2 * workers:  # else workers without a sample borrow some, which count nothing
        assert sorted(together) == sorted(epochs)
    assert set(together) == set(epochs)
