# SPDX-License-Identifier: Apache-2.0
"""Plain PyTorch scripts under psd_run: what is distributed, what is left alone, what is stopped.

The scripts know nothing of Poseidon. Those of plain/ are also run by themselves, with twice the batch:
two workers have to do the same."""

import importlib.util
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys

import pytest

from plain_jobs import AUTO, BIN, Done, HERE, TREE, alone, by_kind, call, fixture_job, steps, told, torch, written  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


# ---- what has to be shown


@pytest.mark.parametrize("name,both,each", [
    ("strict", ("--batch", 32), ("--batch", 16)),
    ("scheduled", (40,), (20,)),
    ("accumulating", (40,), (20,)),
])
def test_plain_scripts_train_like_one_process_with_twice_the_batch(job, tmp_path, name, both, each):
    """If this fails, scripts that nobody changed do not train as they should."""
    script = HERE / "plain" / f"{name}.py"
    one = alone(tmp_path, script, *both)
    done = job(script, *each)
    assert done.code == 0, done.out + done.err
    workers = [done.log(rank).decode() for rank in (0, 1)]
    for text in workers:
        assert len(steps(text)) == 20
        assert (steps(text) - steps(one)).abs().max() <= 1e-5
        assert float(told(text, "ACCURACY")) >= float(told(one, "ACCURACY")) - 0.005
        assert json.loads(told(text, "TESTED")) == json.loads(told(one, "TESTED"))
    seen = [json.loads(told(text, "SEEN")) for text in workers]
    whole = json.loads(told(one, "SEEN"))
    assert len(seen[0]) == len(seen[1]) == len(whole) / 2
    assert sorted(seen[0] + seen[1]) == sorted(whole) == list(range(len(whole)))
    assert told(workers[0], "HASH") == told(workers[1], "HASH")
    (note,) = done.notes()
    assert f"worker0: automatic distribution of {name}.py: 2 workers" in note
    assert f"NOTE worker0: automatic distribution of {name}.py" in done.run_log
    assert "automatic" not in workers[0] + workers[1]
    assert "poseidon" not in workers[0] + workers[1]


@pytest.mark.parametrize("samples", [pytest.param(70, marks=pytest.mark.all), 65])
def test_the_last_step_of_an_epoch_counts_every_sample_once(job, tmp_path, samples):
    """If this fails, an epoch that does not divide evenly trains on wrong gradients: 70 leaves 6
    samples for two workers, 65 leaves one, and a worker without any."""
    script = HERE / "plain" / "strict.py"
    one = alone(tmp_path, script, "--batch", 32, "--samples", samples)
    done = job(script, "--batch", 16, "--samples", samples)
    assert done.code == 0, done.out + done.err
    for rank in (0, 1):
        text = done.log(rank).decode()
        assert (steps(text) - steps(one)).abs().max() <= 1e-5
    assert told(done.log(0).decode(), "HASH") == told(done.log(1).decode(), "HASH")


def check_kinds(job, tmp_path, kinds, workers):
    script = HERE / "plain" / "various.py"
    one = by_kind(alone(tmp_path, script, ",".join(kinds), 4 * workers))
    done = job(script, ",".join(kinds), 4, workers=workers)
    assert done.code == 0, done.out + done.err
    for rank in range(workers):
        texts = by_kind(done.log(rank).decode())
        for kind in kinds:
            assert len(steps(texts[kind])) == len(steps(one[kind])) == 20, kind
            assert (steps(texts[kind]) - steps(one[kind])).abs().max() <= 1e-5, kind
            assert told(texts[kind], "EVALUATED") == ("90 30" if kind == "weighted" else "108 30"), kind


KINDS = ["closure", "in_turn", "by_grad", "kept", "unused", "routed", "folds", "own_batches", "bulk", "weighted",
         "persistent"]


def test_loops_of_many_kinds(job, tmp_path):
    """If this fails, scripts of that kind train on other gradients than one process would."""
    check_kinds(job, tmp_path, KINDS, 2)


