# SPDX-License-Identifier: Apache-2.0
"""Losses of plain PyTorch scripts that are no mean over the samples of a batch: their parts make the whole."""

import importlib
import importlib.util
import json
import sys

import pytest

from plain_jobs import AUTO, BIN, HERE, alone, fixture_job, told, torch  # noqa: F401

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
    assert all(distance <= 1e-9 for distance in apart.values()), str(apart)
    return done


def test_sums_over_samples_add_up(job, tmp_path):
    """If this fails, a loss with reduction="sum" trains with 1/W of its gradients, or a penalty on weights with W
    times its own."""
    done = check(job, tmp_path, 2, 43, "sum", "sum_and_mean", "by_constant", "penalty", "sum_and_penalties", "orthogonal",
                 "words", "sum_of_words", "many")
    assert "its loss has 9 terms: 8 of them were looked at" in done.err
    assert "its loss is a sum divided by 8, which is taken for a number of samples" in done.err
    assert "its loss is a sum over samples: the gradients of the 2 workers are added up" in done.err


SAMPLES_FIRST = ("mean_then_sum", "sum_then_mean", "balanced", "divided_first", "divided_by_row")


def test_samples_that_come_together_before_the_rest(job, tmp_path):
    """If this fails, experts or channels of which there are as many as samples are taken for these, and a loss trains with W
    times its gradients, or with 1/W."""
    done = check(job, tmp_path, 2, 43, *SAMPLES_FIRST)
    assert "its loss is a sum divided by 8, which is taken for a number of samples" in done.err


@pytest.mark.all
@pytest.mark.parametrize("workers,samples", [(2, 43), (3, 50)])
@pytest.mark.parametrize("kinds", [("vae", "accumulated", "by_length", "times_constant", "two", "smoothed"),
                                   ("ignored_by_default", "masked", "picked", "class_weights", "ignored", "sum"),
                                   ("sum_and_penalties", "orthogonal", "words", "sum_of_words"),
                                   SAMPLES_FIRST])
def test_parts_of_a_loss_make_the_whole(job, tmp_path, kinds, workers, samples):
    """If this fails, losses that are weighed by what is in a batch are a mean of means, in silence."""
    check(job, tmp_path, workers, samples, *kinds)


UNEVEN = """
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
data = TensorDataset(torch.randn(11, 2))
model = torch.nn.Linear(2, 10)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(3):
    for (points,) in DataLoader(data, 16, shuffle=True):
        optimizer.zero_grad()
        out = model(points)
        (out.square().mean() + (out.T @ out).square().mean()).backward()
        optimizer.step()
print("TRAINED")
"""


@pytest.mark.all
def test_workers_decide_alike_what_a_loss_is_made_of(job):
    """If this fails, one worker waits for another's numbers, which never come: ten values go with the five samples of one,
    and not with the six of the other."""
    done = job(UNEVEN)
    assert done.code == 0, done.out + done.err
    assert done.out.count("TRAINED") == 2


class Opaque(torch.autograd.Function):
    """As torch.compile makes them."""

    @staticmethod
    def forward(ctx, values):
        return values.mean()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.expand(8, 3) / 24


def of_a_batch(out, values):
    """Losses that are made of statistics of the samples, or of pairs of them."""
    eight = torch.nn.functional.pad(out, (0, 5)) + 1
    share = eight.softmax(1).mean(0)
    yield (share * share.log()).sum()  # how evenly experts are used
    alike = (out - out.mean(0)) / out.std(0)
    yield (alike.T @ alike / 8 - torch.eye(3)).square().sum()  # the same by columns
    yield (torch.einsum("bi,bj->ij", eight, eight) / 8).square().sum()
    yield torch.relu(1 - (out.var(0) + 1e-4).sqrt()).mean()
    yield torch.nn.functional.cross_entropy(out @ torch.nn.functional.normalize(out).T, torch.arange(8))
    yield torch.nn.functional.mse_loss(out.mean(0), values.mean(0))


def hidden_reductions():
    """Losses by what makes them one number, which is no sum of terms that could be weighed."""
    model = torch.nn.Linear(4, 3)
    out, values = model(torch.randn(8, 4)), torch.randn(8, 3)
    yield "LinalgVectorNorm", (out - values).norm()
    yield "Dot", torch.dot(out[:, 0], values[:, 0])
    yield "Bmm", torch.einsum("ij,ij->", out, values)
    yield "Max", out.max()
    yield "Opaque", Opaque.apply(out)
    yield "function", torch.nn.functional.mse_loss(out, values).sqrt()
    yield from (("batch", loss) for loss in of_a_batch(out, values))
    yield "", torch.nn.functional.mse_loss(out, values) + model.weight.norm() + (model.weight @ model.weight.T).norm()


def test_what_cannot_be_looked_into_has_a_name(monkeypatch):
    """If this fails, a loss of which nobody knows whether its parts make the whole is averaged, and no line says so."""
    spec = importlib.util.spec_from_file_location("_poseidon_auto", AUTO / "__init__.py",
                                                  submodule_search_locations=[str(AUTO)])
    package = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "_poseidon_auto", package)
    spec.loader.exec_module(package)
    losses = importlib.import_module("_poseidon_auto.torch.losses")
    for name, loss in hidden_reductions():
        assert losses._terms(loss, 8, set())[1].partition("Backward")[0] == name
