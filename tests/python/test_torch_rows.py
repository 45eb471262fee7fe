# SPDX-License-Identifier: Apache-2.0
"""Gradients that are a few rows, as plain scripts have them: nn.Embedding(sparse=True), nn.EmbeddingBag(sparse=True)."""

import base64

import pytest

from plain_jobs import BIN, HERE, TREE, alone, fixture_job, told, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")

SCRIPT = HERE / "plain" / "embeddings.py"
WHOLE = "travel whole, and not as the rows that are touched"


def values(text):
    return torch.frombuffer(bytearray(base64.b64decode(told(text, "VALUES"))), dtype=torch.float32)


def trained(done):
    """What both workers have."""
    assert done.code == 0, done.out + done.err
    first, second = (values(done.log(rank).decode()) for rank in (0, 1))
    assert torch.equal(first, second)
    return first


@pytest.mark.parametrize("optimizer", ["sgd", "adagrad", "sparse_adam"])
def test_trains_like_one_process_with_twice_the_batch(job, tmp_path, optimizer):
    """If this fails, a plain script with sparse layers trains something else with two workers: rows of one of them count
    alone, twice or not at all, or a mean is divided by those who had the row."""
    one = values(alone(tmp_path, SCRIPT, "--optimizer", optimizer, "--batch", 32))
    done = job(SCRIPT, "--optimizer", optimizer, "--batch", 16)
    two = trained(done)
    assert ((two - one).norm() / one.norm()) <= 1e-5
    assert WHOLE not in done.log(0).decode()


def per_step(job, *arguments, **variables):
    """Rows of a step, and bytes that a worker moves for it."""
    text = job(SCRIPT, *arguments, PSD_TRANSPORT="tcp", **variables).log(0).decode()
    return int(told(text, "ROWS")), int(told(text, "MOVED"))


def test_bytes_are_those_of_the_rows_touched(job):
    """If this fails, a step sends more than the rows that it touches, or the more the larger the tables are."""
    small = per_step(job, "--batch", 16)
    wide = per_step(job, "--batch", 16, "--ids", 200_000)
    many = per_step(job, "--batch", 64, "--ids", 200_000)
    each = 8 + 16 * 4  # id and row
    for rows, moved in (small, wide, many):  # this worker's half of the rows to the servers, and all of them back
        assert 1.4 * rows * each < moved < 1.7 * rows * each + 6000, (small, wide, many)
    assert many[0] > 3.5 * wide[0]


def test_other_types_travel_as_rows_too(job):
    """If this fails, tables of two bytes are not trained, or not alike on all workers."""
    for kind in ("bfloat16", "float16"):
        done = job(SCRIPT, "--batch", 16, "--type", kind, "--steps", 8)
        assert trained(done).isfinite().all() and WHOLE not in done.log(0).decode()


def test_jobs_that_cannot_have_sparse_tables_send_all(job, tmp_path):
    """If this fails, a script with sparse layers does not run where workers may join, or nobody is told why it sends more."""
    one = values(alone(tmp_path, SCRIPT, "--batch", 32))
    done = job(SCRIPT, "--batch", 16, options=("--max_workers", 3))
    assert ((trained(done) - one).norm() / one.norm()) <= 1e-5
    assert WHOLE in done.log(0).decode() and "cannot join sums of rows yet" in done.log(0).decode()


KILLED = """
    import hashlib, os, re
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, TensorDataset

    torch.set_num_threads(1)
    torch.manual_seed(0)
    words, top = nn.EmbeddingBag(5000, 16, mode="sum", sparse=True), nn.Linear(16, 3)
    optimizer = torch.optim.SGD([*words.parameters(), *top.parameters()], lr=0.1)
    draw = torch.Generator().manual_seed(1)
    data = TensorDataset(torch.randint(0, 5000, (512, 5), generator=draw), torch.randint(0, 3, (512,), generator=draw))
    for epoch in range(3):
        for step, (ids, topics) in enumerate(DataLoader(data, 8, shuffle=True)):
            optimizer.zero_grad()
            nn.functional.cross_entropy(top(words(ids)), topics).backward()
            if epoch < 2 and step == 10 + epoch and os.environ["KILLS"] == os.environ["PSD_RANK"]:
                with open("poseidon_run.log") as log:
                    os.kill(int(re.findall(r"PROCESS server0 pid (\\d+)", log.read())[-1]), 9)
            optimizer.step()
    assert words.weight.grad.is_sparse
    weights = b"".join(weight.detach().numpy().tobytes() for weight in (*words.parameters(), *top.parameters()))
    print("WEIGHTS", hashlib.sha256(weights).hexdigest())
"""


