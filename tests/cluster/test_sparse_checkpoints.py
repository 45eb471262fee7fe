# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of sparse tables, with real processes: --checkpoint, --resume, and what reads the files."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import sys

import pytest

from helpers import Job, marked_processes, wait_for
from test_checkpoints import checkpoint, ended_well, go_on, manifests, master_says

np = pytest.importorskip("numpy")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

PACKAGE = pathlib.Path(__file__).resolve().parents[2] / "python"
EVERY = 8
IDS = 3000

# Every way in which rows come, change and go. What the last table has is dense.
SCRIPT = """
import hashlib, os, sys, time
import numpy as np
import poseidon

every, steps, ids = EVERY, int(sys.argv[1]), IDS
poseidon.init()
drawn = dict(init="uniform", init_value=0.5, seed=3, learning_rate=0.05)
tables = [
    poseidon.SparseTable("adagrad", 3, rule="adagrad", **drawn),
    poseidon.SparseTable("adam", 4, "bfloat16", rule="adam", idle_steps=5, sweep_every=3, **drawn),
    poseidon.SparseTable("admitted", 2, rule="sgd", admit_after=3, admit_window=5, **drawn),
    poseidon.SparseTable("oldest", 5, rule="adagrad", row_wise=True, capacity_rows=1600, full="oldest", **drawn),
    poseidon.SparseTable("ftrl", 2, rule="ftrl", group_lasso=0.001, admit_share=0.5, **drawn),
    poseidon.SparseTable("momentum", 2, "float16", rule="momentum", momentum=0.5, norm_min=0.02, sweep_every=2, **drawn),
]
dense = poseidon.Table("dense", (70, 3), rule="adam", learning_rate=0.1)
print("begins at", *(table.step for table in tables), dense.step, flush=True)
for step in range(tables[0].step, steps):
    if f"{step}" in sys.argv[2:]:
        deadline = time.monotonic() + 90
        while not os.path.exists(f"hold{step}"):
            assert time.monotonic() < deadline, f"hold{step}: nobody made it"
            time.sleep(0.01)
    draw = np.random.default_rng([poseidon.rank(), step])
    futures = []
    for table in tables:
        some = draw.integers(0, ids, 60) // (1 + step % 2)  # some rows are seldom touched
        if step == 0 and table.name != "oldest":
            some = np.arange(ids)
        rows = table.lookup(some).wait()
        futures.append(table.push(some, (draw.standard_normal(rows.shape) + rows).astype(rows.dtype)))
    futures.append(dense.push(draw.standard_normal((70, 3)).astype(np.float32)))
    for future in futures:
        future.wait()
for table in tables:
    rows = table.lookup(np.arange(ids)).wait()
    print(f"{table.name} {hashlib.sha256(rows.tobytes()).hexdigest()}", flush=True)
print("dense", hashlib.sha256(dense.pull().wait().tobytes()).hexdigest(), flush=True)
poseidon.close()
""".replace("EVERY", str(EVERY)).replace("IDS", str(IDS))

STEPS = 5 * EVERY
TABLES = 7


def train(directory, *options, steps=STEPS, holds=(), servers=2, lanes=1, script=SCRIPT, prefix=()):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "train.py").write_text(script)
    return Job(directory, "--workers", 2, "--servers", servers, "--lanes", lanes, "--page", "off", "--log_level", "debug",
               *options, "--", sys.executable, "train.py", steps, *holds,
               environment={"PYTHONPATH": str(PACKAGE)}, prefix=prefix)


def kill_everything(job):
    for pid in marked_processes(job.mark):
        with contextlib.suppress(ProcessLookupError):  # some end as others are killed
            os.kill(pid, signal.SIGKILL)
    job.process.wait()
    wait_for(lambda: not marked_processes(job.mark), 10, "all are dead")


def ordered(job, step, lanes=2, tables=TABLES):
    """Do all lanes know that they shall save that step?"""
    logs = list(job.directory.glob("logs/*/server*.log"))
    return sum(path.read_text().count(f"CHECKPOINT-ORDERED step {step}, {tables} tables") for path in logs) >= lanes


def digests(job):
    """Of all rows in order of id, by table; both workers say the same."""
    found = sorted(set(re.findall(r"(\w+) ([0-9a-f]{64})$", job.stdout(), re.MULTILINE)))
    assert len(found) == len(dict(found)) > 0, found
    return dict(found)


