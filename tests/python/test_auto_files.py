# SPDX-License-Identifier: Apache-2.0
"""Files of plain PyTorch scripts: what a script does to them happens once, and looks the same to every worker."""

import ctypes
import os
import pathlib
import platform
import struct
import subprocess
import sys
import time

import pytest

from plain_jobs import AUTO, BIN, HERE, Done, call, fixture_job, torch  # noqa: F401

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


def prepare(directory):
    """What an earlier run has left."""
    (directory / "older" / "deep").mkdir(parents=True)
    for number in range(50):
        (directory / "older" / "deep" / f"{number}").write_text("older")
    (directory / "old.txt").write_text("old")
    (directory / "last.txt").write_text("last")
    (directory / "table.csv").write_text("epoch,loss\n")


def start(directory, script, *arguments, workers=2, **variables):
    return Done(directory, call(directory, BIN / "psd_run", "--workers", workers, "--grace_ms", 200, "--",
                                sys.executable, script, *arguments, **variables))


UNSHARE = {"x86_64": 272, "aarch64": 97}.get(platform.machine())
without_namespaces = pytest.mark.skipif(UNSHARE is None, reason="the number of a system call is not known here")


def forbid_namespaces():
    """As containers do: unshare(2) fails with EPERM, in this process and all that it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    program = b"".join(struct.pack("HBBI", *words) for words in (
        (0x20, 0, 0, 0), (0x15, 0, 1, UNSHARE), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)))
    text = ctypes.create_string_buffer(program)
    filters = struct.pack("HxxxxxxQ", 4, ctypes.addressof(text))
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filters, 0, 0) != 0:  # no new privileges; a filter
        os._exit(99)


def found(text):
    return [line for line in text.splitlines() if line.startswith("FOUND ")]


def tree(directory):
    """Every file, without the logs of psd_run."""
    paths = (path.relative_to(directory) for path in pathlib.Path(directory).rglob("*") if not path.is_dir())
    return sorted(str(path) for path in paths if path.parts[0] not in ("logs", "poseidon_run.log", "rt"))


def test_files_are_written_once_and_look_the_same_to_all(tmp_path):
    """If this fails, a public script dies of FileNotFoundError or FileExistsError where it ran alone, hangs, or
    leaves files that two workers wrote at the same time."""
    together, scratch = tmp_path / "together", tmp_path / "scratch"
    scratch.mkdir()
    prepare(together)
    done = start(together, HERE / "plain" / "files.py", TMPDIR=str(scratch))
    assert done.code == 0, done.out + done.err
    texts = [done.log(rank).decode() for rank in (0, 1)]
    assert found(texts[0]) == found(texts[1])
    assert 'FOUND kept ["epoch2.pt", "epoch3.pt"]' in found(texts[0])
    assert [path for path in tree(together) if "events.out" not in path] == [
        "previous.txt", "run/best.pt", "run/checkpoints/epoch2.pt", "run/checkpoints/epoch3.pt", "run/config.json",
        "run/copies/epoch2.pt", "run/copies/epoch3.pt", "run/final.pth.tar", "run/latest", "run/log.txt",
        "run/made/file", "run/model.safetensors", "run/model_best.pth.tar", "run/plots/loss.png", "run/traced.pt",
        "run/weights.npy", "table.csv"]
    assert len(list((together / "run" / "board").iterdir())) == 1
    assert [line.split(",")[0] for line in (together / "table.csv").read_text().splitlines()] == \
        ["epoch", "0", "1", "2", "3"]
    assert (together / "run" / "log.txt").read_text().splitlines() == [f"epoch {number}" for number in range(4)]
    for path in [*(together / "run").glob("*.pt"), *(together / "run").glob("*.tar")]:
        if path.name != "traced.pt":
            torch.load(path)
    assert not list(scratch.glob("poseidon*")), "nothing is left behind"


PASSING = """
import os, sys, tempfile
import torch
from torch.utils.data import DataLoader, TensorDataset
KIND, PLACE = sys.argv[1:]
torch.set_num_threads(1)
if KIND == "directory":
    os.makedirs(PLACE)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for (points,) in DataLoader(TensorDataset(torch.randn(16, 2)), 4):
    optimizer.zero_grad()
    model(points).mean().backward()
    optimizer.step()
