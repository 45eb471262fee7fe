# SPDX-License-Identifier: Apache-2.0
"""What is told of a training whose script says nothing."""

import csv
import json
import re
import uuid

import pytest

from plain_jobs import BIN, TREE, fixture_job  # noqa: F401

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


def expected(done):
    """(the last step, the step at which the job was expected to end), as its report has them."""
    (path,) = done.directory.glob("logs/*/report.html")
    job = re.search(r'"job":\{.*?"log_directory"', path.read_text(), re.DOTALL).group()
    total = re.search(r'"steps_total":(\d+|null)', job).group(1)
    return int(re.search(r'"step":(\d+)', job).group(1)), None if total == "null" else int(total)


KERAS = """
    import keras, numpy

    random = numpy.random.default_rng(1)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    for _ in range(FITS):
        model.fit(random.random((64, 4)), random.random((64, 1)), batch_size=8, epochs=5, initial_epoch=2, verbose=0)
"""

HUGGINGFACE = """
    import torch, transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels):
            out = self.layer(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    data = [{"x": torch.ones(4) * i, "labels": torch.ones(1)} for i in range(64)]
    options = transformers.TrainingArguments("out", per_device_train_batch_size=8, num_train_epochs=3, report_to=[],
                                             save_strategy="no", use_cpu=True, disable_tqdm=True)
    transformers.Trainer(Model(), options, train_dataset=data).train()
"""

LIGHTNING = """
    import lightning, torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, index):
            return (self.layer(batch[0]) - batch[1]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.01)

    data = torch.utils.data.TensorDataset(torch.randn(64, 4), torch.randn(64, 1))
    trainer = lightning.Trainer(max_epochs=3, logger=False, enable_checkpointing=False, enable_progress_bar=False,
                                accelerator="cpu", enable_model_summary=False)
    trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
"""


# Both optimizers step for each batch.
TWO_OPTIMIZERS = LIGHTNING.replace("""            self.layer = torch.nn.Linear(4, 1)
""", """            self.layer = torch.nn.Linear(4, 1)
            self.other = torch.nn.Linear(4, 1)
            self.automatic_optimization = False
""").replace("""            return (self.layer(batch[0]) - batch[1]).square().mean()
""", """            for optimizer, layer in zip(self.optimizers(), (self.layer, self.other)):
                optimizer.zero_grad()
                self.manual_backward((layer(batch[0]) - batch[1]).square().mean())
                optimizer.step()
""").replace("return torch.optim.SGD(self.parameters(), lr=0.01)",
             "return [torch.optim.SGD(layer.parameters(), lr=0.01) for layer in (self.layer, self.other)]")


@pytest.mark.parametrize("module, script, steps, total", [
    ("keras", KERAS.replace("FITS", "1"), 12, 12),
    ("keras", KERAS.replace("FITS", "2"), 24, None),  # who trains twice may train a third time
    ("transformers", HUGGINGFACE, 12, 12),
    ("lightning", LIGHTNING, 12, 12),
    ("pytorch_lightning", "    import pytorch_lightning\n" + LIGHTNING, 12, 12),
    ("lightning", TWO_OPTIMIZERS, None, None),
    ("torch", SCRIPT, 16, None),
], ids=["keras", "keras twice", "transformers", "lightning", "two lightnings", "two optimizers", "a loop"])
def test_libraries_that_know_their_end_tell_it(job, module, script, steps, total):  # noqa: F811
    """If this fails, nobody sees when a job will end whose library knows it; or an end is claimed that nobody knows."""
    pytest.importorskip(module)
    done = job(script)
    assert done.code == 0, done.err
    seen = expected(done)
    assert seen == (seen[0] if steps is None else steps, total)


def raises(problem):
    def remaining():
        raise problem

    return remaining


@pytest.mark.parametrize("remaining", [
    raises(ZeroDivisionError()), raises(AttributeError("another version")), lambda: None, lambda: "soon",
    lambda: 10 ** 400, lambda: float("nan"), lambda: -1,
], ids=["division", "attribute", "none", "text", "huge", "nan", "negative"])
def test_a_library_that_cannot_say_ends_no_training(monkeypatch, remaining):
    """If this fails, a training ends because somebody wanted to know how long it would be."""
    monkeypatch.syspath_prepend(str(TREE / "python"))
    import poseidon
    from poseidon._progress import Progress

    told = []
    monkeypatch.setattr(poseidon, "report", lambda *words: told.append(words))
    progress = Progress()
    progress.remaining = remaining
    progress.step(1)
    assert told == [(1,)]  # and no end is claimed


def test_hooks_of_backward_are_in_the_timeline(job):  # noqa: F811
    """If this fails, psd_run trace does not show when the gradients of a backward became ready, and so not whether they left in time."""
    name = f"hooks-{uuid.uuid4().hex[:8]}"
    done = job(f"""
        import subprocess
        import time

        import poseidon
        import poseidon.torch as psd
        import torch

        psd.init()
        model = torch.nn.Sequential(torch.nn.Linear(64, 500), torch.nn.ReLU(), torch.nn.Linear(500, 500), torch.nn.Linear(500, 1))
        optimizer = psd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.01), bucket_bytes=1 << 16)
        torch.manual_seed(1)
        for _ in range(40):
            time.sleep(0.05)  # as if it read a batch: steps are told while somebody watches
            optimizer.zero_grad()
            model(torch.randn(64, 64)).square().mean().backward()
            optimizer.step()
        poseidon.barrier()
        end = time.monotonic() + 30
        while poseidon.rank() == 0 and time.monotonic() < end:
            said = subprocess.run([{str(BIN / "psd_run")!r}, "trace", "--steps", "1000", {name!r}], capture_output=True, text=True, check=False)
            said, why = said.stdout, said.stderr
            if '"backward"' in said:
                with open("trace.json", "w") as file:
                    file.write(said)
                break
            time.sleep(0.1)
        else:
            print(f"no trace: {{why}}" if poseidon.rank() == 0 else "")
        poseidon.barrier()
        """, options=("--name", name), cold=True, PYTHONPATH=str(TREE / "python"))
    assert done.code == 0, done.err
    assert "no trace" not in done.out, done.out
    events = json.loads((done.directory / "trace.json").read_text())["traceEvents"]
    marks = {}
    for event in events:
        if event["ph"] in "be" and event["cat"] in ("program", "push"):
            marks.setdefault((event["pid"], event["cat"], event["id"]), []).append(event)
    spans = [dict(begin, dur=end["ts"] - begin["ts"]) for begin, end in (sorted(pair, key=lambda one: one["ph"]) for pair in marks.values())]
    whole = [span for span in spans if span["name"] == "backward" and span["args"]["step"] > 1]  # in the first one buckets are planned
    assert whole, spans
    for backward in whole:
        inside = [span for span in spans if span["cat"] == "program" and span["pid"] == backward["pid"] and span is not backward
                  and span["args"]["step"] == backward["args"]["step"]]
        assert len(inside) >= 2, (backward, spans)
        assert all(backward["ts"] <= span["ts"] and span["ts"] + span["dur"] <= backward["ts"] + backward["dur"] + 1 for span in inside)
        pushed = [span["ts"] for span in spans if span["cat"] == "push" and span["pid"] == backward["pid"]
                  and span["args"]["step"] == backward["args"]["step"]]
        assert any(backward["ts"] <= at <= backward["ts"] + backward["dur"] for at in pushed), (backward, pushed)
