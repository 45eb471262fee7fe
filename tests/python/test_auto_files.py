# SPDX-License-Identifier: Apache-2.0
"""Files of plain PyTorch scripts: what a script does to them happens once, and looks the same to every worker."""

import pathlib
import sys

import pytest

from plain_jobs import BIN, HERE, Done, call, torch

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


def prepare(directory):
    """What an earlier run has left."""
    (directory / "older" / "deep").mkdir(parents=True)
    for number in range(50):
        (directory / "older" / "deep" / f"{number}").write_text("older")
    (directory / "old.txt").write_text("old")
    (directory / "last.txt").write_text("last")
    (directory / "table.csv").write_text("epoch,loss\n")


def start(directory, script, workers=2, **variables):
    return Done(directory, call(directory, BIN / "psd_run", "--workers", workers, "--grace_ms", 200, "--",
                                sys.executable, script, **variables))


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
