# SPDX-License-Identifier: Apache-2.0
"""Embedding and EmbeddingBag of poseidon.torch: rows that are with the servers."""

import re
import subprocess
import sys
import textwrap

import pytest

from plain_jobs import TREE, fixture_job  # noqa: F401

PACKAGE = {"PYTHONPATH": str(TREE / "python")}

PREAMBLE = """
import socket
import numpy as np
import torch
from torch import nn
from torch.nn import functional
import poseidon
import poseidon.torch as psd

torch.set_num_threads(1)
psd.init()
WIDTH, IDS = 6, 200


class Model(nn.Module):
    def __init__(self, bag, word):
        super().__init__()
        torch.manual_seed(1)
        self.bag, self.word, self.top = bag, word, nn.Linear(2 * WIDTH, 1)

    def forward(self, ids, offsets, weights, words):
        bags = self.bag(ids, offsets, per_sample_weights=weights)
        return self.top(torch.cat((bags, torch.tanh(self.word(words)).sum(1)), 1))[:, 0]


def layers(name, **how):
    how = dict(init="normal", init_value=0.5, seed=4, **how)
    return psd.EmbeddingBag(f"bags/{name}", WIDTH, mode="sum", **how), psd.Embedding(f"words/{name}", WIDTH, **how)


def batch(step, rank, part=0, bags=8):
    draw = np.random.default_rng([step, rank, part])
    sizes = draw.integers(0, 5, bags)
    ids = draw.integers(0, IDS, sizes.sum())
    return (torch.from_numpy(ids), torch.from_numpy(np.cumsum(sizes) - sizes), torch.from_numpy(draw.random(ids.size, np.float32)),
            torch.from_numpy(draw.integers(0, IDS, (bags, 3))), torch.from_numpy(draw.random(bags, np.float32)))


def joined(parts):
    ids, offsets, weights, words, wanted = zip(*parts)
    starts = np.cumsum([0, *(len(each) for each in ids)])
    return (torch.cat(ids), torch.cat([each + int(start) for each, start in zip(offsets, starts)]), torch.cat(weights),
            torch.cat(words), torch.cat(wanted))


def loss_of(model, data):
    return functional.mse_loss(model(*data[:-1]), data[-1])


def say(*words):
    print("SAID", *words, flush=True)


def attempt(function, *args, **kwargs):
    try:
        return f"no error: {function(*args, **kwargs)!r}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


"""


@pytest.fixture(name="said")
def fixture_said(job):  # noqa: F811
    """Runs a script after the preamble on several workers: the lines of each."""

    def go(script, *arguments, workers=2, **variables):
        done = job(PREAMBLE + textwrap.dedent(script), *arguments, workers=workers, **PACKAGE, **variables)
        assert done.code == 0, done.out + done.err
        return [[line[5:] for line in done.log(rank).decode().splitlines() if line.startswith("SAID ")] for rank in range(workers)]

    return go


