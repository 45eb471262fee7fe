# SPDX-License-Identifier: Apache-2.0
"""Plain scripts of real libraries that train for others: HuggingFace's Trainer, accelerate, Lightning, Ignite, skorch.
The oracle is the same script in one process with W times the batch: weights, steps, learning rates, metrics, files."""

import json
import os
import sys

import pytest

from plain_jobs import BIN, HERE, Done, alone, call, fixture_job, told, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")
os.environ["HF_HUB_OFFLINE"] = "1"


def values(text):
    return torch.tensor(json.loads(told(text, "VALUES")), dtype=torch.float64)


def distance(text, other):
    """Of the final weights, relative."""
    return float((values(text) - values(other)).norm() / values(other).norm())


def numbers(text, word):
    return torch.tensor(json.loads(told(text, word)), dtype=torch.float64)


def texts_of(done, workers):
    assert done.code == 0, done.out + done.err
    assert "verified: " in done.err, done.err
    return [done.log(rank).decode() for rank in range(workers)]


def check_alike(texts, one, same, near=()):
    """Every worker ends like one process."""
    for text in texts:
        print("distance", distance(text, one))
        assert distance(text, one) <= 1e-6
        for word in same:
            assert told(text, word) == told(one, word), word
        for word in near:
            assert torch.allclose(numbers(text, word), numbers(one, word), rtol=1e-6, atol=1e-9), word


def check_seen(texts, one):
    """Together the workers trained on what one process did. (Of a last step with fewer than two samples for each worker,
    some would borrow theirs.)"""
    together = [sample for text in texts for sample in json.loads(told(text, "SEEN"))]
    assert sorted(together) == sorted(json.loads(told(one, "SEEN")))


def kept(directory, pattern="*"):
    return sorted(str(path.relative_to(directory)) for path in directory.rglob(pattern) if path.is_file())


def check_rounding(job, tmp_path, script, passes, *arguments):
    """In float32 the job ends with the bits of one process that accumulates the batch in two parts, so it is no farther from
    one with the whole batch. Where each part takes several batches to a step, such a process adds them in another order
    than workers do (after every backward they take the mean), and is nearer or farther by luck: it is made to use theirs."""
    one = alone(tmp_path, script, 8, passes, *arguments)
    if passes == 1:
        accumulated = alone(tmp_path, script, 4, 2, *arguments)
    else:
        accumulated = alone(tmp_path, HERE / "in_parts.py", 2, passes, script, 4, 2 * passes, *arguments)
    assert 0 < distance(accumulated, one) < 1e-3
    for text in texts_of(job(script, 4, passes, *arguments), 2):
        assert torch.equal(values(text), values(accumulated))


HUGGINGFACE = HERE / "plain" / "hf_trainer.py"
ACCELERATE = HERE / "plain" / "accelerate_loop.py"
LIGHTNING = HERE / "plain" / "lightning_trainer.py"
IGNITE = HERE / "plain" / "ignite_engine.py"
SKORCH = HERE / "plain" / "skorch_net.py"


def check_huggingface(job, tmp_path, workers, samples):
    one = alone(tmp_path, HUGGINGFACE, 4 * workers, 2, samples, "float64")
    done = job(HUGGINGFACE, 4, 2, samples, "float64", workers=workers)
    texts = texts_of(done, workers)
    check_alike(texts, one, ["STEPS"], ["TESTED", "RATES", "NORMS"])
    assert len({told(text, "NOISE") for text in texts}) == workers  # the state of the generators was loaded
    last = max((done.directory / "checkpoints").iterdir(), key=lambda path: int(path.name.split("-")[1]))
    assert len(list((done.directory / "checkpoints").iterdir())) == 2
    from safetensors.torch import load_file

    saved = torch.cat([load_file(last / "model.safetensors")[name].flatten().double()
                       for name in ("transformer.wte.weight", "transformer.wpe.weight")])
    assert torch.equal(saved, values(texts[0])[:len(saved)])


def test_huggingface_trainer(job, tmp_path):
    """Texts of different length, two batches to a step, an uneven end, evaluation and checkpoints, and a second Trainer
    that goes on in the middle of an epoch. If this fails, the largest group of users trains something else."""
    check_huggingface(job, tmp_path, 2, 50)


@pytest.mark.all
def test_huggingface_trainer_with_three(job, tmp_path):
    """The last step of an epoch has one text, so two of three workers borrow theirs. If this fails, a worker
    without a text of its own counts in that step."""
    check_huggingface(job, tmp_path, 3, 49)


@pytest.mark.all
def test_huggingface_trainer_goes_on_in_another_job(tmp_path):
    """If this fails, a job that was ended is not the same when it is begun again from its checkpoint."""
    one = alone(tmp_path, HUGGINGFACE, 8, 2, 50, "float64")
    place = tmp_path / "job"
    for part, logs in (("stop", "earlier"), ("go on", "logs")):
        done = Done(place, call(place, BIN / "psd_run", "--workers", 2, "--grace_ms", 200, "--out", logs, "--",
                                sys.executable, HUGGINGFACE, 4, 2, 50, "float64", part))
        assert done.code == 0, done.err
    check_alike(texts_of(done, 2), one, ["STEPS"], ["TESTED", "RATES", "NORMS"])