def rows_of(directory, generation, table):
    """By id: values, step, count and state, as the files of a generation have them. Needs NumPy and safetensors."""
    manifest = json.loads((directory / f"manifest-{generation}.json").read_text())
    (entry,) = [each for each in manifest["rows"] if each["table"] == table]
    found = {}
    for file in entry["files"]:  # the files of a place in their order; places have no rows in common
        tensors = safetensors_numpy.load_file(directory / file["file"])
        for bucket in tensors.get("cleared", []):
            for id_ in [id_ for id_ in found if bucket_of(id_, entry["bucket_bits"]) == bucket]:
                del found[id_]
        state = [tensors[name] for name in sorted(tensors) if name.startswith("state.")]
        for at, id_ in enumerate(tensors.get("ids", [])):
            found[int(id_)] = (tensors["values"][at], tensors["steps"][at], tensors["counts"][at], *(each[at] for each in state))
    return found


def bucket_of(id_, bits):
    """As docs/checkpoints.md says it."""
    mask = 2**64 - 1
    mixed = id_ & mask
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 & mask
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB & mask
    return (mixed ^ mixed >> 31) >> (64 - bits)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """What a job without checkpoints has at its end."""
    return digests(ended_well(train(tmp_path_factory.mktemp("plain"))))


@pytest.fixture(scope="module")
def killed(tmp_path_factory):
    """A job that wrote three generations, and then was killed, all of it."""
    directory = tmp_path_factory.mktemp("written")
    job = train(directory, "--checkpoint", "saved", "--checkpoint_every", f"{EVERY}steps", "--keep", 3,
                holds=[1, *(step * EVERY + 2 for step in range(1, 4))])
    go_on(job, 1, lambda: ordered(job, EVERY), "the first is asked for")
    for number in (1, 2):
        step = number * EVERY + 2
        go_on(job, step, lambda: number in manifests(directory / "saved") and ordered(job, step - 2 + EVERY),
              f"generation {number} is there")
    wait_for(lambda: 3 in manifests(directory / "saved"), 60, "generation 3 is there")  # the job holds: it writes no other
    kill_everything(job)
    return directory / "saved"


@pytest.mark.parametrize("servers, lanes", [(1, 1), (2, 1), (3, 1), (2, 2)])
def test_resumed_job_ends_with_the_same_bits(killed, undisturbed, tmp_path, servers, lanes):
    """If this fails, a job with sparse tables that goes on from a checkpoint, with these servers, is another one: values,
    state, counts of admission, or which rows come and go."""
    job = ended_well(train(tmp_path, "--resume", killed, servers=servers, lanes=lanes))
    assert f"the job goes on from step {3 * EVERY}: generation 3" in job.stderr()
    assert f"begins at {' '.join(7 * [str(3 * EVERY)])}\n" in job.stdout()
    assert digests(job) == undisturbed


def test_each_generation_goes_on(killed, undisturbed, tmp_path):
    """If this fails, a generation that has only what changed lacks rows, or has such that had gone."""
    for generation in (1, 2):
        saved = shutil.copytree(killed, tmp_path / f"saved{generation}")
        for other in range(generation + 1, 4):
            (saved / f"manifest-{other}.json").unlink()
        job = ended_well(train(tmp_path / f"job{generation}", "--resume", saved))
        assert digests(job) == undisturbed


def test_files_are_read_with_numpy(killed):
    """If this fails, safetensors and NumPy are not enough to read the rows of a checkpoint."""
    manifest = json.loads((killed / "manifest-3.json").read_text())
    files = {each["table"]: each["files"] for each in manifest["rows"]}
    assert len(files) == 6 and len({file["generation"] for file in files["adagrad"]}) > 1
    adagrad = rows_of(killed, 3, "adagrad")
    adam = rows_of(killed, 3, "adam")
    assert len(adagrad) > 1000 and 100 < len(adam) < len(adagrad)
    for values, step, count, accumulator in adagrad.values():
        assert values.shape == (3,) and accumulator.shape == (3,) and (accumulator > 0).all()
        assert step < 3 * EVERY and count >= 1
    assert all(len(row) == 5 for row in adam.values())
    assert all(step >= 3 * EVERY - 5 - 3 for _, step, *_ in adam.values())  # the others were idle
    assert all(state.shape == (1,) for *_, state in rows_of(killed, 3, "oldest").values())


