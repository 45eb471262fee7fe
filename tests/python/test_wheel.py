# SPDX-License-Identifier: Apache-2.0
"""The wheel: built from the tree, installed where no tree is, and the example runs there."""

import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from conftest import TREE
from helpers import SANITIZED, Job, bin_directory, wait_for


def build_directory():
    directory = (bin_directory() / "psd_run").resolve().parent
    return directory if (directory / "build.ninja").exists() else None


pytestmark = [
    pytest.mark.skipif(build_directory() is None, reason="the programs are not in a Meson build"),
    pytest.mark.skipif(SANITIZED, reason="Python cannot load a library with a sanitizer in it"),
]


def command(*words, **options):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True,
                          timeout=300, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    directory = tmp_path_factory.mktemp("dist")
    command(sys.executable, TREE / "tools" / "wheel_backend.py", directory,
            env={**os.environ, "PSD_WHEEL_BUILD": str(build_directory())})
    (path,) = directory.iterdir()
    return path


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """A virtual environment with the wheel. NumPy is this one's: there is no network to fetch it."""
    import numpy  # pylint: disable=import-outside-toplevel

    directory = tmp_path_factory.mktemp("fresh")
    command(sys.executable, "-m", "venv", directory)
    command(directory / "bin" / "pip", "install", "--no-index", "--no-deps", "--quiet",
            "--disable-pip-version-check", wheel)
    (packages,) = directory.glob("lib/python*/site-packages")
    (packages / "numpy_of_the_tests.pth").write_text(f"{pathlib.Path(numpy.__path__[0]).parent}\n")
    return directory


def clean_environment(fresh):
    hidden = ("PSD_", "PYTHON", "LD_LIBRARY_PATH")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
    return {**kept, "PATH": f"{fresh / 'bin'}:{os.environ['PATH']}"}


def test_carries_everything_and_nothing_else(wheel):
    """If this fails, an installed package misses a part, or carries files of the workplace."""
    names = zipfile.ZipFile(wheel).namelist()
    sources = {path.relative_to(TREE / "python").as_posix()
               for path in (TREE / "python" / "poseidon").rglob("*")
               if path.suffix in (".py", ".c", ".h") or path.name == "py.typed"}
    native = {"bin/psd_run", "bin/ps_master", "bin/ps_server", "lib/libpsd.so.0",
              "include/psd/elastic.h", "include/psd/psd.h", "include/psd/reader.h", "include/psd/status.h"}
    assert sources | {f"poseidon/_native/{name}" for name in native} <= set(names)
    others = [name for name in names if name not in sources and "/_native/" not in name]
    assert all(name.split("/")[0].endswith(".dist-info") for name in others), others
    assert not [name for name in names if "__pycache__" in name]


def test_a_wheel_without_charts_is_not_made_by_chance(tmp_path, monkeypatch):
    """If this fails, a wheel that was built without a network shows pages without curves to everybody who installs it."""
    monkeypatch.syspath_prepend(TREE / "tools")
    import wheel_backend  # pylint: disable=import-outside-toplevel,import-error

    program = tmp_path / "psd_run"
    program.write_bytes(b"no charts")
    with pytest.raises(SystemExit, match="built without its library of charts.*make setup"):
        wheel_backend.refuse_without_charts(program)
    monkeypatch.setenv("PSD_WHEEL_WITHOUT_CHARTS", "1")
    wheel_backend.refuse_without_charts(program)


def test_same_tree_same_wheel(wheel, tmp_path):
    """If this fails, nobody can say whether two wheels are the same."""
    command(sys.executable, TREE / "tools" / "wheel_backend.py", tmp_path,
            env={**os.environ, "PSD_WHEEL_BUILD": str(build_directory())})
    (again,) = tmp_path.glob("*.whl")
    assert again.read_bytes() == wheel.read_bytes()


