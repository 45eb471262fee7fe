# SPDX-License-Identifier: Apache-2.0
"""Losses of plain PyTorch scripts that are no mean over the samples of a batch: their parts make the whole."""

import json

import pytest

from plain_jobs import BIN, HERE, alone, fixture_job, told, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")

SCRIPT = HERE / "plain" / "losses.py"


def values(text):
    return torch.tensor(json.loads(told(text, "VALUES")), dtype=torch.float64)


def check(job, tmp_path, workers, samples, *kinds):
    done = job(SCRIPT, 8, samples, *kinds, workers=workers)
    assert done.code == 0, done.out + done.err
    assert len({told(done.log(rank).decode(), "HASH") for rank in range(workers)}) == 1, "workers have different weights"
    found = values(done.log(0).decode()).reshape(len(kinds), -1)
    expected = values(alone(tmp_path, SCRIPT, 8 * workers, samples, *kinds)).reshape(len(kinds), -1)
    apart = dict(zip(kinds, (found - expected).abs().amax(1).tolist()))
    assert all(distance <= 1e-9 for distance in apart.values()), apart
    return done


def test_sums_over_samples_add_up(job, tmp_path):
    """If this fails, a loss with reduction="sum" trains with 1/W of its gradients, or a penalty on weights with W
    times its own."""
    done = check(job, tmp_path, 2, 43, "sum", "sum_and_mean", "by_constant", "penalty")
    assert "its loss is a sum over samples: the gradients of the 2 workers are added up" in done.err


@pytest.mark.all
@pytest.mark.parametrize("workers,samples", [(2, 43), (3, 50)])
@pytest.mark.parametrize("kinds", [("vae", "accumulated", "by_length", "times_constant", "two", "smoothed"),
                                   ("ignored_by_default", "masked", "picked", "class_weights", "ignored", "sum")])
def test_parts_of_a_loss_make_the_whole(job, tmp_path, kinds, workers, samples):
    """If this fails, losses that are weighed by what is in a batch are a mean of means, in silence."""
    check(job, tmp_path, workers, samples, *kinds)