def test_the_tools_know_sparse_tables(killed, tmp_path):
    """If this fails, psd_run checkpoint does not say what of sparse tables is saved, and since when."""
    verified = checkpoint("verify", killed, cwd=tmp_path)
    assert verified.returncode == 0 and verified.stdout.count("intact") == 3, verified.stdout
    listed = checkpoint("list", killed, cwd=tmp_path).stdout.splitlines()
    assert "since generation 1" in listed[1] and listed[3].endswith("intact"), listed
    shown = checkpoint("show", killed, cwd=tmp_path).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("adagrad")]
    rows = len(rows_of(killed, 3, "adagrad"))
    files, there, written = map(int, re.search(r"sparse f32\[3\].*; (\d+) files, (\d+) rows, .* wrote (\d+)", line).groups())
    assert files > 2 and written < rows < there, line
    for name, row in rows_of(killed, 1, "adam").items():
        assert len(row) == 5, name


def test_rows_are_exported(killed, tmp_path):
    """If this fails, other programs get rows twice, rows that have gone, or rows of an earlier generation."""
    told = checkpoint("export", killed, "all.safetensors", cwd=tmp_path)
    assert told.returncode == 0 and "is in all.safetensors\n" in told.stdout
    assert "rows of table adagrad: all.adagrad.safetensors\n" in told.stdout
    assert checkpoint("export", "--format", "numpy", killed, "arrays", cwd=tmp_path).returncode == 0
    for name in ("adagrad", "adam", "oldest", "admitted"):
        rows = rows_of(killed, 3, name)
        tensors = safetensors_numpy.load_file(tmp_path / f"all.{name}.safetensors")
        assert sorted(tensors["ids"]) == sorted(rows)
        for column, tensor in tensors.items():
            array = np.load(tmp_path / "arrays" / f"{name}.{column}.npy", allow_pickle=False)
            assert array.dtype == tensor.dtype and array.shape == tensor.shape and array.tobytes() == tensor.tobytes()
        state = [tensors[column] for column in sorted(tensors) if column.startswith("state.")]
        for at, id_ in enumerate(tensors["ids"]):
            got = (tensors["values"][at], tensors["steps"][at], tensors["counts"][at], *(each[at] for each in state))
            assert all(np.array_equal(one, other) for one, other in zip(got, rows[int(id_)], strict=True))
    again = checkpoint("export", killed, "all.safetensors", cwd=tmp_path)
    assert again.returncode == 3 and "File exists" in again.stderr


def test_a_copy_of_what_was_resumed_saves_it(killed, undisturbed, tmp_path):
    """If this fails, the copy of a job that goes on from a checkpoint lacks rows, or a lane that has taken the place of a dead
    server's saves only what has changed since."""
    saved = shutil.copytree(killed, tmp_path / "saved")
    held, later = 3 * EVERY + 2, 4 * EVERY + 2
    job = train(tmp_path / "job", "--replicas", 1, "--resume", saved, "--checkpoint", saved, "--checkpoint_every", f"{EVERY}steps",
                holds=[held, later])
    job.wait_for_output("begins at", 2)
    wait_for(lambda: all(f"COPY-WHOLE server {server}" in job.log("master").decode() for server in range(2))
             or job.process.poll() is not None, 60, lambda: f"all have copies\n{job.stdout()}\n{job.stderr()}")
    os.kill(job.pid_of("server0"), signal.SIGKILL)
    go_on(job, held, lambda: job.log("server1").decode().partition("TAKE-PLACE")[2].count(
        f"CHECKPOINT-ORDERED step {4 * EVERY}, {TABLES} tables") == 2, "its copy has its place, and is to save it")
    wait_for(lambda: 4 in manifests(saved) or job.process.poll() is not None, 60,
             lambda: f"generation 4\n{job.stdout()}\n{job.stderr()}\n{job.log('master').decode()}")
    kill_everything(job)
    again = ended_well(train(tmp_path / "again", "--resume", saved, servers=3))
    assert f"the job goes on from step {4 * EVERY}: generation 4" in again.stderr()
    assert digests(again) == undisturbed


@pytest.mark.parametrize("generation, left", [(3, 2), (2, 1)])
def test_damaged_changes_cost_one_generation(killed, undisturbed, tmp_path, generation, left):
    """If this fails, a job trains on with rows that a disk has damaged, or does not say which generation it takes instead."""
    saved = shutil.copytree(killed, tmp_path / "saved")
    manifest = json.loads((saved / "manifest-3.json").read_text())
    (files,) = [each["files"] for each in manifest["rows"] if each["table"] == "adagrad"]
    victim = saved / next(file["file"] for file in files if file["generation"] == generation)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 4
    victim.write_bytes(data)
    bad = checkpoint("verify", saved, cwd=tmp_path)
    assert bad.returncode == 3 and victim.name in bad.stdout, bad.stdout
    job = ended_well(train(tmp_path / "job", "--resume", saved))
    assert f"generation {left}" in job.stderr() and victim.name in job.stderr(), job.stderr()
    assert digests(job) == undisturbed