@pytest.mark.all
@pytest.mark.parametrize("kind", KINDS)
def test_loops_of_many_kinds_in_jobs_of_their_own(job, tmp_path, kind):
    """If this fails, a loop trains right only after another one has, or with two workers alone."""
    check_kinds(job, tmp_path, [kind], 3)


UNSEEDED = """
import hashlib, os, random
import numpy as np
import torch
from torch import nn

class Weird(torch.utils.data.Sampler):
    def __init__(self, count):
        self.count = count
    def __len__(self):
        return self.count
    def __iter__(self):
        order = list(range(self.count))
        random.shuffle(order)
        np.random.shuffle(order)
        return iter(order)

torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.1))
head = nn.Linear(16, 1)
data = torch.utils.data.TensorDataset(torch.arange(96), torch.randn(96, 8), torch.randn(96, 1))
loader = torch.utils.data.DataLoader(data, 12, sampler=Weird(96))
first = torch.optim.Adam(model.parameters(), lr=0.01)
second = torch.optim.SGD(head.parameters(), lr=0.01)
model.apply(lambda part: nn.init.normal_(part.weight) if isinstance(part, nn.Linear) else None)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 10)
seen = []
for epoch in range(2):
    for index, points, targets in loader:
        seen += index.tolist() if epoch == 0 else []
        first.zero_grad(); second.zero_grad()
        loss = nn.functional.mse_loss(head(model(points)), targets)
        scaler.scale(loss).backward()
        scaler.unscale_(first)
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(first); scaler.step(second)
        scaler.update()
state = [*model.state_dict().values(), *head.state_dict().values()]
raw = b"".join(value.numpy().tobytes() for value in state)
print("HASH", hashlib.sha256(raw).hexdigest())
print("SEEN", sorted(seen))
torch.save(model.state_dict(), f"{os.getpid()}.pt")
with open(f"open{os.getpid()}.pt", "wb") as file:
    torch.save(model.state_dict(), file)
"""


def test_unseeded_workers_agree(job):
    """If this fails, workers whose scripts set no seed begin with different weights or shuffle
    differently; buffers, two optimizers, scaled and clipped gradients are part of it."""
    done = job(UNSEEDED)
    assert done.code == 0, done.out + done.err
    texts = [done.log(rank).decode() for rank in (0, 1)]
    assert told(texts[0], "HASH") == told(texts[1], "HASH")
    seen = [json.loads(told(text, "SEEN")) for text in texts]
    assert sorted(seen[0] + seen[1]) == list(range(96))
    files = sorted(path.name for path in done.directory.glob("*.pt") if path.stat().st_size > 0)
    assert len(files) == 2, "worker 0 writes, nobody else"


SPLIT = """
import hashlib
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
torch.set_num_threads(1)
whole = TensorDataset(torch.arange(100), torch.randn(100, 4), torch.randn(100, 1))
training, held_back = random_split(whole, [80, 20])
model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model[2].parameters(), lr=0.1)
seen = []
for index, points, targets in DataLoader(training, 10, shuffle=True):
    seen += index.tolist()
    optimizer.zero_grad()
    nn.functional.mse_loss(model(points), targets).backward()
    optimizer.step()
raw = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
print("HASH", hashlib.sha256(raw).hexdigest())
print("SEEN", seen)
print("HELD", sorted(held_back.indices))
print("SET", list({"ant", "bee", "cat", "dog", "eel", "fox"}))
import os, pathlib, time
goal, deadline = pathlib.Path("model.pt"), time.monotonic() + 3
while os.environ["PSD_RANK"] == "1" and time.monotonic() < deadline and \\
        not (goal.exists() and goal.stat().st_size > 0):
    time.sleep(0.01)
with open(goal, "wb") as file:  # which makes it empty
    torch.save(model.state_dict(), file)
for text in ("of an older run", ""):
    os.makedirs(f"{text}{os.getpid()}")
    os.chdir(f"{text}{os.getpid()}")
    if text:
        pathlib.Path("best.pt").write_text(text)
    torch.save({"of": os.environ["PSD_RANK"]}, "best.pt")
    print("LOADED", torch.load("best.pt"))
"""