EQUAL = """
    RULES = {"sgd": (torch.optim.SGD, dict(rule="sgd", learning_rate=4), dict(lr=4)),
             "adagrad": (torch.optim.Adagrad, dict(rule="adagrad", learning_rate=0.2, epsilon=1e-6), dict(lr=0.2, eps=1e-6))}

    def train(model, optimizer, forward, how):
        for step in range(10):
            first, last = batch(step, psd.rank()), batch(step, psd.rank(), 1)
            optimizer.zero_grad()
            if how == "two forwards":
                (loss_of(forward, first) / 2 + loss_of(forward, last) / 2).backward()
            else:
                with forward.no_sync():
                    (loss_of(forward, first) / 2).backward()
                (loss_of(forward, last) / 2).backward()
            if step % 3 == 0:  # the next ids are known: one message
                model.bag.next(batch(step + 1, psd.rank())[0])
                model.word.next(batch(step + 1, psd.rank())[3])
            optimizer.step()
            with torch.no_grad():
                model(*batch(99, psd.rank())[:-1])  # reads, and pushes nothing
            if step % 4 == 0:
                loss_of(model.eval(), first)
                model.train()
        assert model.bag.table.step == model.word.table.step == 10

    def reference(rule, rows):
        kind, _, options = RULES[rule]
        model = Model(nn.EmbeddingBag(IDS, WIDTH, mode="sum", sparse=True), nn.Embedding(IDS, WIDTH, sparse=True))
        for layer, values in zip((model.bag, model.word), rows):
            layer.weight.data.copy_(values)
        optimizers = [kind([model.bag.weight, model.word.weight], **options), torch.optim.Adam(model.top.parameters(), lr=0.01)]
        for step in range(10):
            data = joined([batch(step, rank, part) for rank in range(psd.size()) for part in range(2)])
            model.zero_grad()
            loss_of(model, data).backward()
            for each in optimizers:
                each.step()
        return [model.bag.weight, model.word.weight, *model.top.parameters()]

    for rule in RULES:
        for how in ("two forwards", "two backwards", "wrapped", "deferred", "server_side"):
            name = f"{rule} {how}"
            model = Model(*layers(name, **RULES[rule][1]))
            all_rows = lambda: [torch.from_numpy(layer.table.lookup(np.arange(IDS)).wait()) for layer in (model.bag, model.word)]
            begun = all_rows()
            optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
            if how.startswith("two"):
                forward = psd.DataParallel(model)
            else:
                psd.broadcast_parameters(model.state_dict())
                optimizer = forward = psd.DistributedOptimizer(optimizer, model=model, server_side=how == "server_side",
                                                               overlap="forward" if how == "deferred" else "backward")
                forward = type("Forward", (), dict(__call__=lambda self, *data: model(*data), no_sync=optimizer.no_sync))()
            model.bag.steps_with(optimizer), model.word.steps_with(optimizer)
            train(model, optimizer, forward, how)
            if how == "deferred":
                optimizer.finish()
            ours, wanted = [*all_rows(), *model.top.parameters()], reference(rule, begun)
            apart = max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, wanted))
            moved = max(((a - b).norm() / b.norm()).item() for a, b in zip(ours, begun))
            say(name, apart, moved)
"""


@pytest.mark.parametrize("workers", [1, 2])
def test_equals_one_process_with_all_batches(said, workers):
    """If this fails, rows on servers are trained otherwise than those of torch.nn.EmbeddingBag(sparse=True) in one process that
    has the batches of all workers: whatever wraps the dense part, with several forwards and backwards for a step, with rows
    that come with the answer to a push, with bags that are empty, and with evaluation in between."""
    for lines in said(EQUAL, workers=workers):
        found = [[float(word) for word in line.split()[-2:]] for line in lines]
        assert len(found) == 10 and all(apart < 1e-5 and moved > 0.01 for apart, moved in found), lines


BYTES = """
    import os

    def moved():
        '''Bytes that the kernel has sent and received on all connections of this process.'''
        total = 0
        for name in os.listdir("/proc/self/fd"):
            try:
                with socket.socket(fileno=os.dup(int(name))) as each:
                    if each.family == socket.AF_INET and each.type == socket.SOCK_STREAM:
                        counts = each.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                        total += sum(int.from_bytes(counts[at:at + 8], "little") for at in (120, 128))  # acked, received
            except OSError:
                pass  # no socket, or no connection
        return total

    bag = psd.EmbeddingBag("e", 16, mode="sum", capacity_rows=1 << 22)
    for rows, spread in ((500, 1000), (500, 2**40), (4000, 2**40)):
        before = moved()
        for step in range(10):
            ids = torch.from_numpy(np.random.default_rng([step, psd.rank()]).choice(min(spread, 2**20), rows, replace=False))
            ids = ids * (spread // min(spread, 2**20))
            bag(torch.cat((ids, ids))[None]).sum().backward()
            bag.step()
        bag.eval()(ids[:1][None])  # the last push has ended
        bag.train()
        say(rows, (moved() - before) // 10)
"""


def test_bytes_are_those_of_the_rows_touched(said):
    """If this fails, a step sends more than the rows that it touches: each once, whatever the size of the table."""
    for lines in said(BYTES, PSD_TRANSPORT="tcp"):
        told = [tuple(map(int, line.split())) for line in lines]
        assert [rows for rows, _ in told] == [500, 500, 4000]
        for rows, moved in told:  # looked up: id and values; pushed: id and gradient
            assert 128 * rows < moved < 160 * rows + 4000, told


