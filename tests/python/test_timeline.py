# SPDX-License-Identifier: Apache-2.0
"""What the frameworks say of their steps in the timeline of a job: psd_run trace."""

import importlib.util
import json
import textwrap
import uuid

import pytest

from plain_jobs import BIN, TREE, fixture_job  # noqa: F401

needs_tensorflow = pytest.mark.skipif(importlib.util.find_spec("tensorflow") is None, reason="no TensorFlow here (tools/setup.sh frameworks)")
needs_jax = pytest.mark.skipif(importlib.util.find_spec("optax") is None, reason="no JAX here (tools/setup.sh frameworks)")

# After the training: worker 0 asks until the timeline has what is wanted.
ASK = """
import json
import subprocess
import time

import poseidon

poseidon.barrier()
end = time.monotonic() + 30
while poseidon.rank() == 0:
    said = subprocess.run([{psd_run!r}, "trace", "--steps", "1000", {name!r}], capture_output=True, text=True, check=False)
    if said.stdout.count({wanted!r}) >= 4:
        with open("trace.json", "w") as file:
            file.write(said.stdout)
        break
    if time.monotonic() > end:
        print(f"no trace: {{said.stderr}}{{said.stdout[:2000]}}")
        break
    time.sleep(0.1)
poseidon.barrier()
"""


@pytest.fixture
def traced(job):  # noqa: F811
    """spans(script, wanted): those of the timeline of a job of two workers, when a mark of that name is in it."""
    def spans(script, wanted, **python):
        name = f"timeline-{uuid.uuid4().hex[:8]}"
        ask = ASK.format(psd_run=str(BIN / "psd_run"), name=name, wanted=f'"{wanted}"')
        done = job(textwrap.dedent(script) + ask, options=("--name", name), PYTHONPATH=str(TREE / "python"),
                   **python)
        assert done.code == 0, done.err
        assert "no trace" not in done.out, done.out
        pairs = {}
        for event in json.loads((done.directory / "trace.json").read_text())["traceEvents"]:
            if event["ph"] in "be" and event["cat"] in ("program", "push"):
                pairs.setdefault((event["pid"], event["cat"], event["id"]), []).append(event)
        return [dict(begin, dur=end["ts"] - begin["ts"])
                for begin, end in (sorted(pair, key=lambda one: one["ph"]) for pair in pairs.values())]

    return spans


def of_step(spans, mark, category):
    """Those of a mark's process and step."""
    return [span for span in spans if span["cat"] == category and span["pid"] == mark["pid"] and span is not mark
            and span["args"]["step"] == mark["args"]["step"]]


def check_backward(spans):
    """Bars of gradients lie inside of their backward, and gradients leave while it goes on."""
    whole = [span for span in spans if span["name"] == "backward" and span["args"]["step"] > 1]  # the first ones make plans and graphs
    assert whole and len({span["pid"] for span in whole}) == 2, spans
    for backward in whole:
        inside = of_step(spans, backward, "program")
        assert len(inside) >= 2, (backward, spans)
        assert all(backward["ts"] <= span["ts"] and span["ts"] + span["dur"] <= backward["ts"] + backward["dur"] + 1 for span in inside)
        pushed = [span["ts"] for span in of_step(spans, backward, "push")]
        assert any(backward["ts"] <= at <= backward["ts"] + backward["dur"] for at in pushed), (backward, pushed)


def test_hooks_of_backward_are_in_the_timeline(traced):
    """If this fails, psd_run trace does not show when the gradients of a backward became ready, and so not whether they left in time."""
    check_backward(traced("""
        import time

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
        """, "backward"))


@needs_tensorflow
def test_gradients_of_a_keras_model_are_in_the_timeline(traced):
    """If this fails, psd_run trace does not show when the gradients of a Keras model became ready, and so not whether they left in time."""
    spans = traced("""
        import time

        import keras
        import numpy as np
        import poseidon.tensorflow as psd

        class Paced(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                time.sleep(0.05)  # as if it read a batch: steps are told while somebody watches

        psd.init()
        layers = [keras.layers.Dense(128) for _ in range(27)]  # more gradients that leave by themselves than there are names for marks
        model = keras.Sequential([keras.layers.Dense(500, activation="relu"), keras.layers.Dense(500), *layers, keras.layers.Dense(1)])
        model.compile(psd.DistributedOptimizer(keras.optimizers.SGD(0.01)), "mse")
        random = np.random.default_rng(1)
        model.fit(random.normal(size=(640, 64)), random.normal(size=(640, 1)), batch_size=16, verbose=0, callbacks=[Paced()])
        """, "backward", framework="tensorflow")
    check_backward(spans)
    names = {span["name"] for span in spans if span["name"].startswith("gradient ")}
    assert len(names) >= 20 and names <= {f"gradient {number}" for number in range(24)}, names


@needs_tensorflow
def test_a_tape_without_a_graph_is_in_the_timeline(traced):
    """If this fails, the timeline of an eager loop claims that gradients were computed while they were exchanged, or shows no backward."""
    spans = traced("""
        import time

        import keras
        import poseidon.tensorflow as psd
        import tensorflow as tf

        psd.init()
        weights = [tf.Variable(tf.ones((128, 128))), tf.Variable(tf.ones((128, 1)))]  # the first one leaves by itself
        for _ in range(40):
            time.sleep(0.05)  # as if it read a batch: steps are told while somebody watches
            with psd.DistributedGradientTape(tf.GradientTape()) as tape:
                loss = tf.reduce_mean(tf.random.normal((16, 128)) @ weights[0] @ weights[1])
            for weight, gradient in zip(weights, tape.gradient(loss, weights)):
                weight.assign_sub(0.01 * gradient)
        """, "backward", framework="tensorflow")
    whole = [span for span in spans if span["name"] == "backward"]
    assert len({span["pid"] for span in whole}) == 2, spans
    for backward in whole:
        pushed = of_step(spans, backward, "push")
        assert len(pushed) == 2 and all(span["ts"] >= backward["ts"] + backward["dur"] - 1 for span in pushed), (backward, pushed)


@needs_jax
@pytest.mark.parametrize("wrap", ["", "jax.jit"])
def test_what_jax_computes_is_in_the_timeline(traced, wrap):
    """If this fails, psd_run trace does not show how long a worker that uses JAX computed before its gradients left."""
    spans = traced(f"""
        import time

        import jax
        import jax.numpy as jnp
        import poseidon
        import poseidon.jax as psd

        poseidon.init()
        weights = jnp.ones((64, 1))

        def step(weights, x):
            return weights - 0.01 * psd.push_pull(jax.grad(lambda w: jnp.mean((x @ w) ** 2))(weights))

        step = {wrap}(step)
        for number in range(40):
            time.sleep(0.05)  # as if it read a batch: steps are told while somebody watches
            weights = step(weights, jnp.full((16, 64), number / 40)).block_until_ready()
        """, "compute", cold=True)
    computed = [span for span in spans if span["name"] == "compute"]
    assert len({span["pid"] for span in computed}) == 2, spans
    gaps = []
    for compute in computed:
        (push,) = of_step(spans, compute, "push")
        gaps.append(push["ts"] - compute["ts"] - compute["dur"])
        assert compute["dur"] >= 45_000 and gaps[-1] > -20_000, (compute, push)
    assert min(gaps) < 20_000, gaps  # where nobody else kept the core
