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
    done = job(OWN_DRAWS, draws, RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")  # of where psd_run runs: not the worker's
    first, second = texts(done)
    train = [json.loads(told(text, "TRAIN")) for text in (first, second)]
    for step, (mine, other) in enumerate(zip(*train)):
        assert step == 0 or mine != other, f"step {step} trains on the same everywhere"
    for word in ("VAL", "ESTIMATES"):
        assert told(first, word) == told(second, word)
    assert "each worker's training data its own" in done.notes()[0]
    assert "verified: each worker's training data its own in the steps that were compared (2 and 3); weights equal to " \
        "the bit on 2 workers" in done.err and "random numbers different on every worker" in done.err
    if draws == "torch":
        again = texts(job(OWN_DRAWS, draws))
        assert again == [first, second], "a seed does not decide everything"


@pytest.mark.parametrize("kind,workers", [("actor_critic", 2), ("raw", 2), pytest.param("late", 3, marks=pytest.mark.all),
                                          pytest.param("raw", 3, marks=pytest.mark.all),
                                          pytest.param("buffer", 2, marks=pytest.mark.all),
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


@pytest.mark.parametrize("kind,workers", [("permuted", 2), pytest.param("permuted", 3, marks=pytest.mark.all),
                                          pytest.param("split", 2, marks=pytest.mark.all),
                                          pytest.param("numpy", 2, marks=pytest.mark.all),
                                          pytest.param("sample", 2, marks=pytest.mark.all)])
def test_slices_of_a_permutation_are_divided(job, tmp_path, kind, workers):
    """If this fails, a loop over slices of a permutation is refused, or all workers train on the same, or on other
    samples than one process with the same batch size."""
    done = job(NO_LOADER, kind, workers=workers)
    found = texts(done, workers)
    one = alone(tmp_path, NO_LOADER, kind)
    assert found[0].count("MADE A STEP") == one.count("MADE A STEP") == 12
    assert (values(found[0]) - values(one)).abs().max() <= 1e-6
    assert "each batch divided among them (8 samples a step)" in " ".join(done.notes())
    assert "verified: 45 samples, each once per epoch" in done.err


@pytest.mark.parametrize("kind,steps", [("slices", 0), pytest.param("in_order", 1, marks=pytest.mark.all),
                                        pytest.param("chosen", 1, marks=pytest.mark.all),
                                        pytest.param("chosen_closure", 1, marks=pytest.mark.all)])
def test_walking_through_the_same_data_is_refused_at_once(job, kind, steps):
    """If this fails, all workers do the same work, or train on a part of what was chosen, and nobody is told."""
    done = job(NO_LOADER, kind)
    assert done.code == 2, done.out + done.err
    reason = "several steps with one slice" if kind.startswith("chosen") else "all 2 workers train on the same batches"
    assert reason in " ".join(done.notes())
    assert all(done.log(rank).count(b"MADE A STEP") == steps for rank in (0, 1))


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
            assert json.loads(told(text, "TESTED")) == sorted(list(range(samples)) * 5)
            assert int(told(text, "LENGTH")) == epoch or kind == "processes"
    (tmp_path / "steps").write_text(json.dumps(steps))
    one = alone(tmp_path, STREAM, kind, samples, tmp_path / "steps")
    assert (values(found[0]) - values(one)).abs().max() <= 1e-6


# ---- what is stopped at once

BEGINNING = """
import itertools
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Linear(2, 1)
def make(count):
    return TensorDataset(torch.randn(count, 2), torch.randn(count, 1))
def loss_of(points, targets):
    return nn.functional.mse_loss(model(points), targets)
"""

BY_HAND = BEGINNING + """
for points, targets in DataLoader(make(48), 8):
    model.zero_grad()
    loss_of(points, targets).backward()
    for parameter in model.parameters():
        parameter.data.add_(parameter.grad, alpha=-0.1)
    print("MADE A STEP")
"""

ATTACK = BEGINNING + """
right = 0
for points, targets in DataLoader(make(48), 8):
    points.requires_grad_(True)
    model.zero_grad()
    loss_of(points, targets).backward()
    right += (model(points + 0.1 * points.grad.sign()) > 0).sum().item()
print("RIGHT", right)
"""


def test_training_by_hand_is_refused_before_its_second_step(job):
    """If this fails, a script without an optimizer trains for hours before it hears that it did so in vain; or one that
    only looks at gradients is stopped."""
    done = job(BY_HAND)
    assert done.code == 2, done.out + done.err
    assert "without an optimizer of torch.optim" in " ".join(done.notes())
    assert max(done.log(rank).count(b"MADE A STEP") for rank in (0, 1)) == 1


@pytest.mark.all
def test_gradients_that_train_nothing(job, tmp_path):
    """If this fails, an attack on a model, which is an evaluation, is refused or sees a part of the data."""
    done = job(ATTACK)
    assert done.code == 0, done.out + done.err
    assert [told(done.log(rank).decode(), "RIGHT") for rank in (0, 1)] == [told(alone(tmp_path, ATTACK), "RIGHT")] * 2


TOGETHER = BEGINNING + """
import sys
KIND, BATCH, FIRST, SECOND = sys.argv[1], *map(int, sys.argv[2:])
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
first, second = DataLoader(make(FIRST), BATCH, shuffle=True), DataLoader(make(SECOND), BATCH, shuffle=True)
for epoch in range(2):
    pairs = zip(first, itertools.cycle(second)) if KIND == "cycle" else zip(first, second)
    for one, other in pairs:
        optimizer.zero_grad()
        if KIND == "in_turn":
            loss_of(*one).backward()
            optimizer.step()
            optimizer.zero_grad()
            loss_of(*other).backward()
        elif KIND == "apart":
            loss_of(*one).backward()
            (2 * loss_of(*other)).backward()
        else:
            (loss_of(*one) + 2 * loss_of(*other)).backward()
        optimizer.step()
        print("MADE A STEP")
print("HASH", sum(parameter.double().sum().item() for parameter in model.parameters()))
print("VALUES", json.dumps([value for each in model.parameters() for value in each.flatten().tolist()]))
"""


def test_a_loss_of_two_loaders_with_uneven_ends_is_refused_at_once(job):
    """If this fails, the last step of an epoch is weighed wrong in silence, or the script is stopped when an epoch is
    over."""
    done = job(TOGETHER, "zip", 8, 55, 64)
    assert done.code == 2, done.out + done.err
    assert "it computes one loss from several batches" in " ".join(done.notes())
    assert not any(b"MADE A STEP" in done.log(rank) for rank in (0, 1))


@pytest.mark.parametrize("kind,first,second", [
    ("apart", 55, 64), pytest.param("zip", 87, 64, marks=pytest.mark.all),  # 87: its end is not reached
    pytest.param("in_turn", 55, 64, marks=pytest.mark.all), pytest.param("zip", 55, 55, marks=pytest.mark.all),
    pytest.param("cycle", 64, 32, marks=pytest.mark.all)])
def test_two_loaders_at_once(job, tmp_path, kind, first, second):
    """If this fails, scripts that read two loaders side by side train on other gradients than one process would."""
    found = texts(job(TOGETHER, kind, 8, first, second))
    one = alone(tmp_path, TOGETHER, kind, 16, first, second)
    assert found[0].count("MADE A STEP") == one.count("MADE A STEP")
    assert (values(found[0]) - values(one)).abs().max() <= 1e-6


@pytest.mark.all
def test_data_drawn_in_training_are_refused_with_what_helps(job):
    """If this fails, people are told to set a seed that they have set."""
    done = job(BEGINNING + """
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
drawn = torch.Generator().manual_seed(7)
for own in (False, True, False):
    torch.manual_seed(1)
    points = torch.randn(16, 2, generator=drawn if own else None)
    for batch, targets in DataLoader(TensorDataset(points, points.sum(1, keepdim=True)), 4, shuffle=True):
        optimizer.zero_grad()
        loss_of(batch, targets).backward()
        optimizer.step()
    print("TRAINED", own)
""")
    assert done.code == 2, done.out + done.err
    assert "TRAINED True" in done.out, "data from a generator of their own are refused"
    assert "draw them from a generator of their own" in " ".join(done.notes())


# ---- layers that see all samples of a step


@pytest.mark.parametrize("workers,samples", [(2, 43), pytest.param(3, 43, marks=pytest.mark.all),
                                             pytest.param(3, 50, marks=pytest.mark.all)])  # 50: nothing is left for one
def test_synchronized_batch_normalization(job, tmp_path, workers, samples):
    """If this fails, SyncBatchNorm normalizes by the samples of each worker, or its gradients are those of one."""
    script = HERE / "plain" / "sync_norm.py"
    found = texts(job(script, 8, samples, workers=workers), workers)
    one = alone(tmp_path, script, 8 * workers, samples)
    assert (values(found[0]) - values(one)).abs().max() <= 1e-9


# ---- scripts for torchrun

TORCHRUN = """
import os
rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
if sys.argv[1] == "begins":
    dist.init_process_group("gloo")
    print("RANK", dist.get_rank() == rank == int(os.environ["PSD_RANK"]), dist.get_world_size(), local)
data = TensorDataset(torch.randn(32, 2), torch.randn(32, 1))
model = nn.Linear(2, 1)
if sys.argv[1] == "begins":
    model = nn.parallel.DistributedDataParallel(model)
sampler = DistributedSampler(data, num_replicas=int(os.environ["WORLD_SIZE"]), rank=rank)
if sys.argv[1] == "by hand":
    torch.manual_seed(rank)
    sampler = None
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for points, targets in DataLoader(data, 4, sampler=sampler):
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), targets).backward()
    optimizer.step()
print("HASH", [parameter.tolist() for parameter in model.parameters()])
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads sometimes abort an interpreter that ends by itself
"""


def test_scripts_for_torchrun_run_as_such(job):
    """If this fails, scripts that ask for RANK fail, though psd_run knows it."""
    done = job(TORCHRUN, "begins", cold=True, RANK="5", WORLD_SIZE="7", LOCAL_RANK="1")  # not the job's
    found = texts(done)
    assert [told(text, "RANK") for text in found] == ["True 2 0", "True 2 1"]
    assert "was written for torchrun" in done.err and "--personality torch" in done.err
    assert "steps aside: the script begins torch.distributed itself" in done.err


@pytest.mark.all
@pytest.mark.parametrize("kind,reason", [("by a sampler", "DistributedSampler"), ("by hand", "it asks which worker it is")])
def test_a_script_that_asks_for_its_rank_and_begins_nothing_is_refused(job, kind, reason):
    """If this fails, data that the script deals out by RANK are dealt out once more."""
    done = job(TORCHRUN, kind, cold=True)
    assert done.code == 2, done.out + done.err
    assert reason in " ".join(done.notes())