@pytest.mark.all
@pytest.mark.parametrize("passes,samples", [(1, 50), (2, 64)])
def test_huggingface_trainer_in_float32(job, tmp_path, passes, samples):
    """If this fails, HuggingFace's Trainer differs from one process by more than the order of additions explains."""
    check_rounding(job, tmp_path, HUGGINGFACE, passes, samples, "float32")


@pytest.mark.all
@pytest.mark.parametrize("workers,samples", [(2, 52), (3, 50)])
def test_accelerate(job, tmp_path, workers, samples):
    """prepare, accumulate, gather_for_metrics, states saved and loaded, skip_first_batches. If this fails, scripts of
    accelerate train something else."""
    one = alone(tmp_path, ACCELERATE, 4 * workers, 2, samples, "float64", 0)
    texts = texts_of(job(ACCELERATE, 4, 2, samples, "float64", 0, workers=workers), workers)
    check_alike(texts, one, ["TESTED", "PROCESSES"], ["RATES"])
    if workers == 2:
        check_seen(texts, one)
    noises = [told(text, "NOISE") for text in texts]  # after the state of the generators was loaded
    assert len(set(noises)) == workers


@pytest.mark.all
@pytest.mark.parametrize("passes", [1, 2])
def test_accelerate_in_float32(job, tmp_path, passes):
    """If this fails, accelerate differs from one process by more than the order of additions explains."""
    check_rounding(job, tmp_path, ACCELERATE, passes, 64, "float32", 0)


def test_lightning(job, tmp_path):
    """Validation, accumulation, clipping, ModelCheckpoint, EarlyStopping, the best model tested. If this fails, scripts
    of Lightning train something else, or keep other files."""
    one = alone(tmp_path, LIGHTNING, 8, 2, 52, "float64")
    done = job(LIGHTNING, 4, 2, 52, "float64")
    texts = texts_of(done, 2)
    check_alike(texts, one, ["STEPS", "STOPPED", "PROCESSES", "BEST"], ["TESTED", "RATES"])
    check_seen(texts, one)
    files = kept(done.directory / "kept")
    assert len(files) == 3 and told(one, "BEST") in files and "last.ckpt" in files
    assert torch.load(done.directory / "kept" / "last.ckpt", weights_only=False)["global_step"] == int(told(one, "STEPS"))
    assert len(kept(done.directory / "logged", "metrics.csv")) == 1


@pytest.mark.all
def test_lightning_with_three(job, tmp_path):
    """If this fails, scripts of Lightning train something else where workers have uneven parts."""
    one = alone(tmp_path, LIGHTNING, 12, 2, 50, "float64")
    texts = texts_of(job(LIGHTNING, 4, 2, 50, "float64", workers=3), 3)
    check_alike(texts, one, ["STEPS", "STOPPED", "PROCESSES"], ["TESTED", "RATES"])


@pytest.mark.all
@pytest.mark.parametrize("passes", [1, 2])
def test_lightning_in_float32(job, tmp_path, passes):
    """If this fails, Lightning differs from one process by more than the order of additions explains."""
    check_rounding(job, tmp_path, LIGHTNING, passes, 64, "float32")


@pytest.mark.all
@pytest.mark.parametrize("workers", [2, 3])
def test_skorch(job, tmp_path, workers):
    """Its split, scores, schedule, checkpoints, early stopping; and predictions in training mode, in their order. If
    this fails, scripts of skorch train something else, or predict in another order."""
    one = alone(tmp_path, SKORCH, 4 * workers, 1, 50, "float64")
    done = job(SKORCH, 4, 1, 50, "float64", workers=workers)
    check_alike(texts_of(done, workers), one, ["STEPS"], ["TESTED", "RATES", "PREDICTED"])
    assert kept(done.directory / "kept") == ["criterion.pt", "history.json", "optimizer.pt", "params.pt"]
    torch.load(done.directory / "kept" / "params.pt")


@pytest.mark.all
def test_skorch_in_float32(job, tmp_path):
    """If this fails, skorch differs from one process by more than the order of additions explains."""
    check_rounding(job, tmp_path, SKORCH, 1, 80, "float32")


@pytest.mark.all
@pytest.mark.parametrize("workers", [2, 3])
def test_ignite(job, tmp_path, workers):
    """Evaluators of training and validation data, the best two models kept, the last state, early stopping, and a
    second trainer that goes on from that state. If this fails, scripts of Ignite train something else, or keep other
    files."""
    one = alone(tmp_path, IGNITE, 4 * workers, 1, 50, "float64")
    done = job(IGNITE, 4, 1, 50, "float64", workers=workers)
    check_alike(texts_of(done, workers), one, ["STEPS", "BEST"], ["TESTED", "RATES"])
    assert len(kept(done.directory / "kept")) == 2
    states = kept(done.directory / "states")
    assert len(states) == 2  # of either trainer the last
    for state in states:
        assert "optimizer" in torch.load(done.directory / "states" / state)


@pytest.mark.all
def test_ignite_in_float32(job, tmp_path):
    """If this fails, Ignite differs from one process by more than the order of additions explains."""
    check_rounding(job, tmp_path, IGNITE, 1, 64, "float32")
