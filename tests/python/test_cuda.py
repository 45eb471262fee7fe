# SPDX-License-Identifier: Apache-2.0
"""Gradients of models on a CUDA device: from the device, through servers, back to it. Tests without "on_a_device" in their name
go the same way without a device (cuda_stand_in.py): they see which pages are pinned when they are read."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

import warm

torch = pytest.importorskip("torch", reason="no PyTorch here (tools/setup.sh frameworks)")

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("PSD_BIN", TREE / "bin")).absolute()
CASES = HERE / "cuda_cases.py"
DEADLINE_S = 600  # of a job that hangs: busy cores take their time
MIB = 1 << 20

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")
on_a_device = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


@pytest.fixture(name="train", scope="module")
def fixture_train(tmp_path_factory):
    """Runs a case once: what each rank found."""
    results = {}

    def go(*words, workers=2, servers=2, **variables):
        key = (words, workers, servers, *variables.items())
        if key not in results:
            directory = tmp_path_factory.mktemp("cuda")
            environment = {**os.environ, "PYTHONPATH": str(TREE / "python"), "PYTHONDONTWRITEBYTECODE": "1",
                           "PSD_LIB": str((BIN / "ps_server").resolve().parent / "libpsd.so.0"), "OMP_NUM_THREADS": "1",
                           **variables}
            cold = words[0] == "cuda" or "kill" in words  # a child of psd_run, as servers are
            python = sys.executable if cold else warm.python("torch")
            done = subprocess.run([BIN / "psd_run", "--workers", str(workers), "--servers", str(servers),
                                   "--server_restarts", "3", "--", python, CASES, *words], cwd=directory,
                                  capture_output=True, text=True, timeout=DEADLINE_S, check=False,
                                  stdin=subprocess.DEVNULL, env=environment)
            assert done.returncode == 0, done.stdout + done.stderr
            assert done.stderr.count(" is back after ") == ("kill" in words) * 2, done.stderr
            results[key] = [json.loads((directory / f"rank{rank}.json").read_text()) for rank in range(workers)]
        return results[key]

    return go


def hashes(ranks):
    return {rank["hash"] for rank in ranks}


def test_the_way_of_a_device_has_the_bits_of_the_way_of_a_cpu(train):
    """If this fails, means that a device reads in the servers' memory are others than those that are copied."""
    ranks = train("like_cuda")
    assert hashes(ranks) == hashes(train("cpu")) and len(hashes(ranks)) == 1
    for rank in ranks:
        assert rank["read"] > 0 and rank["in_view"] > 0 and rank["notes"] == []


def test_pages_that_a_servers_death_replaces_are_pinned_anew(train):
    """If this fails, a device goes on reading memory of a server that has died."""
    ranks = train("like_cuda", "kill")
    assert hashes(ranks) == hashes(train("cpu"))
    calm = train("like_cuda")
    for rank, other in zip(ranks, calm):
        assert sum(rank["changes"]) > sum(other["changes"]) and rank["registered"] > other["registered"]


def test_where_views_cannot_be_pinned_the_staging_buffer_is_used(train):
    """If this fails, a device that refuses the servers' memory gets wrong means, or goes on slowly, or nobody knows."""
    ranks = train("like_cuda", "refuse")
    assert hashes(ranks) == hashes(train("cpu"))
    for rank in ranks:
        (line,) = rank["notes"]
        assert rank["in_view"] == 0 and "not pinned for CUDA: cudaHostRegister failed with 801" in line


def test_no_more_is_pinned_than_is_allowed(train):
    """If this fails, pinned memory has no bound, or what is not pinned does not travel."""
    ranks = train("like_cuda", PSD_TORCH_PINNED_MIB="0")
    assert hashes(ranks) == hashes(train("cpu"))
    for rank in ranks:
        (line,) = rank["notes"]
        assert rank["pinned_bytes"] == rank["registered"] == 0 and "0.0 are allowed (PSD_TORCH_PINNED_MIB)" in line


def test_pinned_memory_is_told_and_given_back(train):
    """If this fails, a program does not know how much memory is pinned, or it stays so when the job is over."""
    for rank in train("like_cuda"):
        assert rank["gradient_bytes"] < rank["pinned_bytes"] < 2 * rank["gradient_bytes"] + MIB
        assert rank["pinned_at_end"] == 0 and rank["left"] == 0


def test_bfloat16_halves_what_travels(train):
    """If this fails, gradients as bfloat16 are as many bytes as before, or train something else than rounding does."""
    narrow, wide = train("like_cuda", "bf16")[0], train("cpu")[0]
    assert narrow["gradient_bytes"] == wide["gradient_bytes"] // 2
    assert narrow["hash"] == train("cpu", "bf16")[0]["hash"] != wide["hash"]
    assert narrow["some"] == pytest.approx(wide["some"], abs=2e-4)


def test_gradients_travel_as_the_environment_says(train):
    """If this fails, PSD_TORCH_GRADIENTS=bf16 is not what compression=Compression.bf16 is."""
    assert hashes(train("cpu", PSD_TORCH_GRADIENTS="bf16")) == hashes(train("cpu", "bf16"))


def test_with_one_worker_nothing_leaves(train):
    """If this fails, the only worker of a job sends its gradients to servers, and gets them back."""
    (rank,) = train("cpu", workers=1, servers=1)
    assert rank["alone"] and rank["changes"] == []
    assert hashes([rank]) == hashes(train("cpu", "bf16", workers=1, servers=1)), "they are rounded"


@on_a_device
def test_on_a_device_as_on_a_cpu(train):
    """If this fails, models on a GPU train something else than on a CPU."""
    ranks, expected = train("cuda"), train("cpu")
    assert len(hashes(ranks)) == 1 and ranks[0]["some"] == pytest.approx(expected[0]["some"], abs=2e-5)
    for rank in ranks:
        assert rank["in_view"] > 0 and rank["pinned_bytes"] > rank["gradient_bytes"], "the device reads no server's memory"
        assert not [line for line in rank["notes"] if "failed" in line and "712" not in line]


@on_a_device
def test_on_a_device_a_servers_death_changes_no_bit(train):
    """If this fails, a GPU reads memory of a server that has died."""
    assert hashes(train("cuda", "kill")) == hashes(train("cuda"))


@on_a_device
def test_on_a_device_without_pinned_memory(train):
    """If this fails, gradients of a GPU need memory that can be pinned."""
    assert hashes(train("cuda", PSD_TORCH_PINNED_MIB="1")) == hashes(train("cuda"))


@on_a_device
def test_on_a_device_bfloat16(train):
    """If this fails, gradients of a GPU as bfloat16 train something else."""
    ranks = train("cuda", "bf16")
    assert len(hashes(ranks)) == 1 and ranks[0]["some"] == pytest.approx(train("cpu", "bf16")[0]["some"], abs=2e-4)
