# SPDX-License-Identifier: Apache-2.0
"""poseidon.jax.Checkpoint: programs of JAX, killed as a whole, go on from psd_run's checkpoints."""

import functools
import random
import sys

import pytest

import test_auto_resume
from test_auto_resume import ended, kill_at, script_in, told

pytest.importorskip("optax", reason="no JAX here (tools/setup.sh frameworks)")
start = functools.partial(test_auto_resume.start, python=sys.executable)
PATIENCE_S = 300  # importing and compiling take long on busy cores

SCRIPT = """
import hashlib, sys, time
import jax, numpy as np, optax
import poseidon
import poseidon.jax as psd
poseidon.init()
points = np.random.default_rng(1).normal(size=(96, 4)).astype("float32")
params = psd.broadcast({"weights": jax.numpy.zeros(4), "bias": jax.numpy.zeros(())})
optimizer = psd.distributed(optax.adam(0.05))
state = psd.Checkpoint(params=params, opt_state=optimizer.init(params), key=jax.random.fold_in(jax.random.key(3), poseidon.rank()),
                       total=0.0NAMES)
print("BEGAN", state.step, state.resumed, flush=True)

def loss(params, batch, key):
    noise = 0.1 * jax.random.normal(key, (len(batch),))
    return ((batch @ params["weights"] + params["bias"] + noise - batch.sum(1)) ** 2).mean()

for step in state.steps(24, epoch=12):
    batch = points[(step % 12) * 8 + 4 * poseidon.rank():][:4]
    state.key, key = jax.random.split(state.key)
    found, gradients = jax.value_and_grad(loss)(state.params, batch, key)
    updates, state.opt_state = optimizer.update(gradients, state.opt_state, state.params)
    state.params = optax.apply_updates(state.params, updates)
    state.total += float(found)
    time.sleep(float(sys.argv[1]))
leaves = jax.tree.leaves((state.params, state.opt_state))
print("SHA", hashlib.sha256(b"".join(np.asarray(each).tobytes() for each in leaves)).hexdigest())
print("KEPT", state.total, jax.random.key_data(state.key).tolist())
"""


@pytest.mark.parametrize("every", ["5steps", pytest.param("epoch", marks=pytest.mark.all)])
def test_a_program_ends_like_the_run_that_was_left_alone(tmp_path, every):
    """If this fails, a program with poseidon.jax.Checkpoint goes on with other parameters, keys or steps than it had, or a
    worker gets those of another."""
    path, saved = script_in(tmp_path / "script", SCRIPT.replace("NAMES", "")), tmp_path / "saved"
    whole = ended(start(tmp_path / "whole", path, 0), seconds=PATIENCE_S)
    job = start(tmp_path / "first", path, 0.05, options=["--checkpoint", saved, "--checkpoint_every", every])
    kill_at(job, saved, random.randint(1, 3) if every == "5steps" else 1)
    again = ended(start(tmp_path / "again", path, 0, options=["--resume", saved]), seconds=PATIENCE_S)
    assert "BEGAN 0" not in again.stdout() and "True" in again.stdout()
    assert len(told(whole)) == 2 and told(again) == told(whole), whole.stdout() + again.stdout()
    assert told(again, "KEPT") == told(whole, "KEPT")
    other = script_in(tmp_path / "other", SCRIPT.replace("NAMES", ", more=1"))
    wrong = start(tmp_path / "wrong", other, 0, options=["--resume", saved])
    assert wrong.wait(PATIENCE_S) != 0
    assert "the checkpoint has 4 names, the program 5" in wrong.stdout() + wrong.stderr(), wrong.stdout() + wrong.stderr()
