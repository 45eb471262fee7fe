# SPDX-License-Identifier: Apache-2.0
"""What is told of a training whose script says nothing."""

import csv
import importlib.util
import re

import pytest

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
    paced = SCRIPT.replace("range(4)", "range(25)").replace("step()\n", "step()\n            time.sleep(0.01)\n")
    done = job("    import time\n" + paced)  # numbers are told twice a second
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

# A step takes 50 ms or more, and has 16 samples on two workers.
PACED_FIT = """
    import time

    import keras, numpy, tensorflow

    random = numpy.random.default_rng(1)
    data = tensorflow.data.Dataset.from_tensor_slices((random.random((240, 4), "f4"), random.random((240, 1), "f4"))).batch(8)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse")
    pace = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: time.sleep(0.05))
    model.fit(data, epochs=3, verbose=0, callbacks=[pace])
"""

PACED_TAPE = """
    import time

    import keras, numpy, tensorflow

    random = numpy.random.default_rng(1)
    data = tensorflow.data.Dataset.from_tensor_slices((random.random((240, 4), "f4"), random.random((240, 1), "f4"))).batch(8)
    model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.SGD(0.01)
    for _ in range(3):
        for x, y in data:
            with tensorflow.GradientTape() as tape:
                loss = tensorflow.reduce_mean(tensorflow.square(model(x) - y))
            gradients = tape.gradient(loss, model.trainable_variables)
            optimizer.apply_gradients(zip(gradients, model.trainable_variables))
            time.sleep(0.05)
"""


@pytest.mark.parametrize("script, tells_loss", [(PACED_FIT, True), (PACED_TAPE, False)], ids=["fit", "tape"])
def test_a_plain_script_of_keras_tells_its_speed(job, script, tells_loss):  # noqa: F811
    """If this fails, a page has no samples per second of a script that trains with Keras, or those of all steps so far."""
    if importlib.util.find_spec("keras") is None:  # importing it takes seconds
        pytest.skip("no keras here (tools/setup.sh frameworks)")
    done = job(script, framework="tensorflow")
    assert done.code == 0, done.err
    found = scalars(done)
    for rank in ("0", "1"):
        assert ((rank, "loss") in found) == tells_loss, found
        assert all(0 < rate <= 320 for _, rate in found[rank, "samples_per_s"]), found


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
    if importlib.util.find_spec(module) is None:  # importing it takes seconds
        pytest.skip(f"no {module} here (tools/setup.sh frameworks)")
    done = job(script, framework={"keras": "tensorflow", "lightning": "lightning"}.get(module, "torch"))
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
