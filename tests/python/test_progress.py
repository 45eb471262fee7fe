# SPDX-License-Identifier: Apache-2.0
"""What is told of a training whose script says nothing."""

import csv

from plain_jobs import TREE, fixture_job  # noqa: F401

SCRIPT = """
    import torch

    torch.manual_seed(1)
    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(4):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
"""


def scalars(done):
    """{(worker, name): [(step, value), ...]} of a job that has ended."""
    (path,) = done.directory.glob("logs/*/scalars.csv")
    found = {}
    with open(path, newline="") as file:
        for row in csv.DictReader(file):
            found.setdefault((row["worker"], row["name"]), []).append((int(row["step"]), float(row["value"])))
    return found


def test_a_plain_script_tells_its_loss_and_its_speed(job):  # noqa: F811
    """If this fails, a page shows no curve for scripts that do not report themselves."""
    done = job(SCRIPT.replace("range(4)", "range(500)"))  # numbers are told twice a second
    assert done.code == 0, done.err
    found = scalars(done)
    for rank in ("0", "1"):
        assert all(0 < value < 100 for _, value in found[rank, "loss"]), found
        step, rate = found[rank, "samples_per_s"][0]
        assert step > 1 and 0 < rate < 1e6  # of the first step nobody knows how long it took


def test_a_distributed_optimizer_tells_the_loss_of_its_closure(job):  # noqa: F811
    """If this fails, a script that uses poseidon.torch shows no step."""
    done = job("""
        import poseidon.torch as psd
        import torch

        psd.init()
        model = torch.nn.Linear(4, 1)
        optimizer = psd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01))

        def closure():
            optimizer.zero_grad()
            loss = model(torch.ones(2, 4)).square().mean()
            loss.backward()
            return loss

        for _ in range(5):
            optimizer.step(closure)
        psd.shutdown()
    """, PYTHONPATH=str(TREE / "python"))
    assert done.code == 0, done.err
    assert {("0", "loss"), ("1", "loss")} <= set(scalars(done))