if KIND == "log":
    with open(PLACE, "a") as file:
        file.write("trained\\n")
with tempfile.NamedTemporaryFile("w") as file, tempfile.TemporaryDirectory() as directory:
    torch.save(model.state_dict(), os.path.join(directory, "model.pt"))
    file.write("passing")
    with open(os.path.join(directory, "note.txt"), "w") as note:
        note.write("passing")
print("ENDED")
"""


@pytest.mark.parametrize("kind", ["log", "directory", "neither"])
def test_files_that_all_workers_write_are_told(job, tmp_path, kind):
    """If this fails, a log below /tmp has every line as often as there are workers, or a directory there is made twice, and
    nothing says that /tmp is shared."""
    place = tmp_path / "passing"
    done = job(PASSING, kind, place)
    said = f"writes {place}, where they are not kept apart: every worker writes there"
    assert done.err.count(said) <= (1 if kind == "log" else 2), done.err
    assert (said in done.err) == (kind != "neither"), done.err
    assert done.code == (1 if kind == "directory" else 0), done.err
    if kind == "log":
        assert place.read_text().splitlines() == ["trained"] * 2
        assert "files (not below /tmp) by worker 0" in done.err
    if kind != "directory":
        assert done.out.count("ENDED") == 2


def old_files(directory):
    (directory / "older" / "deep").mkdir(parents=True)
    for name in ("old.txt", "keep.txt", "older/deep/file", "table.csv"):
        (directory / name).write_text(name)


def let_age(directory):
    """Until a process that starts now finds its files older than itself: it knows its own start to two hundredths."""
    while time.time() < max(path.stat().st_ctime for path in directory.rglob("*")) + 0.05:
        time.sleep(0.005)


def contents(directory):
    return {str(path.relative_to(directory)): path.is_file() and path.read_text() for path in directory.rglob("*")}


@without_namespaces
def test_calls_without_namespaces_are_those_of_a_process_alone(tmp_path):
    """If this fails, a script in a container finds other files on worker 1 than alone, or changes those of worker 0."""
    script = HERE / "plain" / "file_calls.py"
    alone, worker, scratch = tmp_path / "alone", tmp_path / "worker", tmp_path / "scratch"
    for directory in (alone, worker, scratch):
        directory.mkdir()
        old_files(directory)
    let_age(tmp_path)
    started = tmp_path / "started"
    variables = {**os.environ, "PSD_AUTO": "on", "PSD_RANK": "1", "PSD_WORLD_SIZE": "2", "PSD_SCRATCH": str(scratch),
                 "PYTHONPATH": str(AUTO / "site"), "TMPDIR": str(scratch)}
    with subprocess.Popen([sys.executable, script, started], cwd=worker, env=variables, stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.PIPE, preexec_fn=forbid_namespaces) as process:
        (worker / "run").mkdir()  # as worker 0 does
        (worker / "run" / "ahead.txt").write_text("of worker 0")
        before = contents(worker)
        started.touch()
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    done = subprocess.run([sys.executable, script, started], cwd=alone, capture_output=True, text=True, timeout=300,
                          check=True)
    assert found(out) == found(done.stdout) and len(found(out)) > 20
    assert contents(worker) == before, "worker 0 alone changes them"


@pytest.mark.all
@without_namespaces
def test_a_job_where_namespaces_are_forbidden(tmp_path, monkeypatch):
    """If this fails, a script in a container dies of a copy of what it has saved, or two workers write one file."""
    together, own = tmp_path / "together", subprocess.run
    prepare(together)
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: own(*args, preexec_fn=forbid_namespaces, **kwargs))
    done = start(together, HERE / "plain" / "files.py", "no_programs")
    assert done.code == 0, done.out + done.err
    assert "files: this machine permits no private view of them (unshare: Operation not permitted)" in done.err
    texts = [done.log(rank).decode() for rank in (0, 1)]
    assert found(texts[0]) == found(texts[1])
    assert 'FOUND kept ["epoch2.pt", "epoch3.pt"]' in found(texts[0])
    assert len(tree(together)) == len(set(tree(together))) == 17
    assert len(list((together / "run" / "board").iterdir())) == 1
    assert (together / "run" / "log.txt").read_text().splitlines() == [f"epoch {number}" for number in range(4)]