def test_unseeded_workers_split_alike(job):
    """If this fails, one worker trains on what another evaluates with, layers that no optimizer has
    differ between workers, a worker empties the file that worker 0 has written, or loads another."""
    done = job(SPLIT, cold=True)  # the order of sets is decided when Python starts
    assert done.code == 0, done.out + done.err
    texts = [done.log(rank).decode() for rank in (0, 1)]
    for word in ("HASH", "HELD", "SET"):
        assert told(texts[0], word) == told(texts[1], word)
    assert [text.count("LOADED {'of': '0'}") for text in texts] == [2, 2]
    seen = [sample for text in texts for sample in json.loads(told(text, "SEEN"))]
    assert sorted(seen + json.loads(told(texts[0], "HELD"))) == list(range(100))
    assert list(torch.load(done.directory / "model.pt")) == ["0.weight", "0.bias", "2.weight", "2.bias"]


# ---- what is stopped

LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
model = nn.Linear(2, 1)
data = TensorDataset(torch.randn(64, 2), torch.randn(64, 1))
loader = DataLoader(data, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def loss_of(points, targets):
    return nn.functional.mse_loss(model(points), targets)
"""

REFUSED = {
    "two_optimizers": ("""
second = torch.optim.Adam(model.parameters())
for points, targets in loader:
    loss_of(points, targets).backward()
    optimizer.step()
    second.step()
    optimizer.zero_grad()
""", "two optimizers step the same parameters"),
    "no_optimizer": ("""
for points, targets in loader:
    loss_of(points, targets).backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.1 * parameter.grad
            parameter.grad = None
print("LAST LINE")
""", "without an optimizer of torch.optim"),
    "no_optimizer_nor_backward": ("""
for points, targets in loader:
    parameters = list(model.parameters())
    gradients = torch.autograd.grad(loss_of(points, targets), parameters)
    with torch.no_grad():
        for parameter, gradient in zip(parameters, gradients):
            parameter -= 0.1 * gradient
""", "without an optimizer of torch.optim"),
    "read_too_early": ("""
batches = list(loader)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for points, targets in batches:
    loss_of(points, targets).backward()
    optimizer.step()
""", "was read before its optimizer was made"),
    "lbfgs": ("""
optimizer = torch.optim.LBFGS(model.parameters())
for points, targets in loader:
    def closure():
        optimizer.zero_grad()
        loss = loss_of(points, targets)
        loss.backward()
        return loss
    optimizer.step(closure)
""", "LBFGS"),
    "own_sampler": ("""
sampler = torch.utils.data.DistributedSampler(data, num_replicas=2, rank=0)
for points, targets in DataLoader(data, 8, sampler=sampler):
    loss_of(points, targets).backward()
    optimizer.step()
""", "DistributedSampler"),
    "own_process": ("""
import torch.multiprocessing as processes
def train():
    for points, targets in loader:
        loss_of(points, targets).backward()
        optimizer.step()
child = processes.get_context("fork").Process(target=train)
child.start()
child.join()
raise SystemExit(child.exitcode)
""", "in processes that it started itself, which were stopped"),
    "unfrozen": ("""
model.bias.requires_grad_(False)
for number, (points, targets) in enumerate(loader):
    model.bias.requires_grad_(number > 0)
    loss_of(points, targets).backward()
    optimizer.step()
""", "not there, or not trained, when the epoch began"),
    "different_weights": ("""
import os
for points, targets in loader:
    with torch.no_grad():
        model.weight.fill_(float(os.getpid()))
    loss_of(points, targets).backward()
    optimizer.step()
""", "weights differ before the first step"),
    "different_data": ("""
import os
order = torch.randperm(64, generator=torch.Generator().manual_seed(os.getpid())).tolist()
for points, targets in DataLoader(torch.utils.data.Subset(data, order[:48]), 8, shuffle=True):
    loss_of(points, targets).backward()
    optimizer.step()
""", "training data are not the same on all workers"),
    "ends_early": ("""
import os
for number, (points, targets) in enumerate(loader):
    if number == 2 and os.environ["PSD_RANK"] == "1":
        raise SystemExit(0)
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    optimizer.step()
""", "worker 1 has ended its training while others go on"),
    "different_order": ("""
import os
order = torch.randperm(64, generator=torch.Generator().manual_seed(os.getpid())).tolist()
try:
    for points, targets in DataLoader(data, 8, sampler=order):
        loss_of(points, targets).backward()
        optimizer.step()
except BaseException:
    pass  # whatever it is
print("GOES ON")
optimizer.step()
print("AND ON")
""", "different orders"),
}


# Of each kind one is looked at every time, with the reasons that its advice depends on.
RARELY = ("no_optimizer_nor_backward", "own_sampler", "own_process", "unfrozen", "different_weights")


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.all) if case in RARELY else case
                                  for case in REFUSED])
def test_what_cannot_be_distributed_is_stopped_by_name(job, case):
    """If this fails, a script is trained wrong, and nobody is told; or it is told again and again, and not where
    people look: in the last line."""
    body, reason = REFUSED[case]
    text = LOOP.replace("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)\n", "") \
        if case.startswith("no_optimizer") or case == "read_too_early" else LOOP
    done = job(text + body)
    assert done.code == 2, done.out + done.err
    assert reason in done.err.splitlines()[-1], done.err
    assert "--auto off" in done.err or "; " in done.notes()[-1]
    assert sum(reason in line for line in (done.out + done.err).splitlines()) == 1, done.out + done.err
    assert ": automatic distribution stopped train" in done.run_log
    assert "AND ON" not in done.out


# ---- what fails

FAILING = """
import os, sys
for number, (points, targets) in enumerate(loader):
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    if number == 2 and os.environ["PSD_RANK"] == "1":
        if sys.argv[1] == "exit":
            sys.exit("label 17 is none of 10")
        raise ValueError("label 17 is none of 10")
    optimizer.step()
"""


@pytest.mark.parametrize("how", ["raise", pytest.param("exit", marks=pytest.mark.all)])
def test_a_script_that_fails_on_one_worker_ends_the_job_with_its_code(job, how):
    """If this fails, people read of a lost connection instead of their own traceback."""
    done = job(LOOP + FAILING, how, cold=True)
    assert done.code == 1, done.out + done.err
    _, _, last_lines = done.err.partition("the last lines that worker1 printed:")
    assert "label 17 is none of 10" in last_lines
    assert ("Traceback (most recent call last)" in last_lines) == (how == "raise")
    assert re.search(r"worker 1 \(pid \d+\) ended with code 1", done.err.splitlines()[-1])
    assert done.err.count("ended with code 1") == 1


def test_the_length_of_a_loader_is_that_of_its_last_epoch(job):
    """If this fails, means over an epoch that are printed after the evaluation are wrong."""
    done = job(LOOP + """
losses = 0
for points, targets in loader:
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    optimizer.step()
    losses += 1
whole = DataLoader(data, 8, shuffle=True)
model.eval()
print("EVAL", losses, len(loader), len(whole), len(loader.dataset))
with torch.no_grad():
    print("NO_GRAD", len(loader), len(whole))
    print("READ", sum(1 for _ in loader), len(loader))
""")
    assert done.code == 0, done.out + done.err
    for rank in (0, 1):
        text = done.log(rank).decode()
        assert told(text, "EVAL") == "4 4 8 64"
        assert told(text, "NO_GRAD") == "4 8"
        assert told(text, "READ") == "8 8"


# ---- what is left alone

PLAIN = LOOP.replace("torch.set_num_threads(1)", "torch.set_num_threads(1)\ntorch.manual_seed(1)") + """
import os, sys
for points, targets in loader:
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    optimizer.step()
print(len(loader), model.weight.tolist())
print(sys.path, sorted(name for name in sys.modules if "poseidon" in name))
"""


@pytest.mark.parametrize("options,variables,workers", [
    (("--auto", "off"), {}, 2), pytest.param((), {"PSD_AUTO": "off"}, 2, marks=pytest.mark.all),
    pytest.param((), {}, 1, marks=pytest.mark.all)], ids=["option", "variable", "one"])
def test_auto_off_leaves_scripts_alone(job, tmp_path, options, variables, workers):
    """If this fails, --auto off, PSD_AUTO=off or a single worker still change what a script does."""
    script = written(tmp_path, PLAIN)
    done = job(script, options=options, workers=workers, cold=True, **variables)
    assert done.code == 0, done.err
    assert [done.log(rank) for rank in range(workers)] == [alone(tmp_path, script, cold=True).encode()] * workers
    assert not done.notes()


@pytest.mark.all
def test_steps_aside_for_torch_distributed(job):
    """If this fails, scripts that are distributed already are distributed twice."""
    done = job(LOOP + """
import os
import sys
import torch.distributed as dist
address, port = os.environ["PSD_PEERS"].split(",")[0].removeprefix("tcp://").split(":")
dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}",
                        rank=int(os.environ["PSD_RANK"]), world_size=2)
model = nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for points, targets in loader:
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    optimizer.step()
print("STEPS", len(loader))
print("DRAWN", torch.rand(1).item())
dist.destroy_process_group()
sys.stdout.flush()
os._exit(0)  # gloo's threads sometimes abort an interpreter that ends by itself
""")
    assert done.code == 0, done.err
    assert [told(done.log(rank).decode(), "STEPS") for rank in (0, 1)] == ["8", "8"]
    assert told(done.log(0).decode(), "DRAWN") != told(done.log(1).decode(), "DRAWN")
    (note,) = done.notes()
    assert "steps aside: the script begins torch.distributed itself" in note


@pytest.mark.parametrize("first", [pytest.param("poseidon.torch", marks=pytest.mark.all), "torch"])
def test_steps_aside_for_poseidon(job, first):
    """If this fails, scripts that use Poseidon themselves average gradients twice, or cannot join."""
    imports = "import poseidon.torch\n" + LOOP if first == "poseidon.torch" else \
        LOOP + "import poseidon.torch\n"
    done = job(imports + """
poseidon.init()
model = poseidon.torch.DataParallel(model)
for points, targets in loader:
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    optimizer.step()
print("STEPS", len(loader), poseidon.size())
""", PYTHONPATH=str(TREE / "python"))
    assert done.code == 0, done.err
    assert told(done.log(0).decode(), "STEPS") == "8 2"
    (note,) = done.notes()
    assert "steps aside: the script imports poseidon itself" in note


def test_other_programs_see_nothing_of_it(job, tmp_path):
    """If this fails, a worker that has nothing to do with torch pays for the hook, or shows it."""
    script = written(tmp_path, """