@pytest.mark.parametrize("change, words", [
    (('"adagrad", 3, rule', '"adagrad", 4, rule'), ("adagrad", "f32[3]", "f32[4]")),
    (('"adam", 4, "bfloat16"', '"adam", 4, "float16"'), ("adam", "bf16[4]", "f16[4]")),
    (('2, rule="sgd"', '2, rule="momentum"'), ("admitted", "rule sgd", "rule momentum")),
    (("row_wise=True, ", ""), ("oldest", "row_wise 1", "row_wise 0")),
])
def test_what_does_not_fit_is_refused_by_name(killed, tmp_path, change, words):
    """If this fails, rows of another width, type or rule are loaded; or nobody hears which table it is."""
    assert SCRIPT.count(change[0]) == 1
    job = train(tmp_path, "--resume", killed, script=SCRIPT.replace(*change))
    assert job.wait(60) != 0
    for word in words:
        assert word in job.stderr() + job.stdout(), job.stderr() + job.stdout()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small disk")
def test_a_full_disk_stops_no_training(undisturbed, tmp_path):
    """If this fails, training with sparse tables waits for a disk that is full, or ends with other bits."""
    (tmp_path / "saved").mkdir()
    mount = "mount -t tmpfs -o size=200k none saved && exec \"$@\""
    job = train(tmp_path, "--checkpoint", "saved", "--checkpoint_every", f"{EVERY}steps", holds=[1, EVERY + 2],
                prefix=("unshare", "-m", "sh", "-c", mount, "sh"))
    go_on(job, 1, lambda: ordered(job, EVERY), "the first is asked for")
    go_on(job, EVERY + 2, lambda: master_says(job, "CHECKPOINT-FAILED"), "it is told")
    assert digests(ended_well(job)) == undisturbed
    log = job.log("master").decode()
    assert log.count("CHECKPOINT-FAILED") == 1 and "No space left on device; training goes on" in log


CHANGING = """
import sys, hashlib
import numpy as np
import poseidon
poseidon.init()
table = poseidon.SparseTable("e", 16, rule="adagrad", learning_rate=0.1, init="normal", init_value=1, seed=1)
exec(open("holds.py").read())
for step in range(table.step, int(sys.argv[1])):
    hold(step)
    ids = np.arange(20000) if step == 0 else np.random.default_rng(step).integers(0, 20000, 10)
    table.push(ids, np.ones((ids.size, 16), np.float32)).wait()
poseidon.close()
"""

HOLDS = """
import os, time
def hold(step):
    deadline = time.monotonic() + 90
    while f"{step}" in sys.argv[2:] and not os.path.exists(f"hold{step}"):
        assert time.monotonic() < deadline, f"hold{step}: nobody made it"
        time.sleep(0.01)
"""


def test_only_what_changed_is_written(tmp_path):
    """If this fails, each checkpoint has all rows; or what others refer to is removed by --keep."""
    (tmp_path / "holds.py").write_text(HOLDS)
    last = 18  # one of eight has all rows, and the newest that needs none of its files stays, too
    job = train(tmp_path, "--checkpoint", "saved", "--checkpoint_every", "4steps", "--keep", 2, script=CHANGING, steps=4 * last + 3,
                holds=[1, *(4 * number + 1 for number in range(1, last + 1))])
    saved = tmp_path / "saved"
    go_on(job, 1, lambda: ordered(job, 4, tables=1), "the first is asked for")
    for number in range(1, last + 1):
        go_on(job, 4 * number + 1,
              lambda: number in manifests(saved) and (number == last or ordered(job, 4 * number + 4, tables=1)),
              f"generation {number} is there")
    ended_well(job)
    written = {}
    for path in saved.glob("rows-*"):
        generation = int(path.name.split("-")[1])
        written[generation] = written.get(generation, 0) + path.stat().st_size
    whole = 20000 * (8 + 4 + 4 + 64 + 64)
    assert max(written.values()) > whole
    assert 0 < written[last] < whole / 20, written
    assert len(rows_of(saved, last, "e")) == 20000
    kept = manifests(saved)
    assert {last - 1, last} <= kept and min(kept) > 8, kept
    for number in kept:
        assert len(rows_of(saved, number, "e")) == 20000
    assert checkpoint("verify", saved, cwd=tmp_path).returncode == 0
    told = checkpoint("export", saved, "rows.safetensors", cwd=tmp_path)
    assert "is in files of rows:\nrows of table e: rows.e.safetensors\n" in told.stdout
    assert not (tmp_path / "rows.safetensors").exists()  # there are no dense tables
