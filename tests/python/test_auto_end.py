# SPDX-License-Identifier: Apache-2.0
"""How plain PyTorch scripts end: what was verified is told, and nothing ends well that trained wrong or not at all."""

import re

import pytest

from plain_jobs import BIN, fixture_job  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")

LOOP = """
import os
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))
loader = DataLoader(TensorDataset(torch.randn(64, 2), torch.randn(64, 1)), 8, shuffle=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def epoch():
    total = 0.0
    for points, targets in loader:
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(points), targets)
        loss.backward()
        optimizer.step()
        total += loss.item()
    return total
"""


def test_a_good_end_says_what_was_verified(job):
    """If this fails, people have to believe instead of read."""
    done = job(LOOP + "epoch(); epoch()\n")
    assert done.code == 0, done.out + done.err
    assert "verified: 64 samples, each once per epoch; weights equal to the bit on 2 workers after 8 steps; learning rates " \
        "equal in every step" in done.err


@pytest.mark.parametrize("kind, by_table", [("float32", 2), ("bfloat16", 8)])  # 2: the first, and after an epoch
def test_words_travel_with_the_gradients(job, kind, by_table):
    """If this fails, every step pays for a message that tells no gradients; or half a model is trained unseen."""
    done = job(LOOP.replace("import torch\n", f"import torch\ntorch.set_default_dtype(torch.{kind})\n", 1) + """
epoch(); epoch()
from poseidon.torch.engine import engine_of
print("BY TABLE", engine_of(model[0].weight).companions[0]._table.step, flush=True)
""")
    assert done.code == 0 and "on 2 workers after 8 steps" in done.err, done.out + done.err
    assert done.out.count(f"BY TABLE {by_table}\n") == 2, done.out


def test_a_server_that_dies_changes_no_bit(job):
    """If this fails, a plain script does not survive the death of a server, or trains something else after it."""
    script = LOOP + """
import hashlib, re
epoch()
if os.environ["KILLS"] == os.environ["PSD_RANK"]:
    with open("poseidon_run.log") as log:
        os.kill(int(re.findall(r"PROCESS server0 pid (\\d+)", log.read())[-1]), 9)
epoch(); epoch()
print("WEIGHTS", hashlib.sha1(b"".join(weight.detach().numpy().tobytes() for weight in model.parameters())).hexdigest())
"""
    calm, killed = job(script, KILLS="nobody"), job(script, KILLS="1")
    assert (calm.code, killed.code) == (0, 0), calm.err + killed.out + killed.err
    digests = [set(re.findall(r"WEIGHTS (\w+)", done.out)) for done in (calm, killed)]
    assert digests[0] == digests[1] and len(digests[0]) == 1, calm.out + killed.out
    assert "server0 died and was back after" in killed.err, killed.err


def test_a_death_that_the_job_survives_is_told(job):
    """If this fails, a job leaves samples out in every epoch, and nobody knows."""
    done = job(LOOP + """
epoch()
if os.environ["PSD_RANK"] == "1":
    os.kill(os.getpid(), 9)
epoch()
print("GOES ON")
""", options=("--on_worker_death=continue",), cold=True)
    assert "GOES ON" in done.out, done.out + done.err
    assert "worker 1 died, and the job goes on without" in done.err
    assert "verified in part: worker 1 was lost after step 4: from then on its part of each epoch was not trained on; " \
        "weights after 8 steps are those of one worker, with no other to compare them with" in done.err, done.err
    assert "verified: " not in done.err and "each once" not in done.err, "the first epoch is compared in the next step"


def test_others_tell_the_end_when_worker_0_is_dead(job):
    """If this fails, nobody says in the end what was verified, and what was not."""
    done = job(LOOP + """
epoch()
step = optimizer.step
def once_more():
    step()
    if os.environ["PSD_RANK"] == "0":
        os.kill(os.getpid(), 9)
optimizer.step = once_more
epoch()
""", workers=3, options=("--on_worker_death=continue",), cold=True)
    said = [line for line in done.err.splitlines() if "verified" in line]
    assert len(said) == 1 and "verified in part: worker 0 was lost after step 4" in said[0], done.out + done.err
    assert "until then 64 samples, each once per epoch; weights equal to the bit on 2 workers after 6 steps" in said[0]


def test_a_worker_that_ends_with_the_job_is_brief(job):
    """If this fails, people read where the workers were that are well, before what has failed."""
    done = job(LOOP + """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)  # psd_run might else end it before it hears of the job
epoch()
if os.environ["PSD_RANK"] == "1":
    raise RuntimeError("no more")
epoch()
""")
    assert done.code == 1, done.out + done.err
    assert "Traceback" not in done.log(0).decode(), done.log(0).decode()
    assert "this worker ends, because the job is over: " in done.log(0).decode()
    assert "RuntimeError: no more" in done.log(1).decode()


def test_learning_rates_that_differ_are_named_in_the_next_step(job):
    """If this fails, workers whose schedulers look at their own training loss train apart in silence."""
    done = job(LOOP + """
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, threshold=0.0)
for number in range(20):
    epoch()
    scheduler.step(1.0 if os.environ["PSD_RANK"] == "1" else 1.0 / (number + 1))
print("GOES ON")
""")
    assert done.code == 2, done.out + done.err
    assert "the workers' learning rates differ: this one has [0.1]" in done.err
    assert "GOES ON" not in done.out


def test_weights_that_differ_in_the_end_are_named(job):
    """If this fails, a job of workers that ended with different models counts as done."""
    done = job(LOOP + """
epoch()
with torch.no_grad():
    model[0].weight += 0.01 * int(os.environ["PSD_RANK"])
""")
    assert done.code == 2, done.out + done.err
    assert "the workers have ended with different weights" in done.err
    assert "verified" not in done.err


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.all)])
def test_nothing_ends_well_that_was_trained_in_children_which_were_stopped(job, method):
    """If this fails, a script in the style of Hogwild saves an untrained model, and the job counts as done."""
    script = LOOP.replace("def epoch", "import torch.multiprocessing as processes\ndef epoch") + f"""
if __name__ == "__main__":
    child = processes.get_context("{method}").Process(target=epoch)
    child.start()
    child.join()
    print("SAVED")  # whatever has become of it
"""
    done = job(script)
    assert done.code == 2, done.out + done.err
    assert "in processes that it started itself" in done.err

def test_an_optimizer_that_nobody_has_any_more_is_not_compared(job):
    """If this fails, a good script is stopped or not by when Python's garbage is collected."""
    done = job("""
import gc
gc.disable()
""" + LOOP + """
class Trainer:
    def __init__(self):
        self.optimizer = optimizer
        optimizer.register_step_post_hook(self.count)  # the two know each other
    def count(self, *_):
        pass
Trainer()
epoch()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
if os.environ["PSD_RANK"] == "1":
    gc.collect()
epoch()
""")
    assert done.code == 0, done.out + done.err
    assert "verified: 64 samples, each once per epoch; weights equal to the bit on 2 workers after 8 steps; learning rates " \
        "equal in every step" in done.err


def test_an_optimizer_of_a_model_before_is_let_go(job):
    """If this fails, a script that trains one model after the other sends the gradients of all of them."""
    done = job(LOOP + """
import weakref
epoch()
before = weakref.ref(optimizer)
model = nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for points, targets in loader:
    print("GONE" if before() is None else "STILL THERE")
    break
epoch()
""")
    assert done.code == 0, done.out + done.err
    assert done.out.count("GONE") == 2 and "STILL THERE" not in done.out, done.out