def test_example_in_a_fresh_environment(fresh, tmp_path):
    """If this fails, `pip install` gives people something that does not run."""
    environment = clean_environment(fresh)
    place = command(fresh / "bin" / "python", "-c", "import poseidon._library as l; "
                    "print(l.library()._name); print(l.program('psd_run'))", env=environment,
                    cwd=tmp_path).split()
    assert all(path.startswith(str(fresh)) for path in place), place
    example = tmp_path / "logistic.py"
    example.write_bytes((TREE / "examples" / "python" / "logistic.py").read_bytes())
    done = subprocess.run([fresh / "bin" / "psd_run", "--workers", "2", "--servers", "2",
                           "python logistic.py"], cwd=tmp_path, env=environment, timeout=300,
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.split("] ", 1)[1] for line in done.stdout.splitlines() if "accuracy" in line]
    assert len(lines) == 2 and len({line.split()[-1] for line in lines}) == 1
    assert float(lines[0].split()[3]) > 0.94
    log = (tmp_path / "poseidon_run.log").read_text()
    assert f"{fresh}" in log.split("PROCESS server0")[1].splitlines()[0]


def test_libraries_are_those_of_the_wheel(fresh):
    """If this fails, the programs need libraries that a bare machine may lack."""
    (programs,) = fresh.glob("lib/python*/site-packages/poseidon/_native/bin")
    for program in programs.iterdir():
        said = command("ldd", program)
        for line in said.splitlines():
            if "jansson" in line or "seccomp" in line:
                assert str(programs.parent) in os.path.realpath(line.split()[2]), line
        assert "not found" not in said


def test_the_page_is_that_of_the_wheel(fresh, tmp_path):
    """If this fails, whoever installs the wheel has no page, one without curves, or one that needs a package of the system."""
    gate = tmp_path / "gate"
    job = Job(tmp_path / "job", "-o", "logs", "--workers", 1, "--", "sh", "-c", f"until [ -e {gate} ]; do sleep 0.05; done",
              bin_path=fresh / "bin", environment={"PYTHONPATH": "", "PSD_LIB": ""})
    wait_for(lambda: list(job.directory.glob("logs/*/page_address")), 30, lambda: f"a page: {job.stderr()}")
    maps = pathlib.Path(f"/proc/{job.process.pid}/maps").read_text()
    gate.touch()
    assert job.wait(60) == 0, job.stderr()
    (native,) = fresh.glob("lib/python*/site-packages/poseidon/_native")
    assert {line.split()[-1] for line in maps.splitlines() if "libmicrohttpd" in line} == {str(native.resolve() / "lib" / "libmicrohttpd.so.12")}
    (report,) = job.directory.glob("logs/*/report.html")
    assert ".uplot" in report.read_text()


def test_pip_builds_it(tmp_path):
    """If this fails, `pip wheel .` does not work, or wants the network."""
    command(sys.executable, "-m", "pip", "wheel", "--no-index", "--no-deps", "--quiet",
            "--disable-pip-version-check", "--wheel-dir", tmp_path, TREE,
            env={**os.environ, "PSD_WHEEL_BUILD": str(build_directory())})
    assert len(list(tmp_path.glob("poseidon-*.whl"))) == 1


def test_jobs_leave_nothing(fresh, tmp_path):
    """If this fails, a job that was started through the wheel's command outlives it."""
    job = Job(tmp_path / "job", "--workers", 1, "--", fresh / "bin" / "python",
              TREE / "examples" / "python" / "logistic.py", "--steps", 2, bin_path=fresh / "bin",
              environment={"PYTHONPATH": "", "PSD_LIB": ""})
    assert job.wait(60) == 0, job.stderr()


def test_mnist_with_pytorch_runs_there(fresh, tmp_path):
    """If this fails, the PyTorch layer of an installed package is not that of the tree."""
    pytest.importorskip("torch")
    example = tmp_path / "torch_mnist.py"
    example.write_bytes((TREE / "examples" / "python" / "torch_mnist.py").read_bytes())
    done = subprocess.run([fresh / "bin" / "psd_run", "--workers", "2",
                           "python torch_mnist.py --samples 600 --epochs 1"], cwd=tmp_path,
                          env=clean_environment(fresh), timeout=300, capture_output=True,
                          text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    digests = [line.split()[-1] for line in done.stdout.splitlines() if " parameters " in line]
    assert len(digests) == 2 and len(set(digests)) == 1
