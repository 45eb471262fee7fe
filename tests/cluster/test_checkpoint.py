# SPDX-License-Identifier: Apache-2.0
"""What psd_save writes, read by the independent safetensors package and compared with values that
are known exactly: a constant start, a constant gradient, a known number of steps."""

import gzip
import json
import os
import re
import struct
import sys

import pytest

from helpers import MNIST_DATA, Job, needs_mnist, program, python_worker, saved_digests

safetensors = pytest.importorskip("safetensors")
numpy = pytest.importorskip("numpy")

STEPS = 3

# Every dtype; shapes below, at and above one chunk; a scalar-like one, many dimensions.
SAVER = f"""
import array, sys
import psdlib
context = psdlib.Context()
tables = [
    # name, dtype, shape, type code and bits of a gradient of 1.0
    ("layer.0/weight", psdlib.F32, [3, 5], "f", 1.0),
    ("double", psdlib.F64, [70000], "d", 1.0),
    ("half", psdlib.F16, [2, 65536], "H", 0x3c00),
    ("brain", psdlib.BF16, [7], "H", 0x3f80),
    ("deep", psdlib.F32, [1, 2, 1, 3, 1, 2, 1, 4], "f", 1.0),
    ("größe", psdlib.F32, [1], "f", 1.0),
]
ops = []
for name, dtype, shape, code, one in tables:
    count = 1
    for size in shape:
        count *= size
    table = context.table(name, shape, dtype=dtype, rule=psdlib.MOMENTUM,
                          rule_args={{"learning_rate": 0.5, "momentum": 0.5}},
                          init=psdlib.CONSTANT, init_value=3.0)
    values = array.array(code, [0]) * count
    for step in range({STEPS}):
        table.push_pull(step, array.array(code, [one]) * count, values).wait()
if context.rank == 0:
    context.save("saved", {STEPS})
context.close()
"""
# m = m / 2 + 1: 1, 1.5, 1.75; w = 3 - (1 + 1.5 + 1.75) / 2, exact in every dtype.
WEIGHT, MOMENT = 0.875, 1.75


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    job = Job(tmp_path_factory.mktemp("saver"), "--workers", 2, "--servers", 2, "--",
              sys.executable, "-c", SAVER)
    assert job.wait() == 0, job.stdout() + job.stderr()
    return job.directory / "saved"