import sys
print(sorted(sys.modules))
print(sys.path, sys.argv[1:], [type(finder).__name__ for finder in sys.meta_path][-3:])
print("unbuffered", file=sys.stderr)
""")
    done = job(script, "a", "b", cold=True)
    off = job(script, "a", "b", options=("--auto", "off"), cold=True)
    assert done.code == off.code == 0, done.err + off.err
    shown = done.log(0).decode().replace("'sitecustomize', ", "")
    assert shown == off.log(0).decode().replace("'sitecustomize', ", "")
    assert done.log(0) == done.log(1) and not done.notes()
    directory = tmp_path / "shell"
    result = Done(directory, call(directory, BIN / "psd_run", "--workers", 2, "--grace_ms", 200,
                                  "sh -c 'echo to you; ls /nowhere; printf end'"))
    assert result.log(0) == call(directory, "sh", "-c",
                                 "(echo to you; ls /nowhere; printf end) 2>&1").stdout.encode()


def test_the_hidden_sitecustomize_runs(job, tmp_path):
    """If this fails, what an administrator set up for every Python process is lost under psd_run."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "sitecustomize.py").write_text("import sys\nsys.hidden = __file__\n")
    done = job("import sys, sitecustomize\nprint(sys.hidden == sitecustomize.__file__)",
               PYTHONPATH=str(tmp_path / "mine"), cold=True)
    assert done.code == 0, done.err
    assert done.log(0) == b"True\n"