def test_what_cannot_work_is_refused_by_name(said):
    """If this fails, rows are trained otherwise than the script says, or not at all, in silence."""
    lines = said("""
        import copy
        bag = psd.EmbeddingBag("e", 2, mode="sum", rule="add", reduce="sum")
        ids = torch.tensor([[1, 2, 2]])
        loss = lambda: bag(ids).sum()
        kept = loss()
        kept.backward(retain_graph=True)
        bag.step()
        assert bag.table.lookup([1, 2]).wait().tolist() == [[2, 2], [4, 4]]
        say(attempt(kept.backward))
        say(attempt(loss().square().backward, create_graph=True))
        bag.zero_grad()
        with torch.autocast("cpu", torch.float16):
            say(attempt(bag, ids))
        with torch.autocast("cpu", torch.bfloat16):
            nn.Linear(2, 1)(bag(ids)).sum().backward()
        bag.zero_grad()
        bag.step()  # pushes no row
        assert bag.table.lookup([1, 2]).wait().tolist() == [[2, 2], [4, 4]] and bag.table.step == 2
        say(attempt(copy.deepcopy, bag))
        say(attempt(psd.Embedding, "e", 2))
        say(attempt(bag, torch.tensor([[1.5]])))
        say(attempt(psd.EmbeddingBag, "m", 2, mode="max"))
        say(attempt(psd.Embedding, "b", 2, backup_workers=1))
        other = psd.Embedding("other", 2)
        say(attempt(bag.load_state_dict, other.state_dict()))
        bag.load_state_dict(bag.state_dict())
        scaler = torch.amp.GradScaler("cpu")
        weight = nn.Parameter(torch.ones(1))
        first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
        say(attempt(first.step))
        del scaler
        first.step()
        assert other.table.step == 1 and bag.table.step == 2  # which step() pushes
        say(attempt(second.step))
        say(attempt(other.step))
        for _ in range(1001):
            error = attempt(other(ids).sum().backward)
        say(error)
    """)
    expected = ["before the last step", "create_graph=True", "float16 needs a GradScaler", "copied or pickled", "a table e already",
                "not torch.float32", "expected mean or sum", "backup_workers", '"sparse_table": "other"', "GradScaler is enabled",
                "layer.steps_with(optimizer)", "leave step() out", "1000 backwards without a step"]
    for each in lines:
        assert len(each) == len(expected) and all(part in line for part, line in zip(expected, each)), each


def test_nothing_learnt_is_told(job):  # noqa: F811
    """If this fails, a script that forgets the step ends as if it had trained its rows."""
    done = job(PREAMBLE + 'bag = psd.EmbeddingBag("e", 2)\nbag(torch.tensor([[1]])).sum().backward()', **PACKAGE)
    assert done.code == 0 and "sparse table e has learnt nothing: 1 backwards" in done.out


CLICKS = TREE / "examples" / "pytorch"


@pytest.fixture(name="clicks", scope="module")
def fixture_clicks(tmp_path_factory):
    """Files in Criteo's format, and the AUC of the model that they were drawn from."""
    directory = tmp_path_factory.mktemp("clicks")
    done = subprocess.run([sys.executable, CLICKS / "clicks_draw.py", directory], capture_output=True, text=True, timeout=300,
                          check=True)
    return directory, float(done.stdout.split()[-1])


def trained(job, directory, workers):  # noqa: F811
    """The AUC that the example reaches, and a hash of all its scores: the same on all workers."""
    done = job(CLICKS / "clicks.py", directory, workers=workers, **PACKAGE)
    assert done.code == 0, done.out + done.err
    found = set(re.findall(r"AUC ([\d.]+), scores (\w+)", done.out))
    assert len(found) == 1, done.out
    return found.pop()


def test_clicks_are_predicted_as_well_as_they_can_be(job, clicks):  # noqa: F811
    """If this fails, the example of click-through rates does not learn what is there to learn, or other bits in another run."""
    for name in ("clicks.py", "clicks_draw.py"):
        assert len((CLICKS / name).read_text().splitlines()) < 150
    directory, planted = clicks
    one, two = trained(job, directory, 1), trained(job, directory, 2)
    assert all(planted - 0.005 < float(auc) < planted + 0.001 for auc, _ in (one, two)), (planted, one, two)
    assert trained(job, directory, 2) == two


@pytest.mark.all
def test_clicks_with_four_workers(job, clicks):  # noqa: F811
    """If this fails, the example learns less when its batches are spread over more workers."""
    directory, planted = clicks
    auc, _ = trained(job, directory, 4)
    assert planted - 0.005 < float(auc) < planted + 0.001, (planted, auc)