def raw_tensors(path):
    """The second reading path: the format by hand. Name -> (dtype, shape, bytes)."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    return {name: (entry["dtype"], entry["shape"],
                   data[8 + length + entry["data_offsets"][0]:
                        8 + length + entry["data_offsets"][1]])
            for name, entry in header.items()}


def test_names_shapes_types(saved):
    """If this fails, frameworks cannot load what Poseidon saved."""
    with safetensors.safe_open(saved / "params-1.safetensors", framework="numpy") as file:
        slices = {name: file.get_slice(name) for name in file.keys()}
        described = {name: (part.get_dtype(), part.get_shape()) for name, part in slices.items()}
        assert file.metadata()["step"] == str(STEPS)
    assert described == {
        "layer.0/weight": ("F32", [3, 5]), "double": ("F64", [70000]),
        "half": ("F16", [2, 65536]), "brain": ("BF16", [7]),
        "deep": ("F32", [1, 2, 1, 3, 1, 2, 1, 4]), "größe": ("F32", [1]),
    }


@pytest.mark.smoke
def test_values_are_exact(saved):
    """If this fails, what was saved is not what was trained."""
    with safetensors.safe_open(saved / "params-1.safetensors", framework="numpy") as file:
        for name in file.keys():
            if name != "brain":  # numpy has no bfloat16: below
                tensor = file.get_tensor(name)
                assert (tensor == numpy.asarray(WEIGHT, tensor.dtype)).all(), name
    raw = raw_tensors(saved / "params-1.safetensors")
    assert raw["brain"] == ("BF16", [7], struct.pack("<H", 0x3f60) * 7)
    assert raw["half"][2] == struct.pack("<e", WEIGHT) * 131072
    assert raw["double"][2] == struct.pack("<d", WEIGHT) * 70000


def test_state_is_exact(saved):
    """If this fails, a training that goes on from a save has another momentum."""
    state = raw_tensors(saved / "state-1.safetensors")
    moments = {name: entry for name, entry in state.items() if "moment" in name}
    assert len(moments) == 6, sorted(state)
    for name, (dtype, _, data) in moments.items():
        code, size = ("d", 8) if dtype == "F64" else ("f", 4)
        assert dtype in ("F32", "F64") and data == struct.pack(f"<{code}", MOMENT) * (
            len(data) // size), name


def test_tensors_are_aligned(saved):
    """If this fails, a reader that maps the file gets misaligned numbers."""
    data = (saved / "params-1.safetensors").read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    assert (8 + length) % 64 == 0
    sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}
    header.pop("__metadata__")
    assert all(entry["data_offsets"][0] % sizes[entry["dtype"]] == 0 for entry in header.values())


def read_idx(name, offset):
    with gzip.open(MNIST_DATA / name) as file:
        return numpy.frombuffer(file.read(), numpy.uint8, offset=offset)


@needs_mnist
def test_saved_network_reads_digits(start):
    """If this fails, the network in the file is not the one whose accuracy was printed."""
    job = start("--workers", 2, "--servers", 2, "--", program("mnist"), "--data", MNIST_DATA,
                "--model", "softmax", "--epochs", 1, "--save", "saved")
    assert job.wait(60) == 0, job.stderr()
    with safetensors.safe_open(job.directory / "saved" / "params-1.safetensors",
                               framework="numpy") as file:
        tensors = {file.get_tensor(name).ndim: file.get_tensor(name) for name in file.keys()}
    images = read_idx("t10k-images-idx3-ubyte.gz", 16).reshape(10000, 784) / numpy.float32(255)
    labels = read_idx("t10k-labels-idx1-ubyte.gz", 8)
    weights = tensors[2] if tensors[2].shape[0] == 784 else tensors[2].T
    right = (images @ weights + tensors[1]).argmax(1) == labels
    printed = float(re.search(r"MNIST accuracy: (\d\.\d+)", job.stdout()).group(1))
    assert abs(right.mean() - printed) <= 0.0002  # one or two ties of rounding
    assert printed > 0.88


def test_two_generations_are_kept(start):
    """If this fails, a disk fills up, or a failed save takes the last good one with it."""
    for turn, generations in ((1, [1]), (2, [1, 2]), (3, [2, 3])):
        job = start("--", *python_worker("--steps", 2 * turn, "--save", "../saved"),
                    name=f"job{turn}")
        assert job.wait() == 0, job.stderr()
        kept = sorted(int(path.stem.split("-")[1])
                      for path in (job.directory / "../saved").glob("manifest-*.json"))
        assert kept == generations
    names = {path.name for path in (job.directory / "../saved").iterdir()}
    assert names == {f"{part}-{g}.{kind}" for g in (2, 3) for part, kind in (
        ("manifest", "json"), ("params", "safetensors"), ("state", "safetensors"))}


@pytest.mark.parametrize("damage", ["params", "state", "manifest"])
def test_damaged_generation_is_passed_over(start, damage):
    """If this fails, one bad sector costs the whole training."""
    job = start("--", program("mnist"), "--steps", 10, "--save", "saved", name="first")
    assert job.wait(60) == 0, job.stderr()
    folder = job.directory / "saved"
    job = start("--", program("mnist"), "--steps", 20, "--load", folder, "--save", folder,
                name="second")
    assert job.wait(60) == 0, job.stderr()
    newest = saved_digests(folder)
    path = next(folder.glob(f"{damage}-2.*"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x40
    path.write_bytes(data)
    job = start("--", program("mnist"), "--steps", 20, "--load", folder, "--save", "saved",
                name="third")
    assert job.wait(60) == 0, job.stderr()
    assert "goes on at step 10" in job.stdout()
    assert saved_digests(job.directory / "saved") == newest


def test_nothing_to_load(start):
    """If this fails, a wrong --load starts from nothing, without a word."""
    job = start("--", program("mnist"), "--load", "nowhere")
    assert job.wait() == 1
    assert "nowhere" in job.stdout() + job.stderr()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small file system")
def test_save_on_a_full_disk(start, tmp_path, small_disk):
    """If this fails, a full disk destroys the checkpoint that was there, or is not noticed."""
    disk = small_disk(2)
    job = start("--", program("mnist"), "--steps", 5, "--save", disk / "saved", name="first")
    assert job.wait(60) == 0, job.stderr()
    before = saved_digests(disk / "saved")
    free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
    (disk / "filler").write_bytes(b"\0" * (free - 4096))
    job = start("--", program("mnist"), "--steps", 9, "--save", disk / "saved", name="second")
    assert job.wait(60) == 1
    assert "No space left on device" in job.stderr() and "params-2" in job.stderr()
    assert saved_digests(disk / "saved") == before