def test_a_hook_that_cannot_begin_starts_no_script(tmp_path):
    """If this fails, workers whose hook is broken, by half an installation, train each by itself in silence."""
    site = tmp_path / "auto" / "site"
    site.mkdir(parents=True)
    shutil.copy(TREE / "python" / "poseidon" / "auto" / "site" / "sitecustomize.py", site)
    (tmp_path / "auto" / "__init__.py").write_text("from .common import files\n")
    (tmp_path / "train.py").write_text("print('started')\nimport torch\n")
    done = subprocess.run([sys.executable, tmp_path / "train.py"], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": str(site), "PSD_AUTO": "on", "PSD_WORLD_SIZE": "2"})
    assert done.returncode == 2
    assert "started" not in done.stdout
    assert done.stderr.splitlines()[-1] == (
        "automatic distribution could not begin, so the script was not started (ModuleNotFoundError: No module named "
        "'_poseidon_auto.common'); psd_run --auto off starts it as it is")


# ---- where the hook lies


def test_without_the_hook(job, tmp_path):
    """If this fails, psd_run without its Python package fails other jobs, or promises what it cannot
    do."""
    for name in ("psd_run", "ps_master", "ps_server"):
        shutil.copy((BIN / name).resolve(), tmp_path / name)
    done = job("print('fine')", psd_run=tmp_path / "psd_run", cold=True)
    assert done.code == 0, done.err
    assert "not distributed automatically: the Python package poseidon" in done.run_log
    done = job("print('fine')", psd_run=tmp_path / "psd_run", options=("--auto", "on"), cold=True)
    assert done.code == 3
    assert "--auto on: the Python package poseidon does not lie beside psd_run" in done.err


def test_a_worker_that_comes_again_is_stopped(job):
    """If this fails, a worker that is started again trains from the beginning among others that are
    far ahead."""
    done = job(LOOP + """
import os
for points, targets in loader:
    optimizer.zero_grad()
    loss_of(points, targets).backward()
    optimizer.step()
    if os.environ["PSD_RESTART_COUNT"] == "0" and os.environ["PSD_RANK"] == "1":
        os._exit(1)
""", options=("--restart", "on-failure", "--max_restarts", 1))
    assert done.code == 2, done.out + done.err
    assert "started again in the middle of a job" in done.err
    assert "--checkpoint DIR --restart=on-failure --restart_scope=group" in done.err


def test_the_hook_of_a_wheel(job, tmp_path):
    """If this fails, psd_run of the wheel distributes nothing."""
    build = (BIN / "psd_run").resolve().parent
    made = subprocess.run([sys.executable, TREE / "tools" / "wheel_backend.py", tmp_path],
                          env={**os.environ, "PSD_WHEEL_BUILD": str(build)}, cwd=TREE,
                          capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (wheel,) = tmp_path.glob("*.whl")
    shutil.unpack_archive(wheel, tmp_path / "site", "zip")
    program = tmp_path / "site" / "poseidon" / "_native" / "bin" / "psd_run"
    for name in program.parent.iterdir():
        name.chmod(0o755)
    done = job("import os\nprint(os.environ['PYTHONPATH'])", psd_run=program, cold=True)
    assert done.code == 0, done.err
    assert done.log(0).decode().strip() == str(tmp_path / "site" / "poseidon" / "auto" / "site")


def test_the_hook_of_an_installed_prefix(job, tmp_path):
    """If this fails, `make install` gives a psd_run that distributes nothing."""
    build = (BIN / "psd_run").resolve().parent
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--destdir",
                    tmp_path / "root"], check=True, capture_output=True)
    (program,) = (tmp_path / "root").rglob("bin/psd_run")
    done = job("import os\nprint(os.environ['PYTHONPATH'])", psd_run=program, cold=True)
    assert done.code == 0, done.err
    found = pathlib.Path(done.log(0).decode().strip())
    assert found == program.parents[1] / "share/poseidon/python/poseidon/auto/site"
    assert (found.parent / "common/session.py").exists()
    assert (found.parents[1] / "torch" / "engine.py").exists()