def test_a_server_killed_twice_changes_no_weight(job):
    """If this fails, a plain script with sparse layers does not outlive the deaths of its server, or trains something else
    after one."""
    calm, killed = job(KILLED, KILLS="nobody"), job(KILLED, KILLS="1")
    assert (calm.code, killed.code) == (0, 0), calm.err + killed.out + killed.err
    weights = {told(done.log(rank).decode(), "WEIGHTS") for done in (calm, killed) for rank in (0, 1)}
    assert len(weights) == 1, weights
    assert WHOLE not in killed.log(0).decode() and killed.err.count(" is back after ") == 2, killed.err


def test_the_environment_says_how_they_travel(job):
    """If this fails, PSD_TORCH_ROWS=whole does nothing, or a word that nobody knows is taken for another."""
    rows, moved = per_step(job, "--batch", 16, PSD_TORCH_ROWS="whole")
    assert moved > 2 * 2 * 4096 * 16 * 4 > 10 * rows  # both tables, there and back
    done = job(SCRIPT, "--batch", 16, PSD_TORCH_ROWS="some")
    assert done.code != 0 and "PSD_TORCH_ROWS=some: must be touched or whole" in done.out + done.err


LARGE = """
    import torch
    from torch import nn
    import poseidon.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    table = nn.Embedding(9000, 1024, sparse=True)
    table.weight.data.zero_()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters())
    for step in range(2):
        optimizer.zero_grad()
        table(torch.arange(4000) + 5000 * hvd.rank()).sum().backward()  # 16 MiB, and 32 MiB come back
        optimizer.step()
    wanted = torch.zeros(9000)
    wanted[:4000] = wanted[5000:] = -1.0
    assert (table.weight == wanted[:, None]).all() and table.weight.grad._nnz() == 8000
"""


def test_more_than_a_message_holds(job):
    """If this fails, a step that touches many wide rows ends a script, or loses some of them."""
    done = job(LARGE, PYTHONPATH=str(TREE / "python"))
    assert done.code == 0, done.out + done.err + done.log(0).decode()


WRAPPED = """
    import sys
    import torch
    from torch import nn
    import poseidon.torch as hvd

    hvd.init()
    torch.set_num_threads(1)
    torch.manual_seed(1)
    how = sys.argv[1]
    table = nn.Embedding(3000, 8, sparse=True)
    begun = table.weight.detach().clone()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(table.parameters(), lr=1.0), table.named_parameters(),
                                         sparse_as_dense=how == "whole", op=hvd.Sum if how == "sum" else hvd.Average,
                                         compression=hvd.Compression.fp16 if how == "fp16" else hvd.Compression.none)
    for step in range(4):
        optimizer.zero_grad()
        if step != 2 or hvd.rank() == 0:  # in one step, one rank has nothing
            ids = torch.tensor([7, 10 + hvd.rank(), 7, 2999])
            table(ids).sum().backward()
        optimizer.step()
        expected = {7: 2, 2999: 1, 10: 0.5, 11: 0.5} if step != 2 else {7: 1, 2999: 0.5, 10: 0.5}
        gradient = table.weight.grad
        assert gradient.is_sparse and gradient.is_coalesced()
        found = dict(zip(gradient.indices()[0].tolist(), gradient.values()[:, 3].tolist()))
        assert found == {row: number * (2 if how == "sum" else 1) for row, number in expected.items()}, (step, found)
    left = (begun - table.weight.detach())[[7, 2999, 10, 11, 12], 0] / (2 if how == "sum" else 1)
    assert torch.allclose(left, torch.tensor([7.0, 3.5, 2.0, 1.5, 0.0]), atol=2e-6), left
    engine = optimizer._poseidon
    print("BY_ROWS", [bucket.by_rows for bucket in engine.buckets])
"""


@pytest.mark.parametrize("how", ["rows", "whole", "sum", "fp16"])
def test_wrapped_optimizers(job, how):
    """If this fails, DistributedOptimizer averages rows otherwise than whole gradients, a rank without any holds the others up,
    or sparse_as_dense, op=Sum and compression mean something else for rows."""
    done = job(WRAPPED, how, PYTHONPATH=str(TREE / "python"))
    assert done.code == 0, done.out + done.err + done.log(0).decode()
    assert told(done.log(0).decode(), "BY_ROWS") == ("[False]" if how == "whole" else "[True]")
