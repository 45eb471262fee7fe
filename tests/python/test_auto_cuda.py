# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts whose models are on a GPU."""

import json

import pytest

from plain_jobs import BIN, HERE, alone, fixture_job, torch  # noqa: F401

pytestmark = [pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built"),
              pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

SCRIPT = HERE / "plain" / "on_gpu.py"


def weights(text):
    (line,) = {line.partition("WEIGHTS ")[2] for line in text.splitlines() if "WEIGHTS " in line}
    return json.loads(line)


def test_the_hook_waits_for_no_device(job, tmp_path):
    """If this fails, every step on a GPU stands still until the device has caught up; or trains something else."""
    done = job(SCRIPT, 16)
    assert done.code == 0, done.err
    assert done.out.count("WATCHED") == 2 and "verified: 256 samples, each once per epoch" in done.err
    assert weights(done.out) == pytest.approx(weights(alone(tmp_path, SCRIPT, 32)), abs=2e-5)


def test_weights_that_part_on_a_device_are_seen(job):
    """If this fails, workers whose models on GPUs differ train on in silence."""
    done = job(SCRIPT, 16, "skew")
    assert done.code != 0 and "the workers' weights have drifted apart" in done.err