# ---- pieces


def part(name):
    if "plain_auto" not in sys.modules:  # under a name of its own, as the hook does: its parts import each other
        spec = importlib.util.spec_from_file_location("plain_auto", AUTO / "__init__.py",
                                                      submodule_search_locations=[str(AUTO)])
        sys.modules[spec.name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[spec.name])
    return importlib.import_module(f"plain_auto.{name.replace('/', '.')}")


def test_notes_go_to_their_pipe_or_nowhere(monkeypatch, tmp_path):
    """If this fails, a note ends in a file of the script that has the number of the pipe now."""
    notes = part("common/notes")
    reader, writer = os.pipe()
    monkeypatch.setenv("PSD_NOTE_FD", f"{writer}:{os.fstat(writer).st_ino}")
    assert notes.tell("two\nlines  are one")
    assert os.read(reader, 100) == b"two lines are one\n"
    os.close(writer)
    path = tmp_path / "file"
    other = os.open(path, os.O_WRONLY | os.O_CREAT)
    os.dup2(other, writer)
    assert not notes.tell("not into a file")
    os.close(writer)
    left, right = os.pipe()
    os.dup2(right, writer)
    assert not notes.tell("nor into another pipe")
    for descriptor in {reader, writer, other, left, right}:
        os.close(descriptor)
    assert path.read_bytes() == b""
    monkeypatch.delenv("PSD_NOTE_FD")
    assert not notes.tell("nobody listens")


@pytest.mark.parametrize("seed", range(20))
def test_shards_are_the_batches_of_one_process(seed):
    """If this fails, workers miss samples, see them twice, or take different numbers of steps."""
    shards = part("torch/shards")
    dice = random.Random(seed)
    count, batch, world = dice.randint(1, 200), dice.randint(1, 16), dice.randint(2, 5)
    drop_last = dice.random() < 0.5
    order = torch.randperm(count, generator=torch.Generator().manual_seed(seed)).tolist()

    def sampler(size):
        return torch.utils.data.BatchSampler(order, size, drop_last)

    ranks = [shards.Shard(sampler(batch), world, rank, drop_last) for rank in range(world)]
    taken = [list(shard) for shard in ranks]
    assert len({len(steps_) for steps_ in taken}) == 1, f"seed {seed}: unequal numbers of steps"
    whole = list(sampler(batch * world))
    assert len(whole) == len(taken[0])
    for number, expected in enumerate(whole):
        deliveries = [shard.deliveries[number] for shard in ranks]
        parts = [steps_[number] for steps_ in taken]
        counted = [sample for piece, delivery in zip(parts, deliveries) if delivery.weight > 0
                   for sample in piece]
        assert sorted(counted) == sorted(expected), f"seed {seed}, step {number}"
        assert len({delivery.digest for delivery in deliveries}) == 1
        total = sum(delivery.weight * len(piece) / len(piece)
                    for piece, delivery in zip(parts, deliveries))
        assert abs(total - world) < 1e-9
        if len(expected) >= 2 * world and batch > 1:
            assert min(map(len, parts)) > 1, "BatchNorm refuses a batch of one"
        for piece, delivery in zip(parts, deliveries):
            assert delivery.weight in (0.0, pytest.approx(len(piece) * world / len(expected)))
