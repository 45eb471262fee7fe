# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts whose batches come from elsewhere than a DataLoader of a map-style dataset: random indices,
environments, graphs, streams."""

import json

import pytest

from plain_jobs import BIN, HERE, alone, fixture_job, told, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")

OWN_DRAWS, NO_LOADER = HERE / "plain" / "own_draws.py", HERE / "plain" / "no_loader.py"


def texts(done, workers=2):
    assert done.code == 0, done.out + done.err
    found = [done.log(rank).decode() for rank in range(workers)]
    assert len({told(text, "HASH") for text in found}) == 1, "workers end with different weights"
    return found


def values(text):
    return torch.tensor(json.loads(told(text, "VALUES")), dtype=torch.float64)


# ---- batches without a loader


@pytest.mark.parametrize("draws", ["torch", pytest.param("numpy", marks=pytest.mark.all),
                                   pytest.param("random", marks=pytest.mark.all),
                                   pytest.param("unseeded", marks=pytest.mark.all)])
def test_batches_that_a_script_draws_itself(job, draws):
    """If this fails, scripts like nanoGPT are refused, or train on the same batches everywhere, or estimate their
    loss on other batches on each worker."""
    done = job(OWN_DRAWS, draws)
    first, second = texts(done)
    train = [json.loads(told(text, "TRAIN")) for text in (first, second)]
    for step, (mine, other) in enumerate(zip(*train)):
        assert step == 0 or mine != other, f"step {step} trains on the same everywhere"
    for word in ("VAL", "ESTIMATES"):
        assert told(first, word) == told(second, word)
    assert "each worker's training data its own" in done.notes()[0]
    if draws == "torch":
        again = texts(job(OWN_DRAWS, draws))
        assert again == [first, second], "a seed does not decide everything"


@pytest.mark.parametrize("kind,workers", [("actor_critic", 2), ("raw", 2), pytest.param("late", 3, marks=pytest.mark.all),
                                          pytest.param("raw", 3, marks=pytest.mark.all),
                                          pytest.param("actor_critic", 3, marks=pytest.mark.all)])
def test_gradients_are_those_of_all_that_was_drawn(job, tmp_path, kind, workers):
    """If this fails, reinforcement learning, or a loop without a loader, trains on other gradients than the mean of
    what all workers have drawn."""
    found = texts(job(NO_LOADER, kind, workers=workers), workers)
    records = [json.loads(told(text, "RECORD")) for text in found]
    drawn = [[step[0] for step in record] for record in records]
    assert all(len({json.dumps(worker[step]) for worker in drawn}) > 1 for step in range(1, 6) if kind == "raw")
    assert drawn[0] != drawn[1]
    (tmp_path / "drawn").write_text(json.dumps(drawn))
    one = alone(tmp_path, NO_LOADER, kind, tmp_path / "drawn")
    recomputed = json.loads(told(one, "RECORD"))
    for step, (_, gradients) in enumerate(recomputed):
        for record in records:
            assert torch.allclose(torch.tensor(record[step][1]), torch.tensor(gradients), rtol=1e-4, atol=1e-5)
    assert (values(found[0]) - values(one)).abs().max() <= 1e-4


@pytest.mark.parametrize("kind", ["graph", pytest.param("graph_noise", marks=pytest.mark.all)])
def test_a_graph_as_a_whole_is_told_to_be_no_faster(job, tmp_path, kind):
    """If this fails, training on all data at once is refused or wrong, or nobody hears that it gains nothing."""
    done = job(NO_LOADER, kind)
    found = texts(done)
    if kind == "graph":
        assert (values(found[0]) - values(alone(tmp_path, NO_LOADER, kind))).abs().max() <= 1e-6
    assert "there is nothing to deal out: 2 workers train as one process does, and are no faster" in done.err


@pytest.mark.parametrize("kind", ["permuted", pytest.param("slices", marks=pytest.mark.all)])
def test_walking_through_the_same_data_is_refused_at_once(job, kind):
    """If this fails, all workers do the same work, and nobody is told."""
    done = job(NO_LOADER, kind)
    assert done.code == 2, done.out + done.err
    assert "all 2 workers train on the same batches" in " ".join(done.notes())
    assert all(done.log(rank).count(b"MADE A STEP") == 2 for rank in (0, 1))


# ---- streams

STREAM = HERE / "plain" / "stream.py"


@pytest.mark.parametrize("kind,workers,samples", [
    ("shuffled", 2, 41), ("processes", 2, 45), pytest.param("plain", 2, 45, marks=pytest.mark.all),
    pytest.param("plain", 3, 45, marks=pytest.mark.all), pytest.param("shuffled", 3, 48, marks=pytest.mark.all),
    pytest.param("endless", 2, 24, marks=pytest.mark.all)])
def test_streams(job, tmp_path, kind, workers, samples):
    """If this fails, an IterableDataset is trained on W times, or in part, or its end counts wrong."""
    found = texts(job(STREAM, kind, samples, workers=workers), workers)
    seen = [json.loads(told(text, "SEEN")) for text in found]
    steps = [sorted({number for part in parts for number in part}) for parts in zip(*seen)]
    if kind == "endless":
        expected = torch.arange(10 * 4 * workers) % samples
        assert steps == [sorted(set(part)) for part in expected.reshape(10, -1).tolist()]
    else:
        epoch = len(steps) // 2
        assert len(steps) == 2 * -(-samples // (4 * workers)) or kind == "processes"
        for half in (steps[:epoch], steps[epoch:]):
            assert sorted(number for step in half for number in step) == list(range(samples))
        for text in found:
            assert json.loads(told(text, "TESTED")) == sorted(list(range(samples)) * 4)
            assert int(told(text, "LENGTH")) == epoch or kind == "processes"
    (tmp_path / "steps").write_text(json.dumps(steps))
    one = alone(tmp_path, STREAM, kind, samples, tmp_path / "steps")
    assert (values(found[0]) - values(one)).abs().max() <= 1e-6
