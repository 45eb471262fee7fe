# SPDX-License-Identifier: Apache-2.0
"""poseidon.tensorflow in real jobs: workers are the cases of tf_cases.py, and plain scripts."""

import importlib.util
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
import time
import uuid

import pytest

if importlib.util.find_spec("tensorflow") is None:  # importing it takes seconds
    pytest.skip("no TensorFlow here (tools/setup.sh frameworks)", allow_module_level=True)

HERE = pathlib.Path(__file__).resolve().parent
TREE = HERE.parents[1]
BIN = pathlib.Path(os.environ.get("PSD_BIN", TREE / "bin")).absolute()
CASES = HERE / "tf_cases.py"
EXAMPLES = TREE / "examples"
MNIST = pathlib.Path(os.environ.get("MNIST_DATA", TREE / "data" / "mnist"))
CIFAR = pathlib.Path(os.environ.get("CIFAR10_DATA", TREE / "data" / "cifar-10-batches-bin"))
needs_mnist = pytest.mark.skipif(not (MNIST / "train-images-idx3-ubyte.gz").exists(),
                                 reason=f"no MNIST in {MNIST}")
needs_cifar = pytest.mark.skipif(not (CIFAR / "data_batch_1.bin").exists(),
                                 reason=f"no CIFAR-10 in {CIFAR}")
DEADLINE_S = 240

pytestmark = pytest.mark.skipif(not (BIN / "psd_run").exists(), reason="psd_run is not built")


@pytest.fixture(name="cache", scope="session")
def fixture_cache(tmp_path_factory):
    """Where the operations are built, once for all tests."""
    return tmp_path_factory.mktemp("cache")


class Done:
    """A job, or a process alone, that has ended."""

    def __init__(self, directory, result):
        self.directory, self.code = directory, result.returncode
        self.out, self.err = result.stdout, result.stderr

    def log(self, name):
        (logs,) = (self.directory / "logs").iterdir()
        return (logs / f"{name}.log").read_text(errors="replace")

    def found(self, rank=None):
        """What a worker, or the process, told last."""
        text = self.out if rank is None else self.log(f"worker{rank}")
        return json.loads([line[6:] for line in text.splitlines() if line.startswith("FOUND ")][-1])


@pytest.fixture(name="call")
def fixture_call(tmp_path, cache):
    """Runs a command to its end."""

    def go(*words, path="", **variables):
        directory = tmp_path / uuid.uuid4().hex[:8]
        (directory / "rt").mkdir(parents=True, mode=0o700)
        clean = {name: value for name, value in os.environ.items()
                 if not name.startswith("PSD_") and name != "PYTHONPATH"}
        result = subprocess.run(
            [str(word) for word in words], cwd=directory, capture_output=True, text=True,
            timeout=DEADLINE_S, check=False, stdin=subprocess.DEVNULL,
            env={**clean, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1",
                 "PYTHONUNBUFFERED": "1", "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "",
                 "XDG_CACHE_HOME": str(cache), "XDG_RUNTIME_DIR": str(directory / "rt"),
                 "PSD_LIB": str((BIN / "ps_server").resolve().parent / "libpsd.so.0"), **variables})
        return Done(directory, result)

    return go


@pytest.fixture(name="job")
def fixture_job(call):
    """Runs a script that imports poseidon, which must end well."""

    def go(*words, workers=2, options=(), code=0, **variables):
        done = call(BIN / "psd_run", "--workers", workers, "--servers", 1, *options, "--",
                    sys.executable, *words, path=str(TREE / "python"), **variables)
        assert done.code == code, done.out + done.err
        return done

    return go


@pytest.fixture(name="plain")
def fixture_plain(call):
    """Runs a script that knows nothing of Poseidon."""

    def go(*words, workers=2, options=(), **variables):
        return call(BIN / "psd_run", "--workers", workers, "--servers", 1, "--grace_ms", 200,
                    *options, "--", sys.executable, *words, **variables)

    return go


def test_operations_in_opposite_orders_with_one_thread(job):
    """If this fails, kernels wait in TensorFlow's threads, and two workers can wait for ever."""
    done = job(CASES, "opposite_orders")
    for rank in range(2):
        assert done.found(rank)["sums"] == [number * 7.0 for number in range(50)]


def test_operations_move_what_they_are_given(job):
    """If this fails, graphs compute with something else than servers hold."""
    done = job(CASES, "operations")
    for rank in range(2):
        assert done.found(rank) == {
            "before": [1.0] * 4, "after": [0.75] * 4, "last": [0.25] * 4, "zero": 1.0, "nan": True,
            "big": 2**62 + 1, "truth": [True, False, True], "half": 2.0}


def test_operations_that_cannot_be_done_say_why(job):
    """If this fails, a mistake ends in a crash, a hang, or a message that does not help."""
    done = job(CASES, "refusals")
    for rank in range(2):
        found = done.found(rank)
        assert "not known when the graph is made" in found["unknown"]
        assert "use another name" in found["shapes"]
        assert "FailedPreconditionError" in found["closed"] and "not open" in found["closed"]
    assert "waits for worker 1" in done.found(0)["lonely"]


def test_operations_compile_without_a_warning(call):
    """If this fails, the operations do not have the rules of the project's other C."""
    done = call(sys.executable, "-c", "import poseidon.tensorflow.build as build\n"
                "print(build._tensorflow_headers())", path=str(TREE / "python"))
    include = done.out.split()[-1]
    sources = sorted((TREE / "python" / "poseidon" / "tensorflow").glob("*.c"))
    done = call("cc", "-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Wconversion", "-Wshadow",
                "-Wformat=2", "-Wstrict-prototypes", "-Wmissing-prototypes", "-Wvla", "-Werror",
                "-isystem", include, f"-I{TREE / 'include'}", *sources)
    assert done.code == 0, done.err


def test_without_a_compiler_it_says_what_to_do(call):
    """If this fails, somebody without a compiler does not learn what is missing."""
    done = call(sys.executable, "-c", "import poseidon.tensorflow.build as build\n"
                "build.library_file()", path=str(TREE / "python"), PATH="/nowhere",
                XDG_CACHE_HOME="/nowhere/cache")
    assert done.code != 0
    assert "there is no C compiler" in done.err and "PSD_TF_OPS" in done.err


def test_keras_fit_with_callbacks(job):
    """If this fails, model.fit with Poseidon's optimizer and callbacks does not train one model."""
    done = job(CASES, "keras_fit")
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"]
    assert zero["losses"] == one["losses"] and zero["losses"][-1] < 0.5 * zero["losses"][0]
    assert zero["rates"] == pytest.approx([0.01, 0.01 + 0.01 * 7 / 16, 0.02, 0.02])
    assert zero["files"] == ["model0.keras"] and zero["same"] and zero["optimizer"] == "adam"


def test_own_loop_with_a_tape(job):
    """If this fails, loops with a tape train two models, or open tables for every step."""
    done = job(CASES, "own_loop")
    assert done.found(0)["weights"] == done.found(1)["weights"]
    assert done.found(0)["tables"] == ["tensorflow.gradients0.0", "tensorflow.gradients0.1",
                                       "tensorflow.gradients0.2", "tensorflow.gradients0.3"]


# ---- scripts that know nothing of Poseidon


@pytest.mark.parametrize("kind,samples", [("arrays", 641), ("dataset", 650)])
def test_plain_keras_trains_like_one_process_with_twice_the_batch(call, plain, kind, samples):
    """If this fails, Keras scripts that nobody changed do not train as they should."""
    script = HERE / "plain" / "keras_digits.py"
    alone = call(sys.executable, script, 32, kind, samples)
    assert alone.code == 0, alone.err
    done = plain(script, 16, kind, samples)
    assert done.code == 0, done.out + done.err
    one, zero, other = alone.found(), done.found(0), done.found(1)
    assert len(zero["steps"]) == len(one["steps"]) == 42
    for mine, theirs in zip(zero["steps"][:20], one["steps"]):
        assert mine == pytest.approx(theirs, abs=1e-4)
    assert zero["weights"] == other["weights"]
    assert zero["same"] and other["same"]
    assert zero["accuracy"] == pytest.approx(one["accuracy"], abs=0.01)
    assert zero["loss"] == other["loss"]  # by worker, where the last batch has one sample
    assert zero["loss"] == pytest.approx(one["loss"], abs=5e-3)
    assert "gradients of Adam averaged (4 tensors, 387 values)" in done.err


def test_plain_keras_of_many_kinds(plain):
    """If this fails, a way to call fit is distributed wrong, or hangs."""
    done = plain(HERE / "plain" / "keras_kinds.py")
    assert done.code == 2, done.out + done.err  # the last kind cannot be dealt out
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"]
    assert zero["steps"] == one["steps"] == [6, 4, 5, 3]
    assert "its training data is a generator" in done.err


def test_a_keras_loop_of_its_own_is_stopped(plain, tmp_path):
    """If this fails, workers train on the same samples and nobody says so."""
    script = tmp_path / "loop.py"
    script.write_text(
        "import keras, tensorflow as tf\n"
        "w = keras.Variable([1.0, 2.0])\n"
        "with tf.GradientTape() as tape:\n    loss = tf.reduce_sum(w.value ** 2)\n"
        "keras.optimizers.SGD(0.1).apply([tape.gradient(loss, w.value)], [w])\n"
        "print('went on')\n")
    done = plain(script)
    assert done.code == 2
    assert "trains in a loop of its own, outside of Model.fit" in done.err
    assert "went on" not in done.out


def errors_in(done):
    """Lines of any log that tell of an error."""
    (logs,) = (done.directory / "logs").iterdir()
    return [line for path in logs.glob("*.log") for line in path.read_text().splitlines()
            if " error " in line or "Error" in line or "Traceback" in line]


def test_a_session_script_of_2017_runs_unchanged(plain):
    """If this fails, scripts of the original Poseidon do not train together."""
    done = plain(HERE / "plain" / "session_2017.py", options=("--auto", "tf1"))
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"] and zero["step"] == one["step"] == 40
    assert zero["losses"] != one["losses"] and zero["error"] < 0.01
    assert (zero["client_id"], one["client_id"]) == (0, 1) and zero["distributed"]
    assert zero["saved"] == "./model-40" and one["saved"] is None
    assert "gradients of MomentumOptimizer averaged" in done.err
    assert errors_in(done) == []


def test_the_error_is_no_larger_with_two_workers(plain):
    """If this fails, a second worker makes training worse after the same number of steps."""
    errors = {}
    for workers in (1, 2):
        done = plain(HERE / "plain" / "session_2017.py", "--max_steps", 12, workers=workers,
                     options=("--auto", "tf1"))
        assert done.code == 0, done.out + done.err
        errors[workers] = done.found(0)["error"]
    assert errors[2] <= errors[1]


def test_a_monitored_session_stops_at_exactly_the_step(plain):
    """If this fails, workers end at different steps, or servers stay behind."""
    done = plain(HERE / "plain" / "monitored.py")
    assert done.code == 0, done.out + done.err
    zero, one = done.found(0), done.found(1)
    assert zero["runs"] == one["runs"] == 25 and zero["weights"] == one["weights"]
    assert (done.directory / "checkpoints" / "checkpoint").exists()
    assert errors_in(done) == []


def test_hooks_and_sessions_of_the_package(job):
    """If this fails, session code that imports poseidon does not train one model."""
    done = job(CASES, "hooks")
    zero, one = done.found(0), done.found(1)
    assert zero["weights"] == one["weights"]
    assert zero["runs"] == one["runs"] == 6
    assert zero["step"] == 7  # with the one of the first session
    assert zero["chief"] and not one["chief"] and zero["closed"] and one["closed"]


# ---- examples


@pytest.mark.parametrize("path", sorted([*EXAMPLES.glob("tensorflow/*.py"),
                                         *EXAMPLES.glob("jax/*.py")]), ids=lambda path: path.name)
def test_example_is_short(path):
    """If this fails, an example is no example any more."""
    assert len(path.read_text().splitlines()) < 150


def accuracies(text):
    return [float(found) for found in re.findall(r"accuracy: (\d\.\d+)", text)]


@needs_mnist
def test_example_keras_mnist(plain):
    """If this fails, the first Keras script that people try does not learn."""
    done = plain(EXAMPLES / "tensorflow" / "keras_mnist.py", "--data", MNIST, "--samples", 12000)
    assert done.code == 0, done.out + done.err
    zero, one = (accuracies(done.log(f"worker{rank}"))[-1] for rank in range(2))
    assert zero == one > 0.85
    assert (done.directory / "mnist.keras").exists()


@needs_cifar
def test_example_cifar10(plain):
    """If this fails, two workers learn less from the same number of images than one. Batches of the
    one are those of both together, so that the numbers of images and of steps are the same."""
    script = EXAMPLES / "tensorflow" / "cifar10_train.py"
    found = {}
    for workers, batch in ((1, 64), (2, 32)):
        done = plain(script, "--data_dir", CIFAR, "--max_steps", 400, "--batch_size", batch,
                     "--seed", 1, workers=workers, options=("--auto", "tf1"))
        assert done.code == 0, done.out + done.err
        found[workers] = [accuracies(done.log(f"worker{rank}"))[-1] for rank in range(workers)]
    assert found[2][0] == found[2][1]
    assert found[2][0] >= found[1][0] - 0.02 > 0.35


class Task:
    """One process of a cluster of TensorFlow's own."""

    def __init__(self, directory, words):
        self.path = directory / f"{uuid.uuid4().hex[:8]}.out"
        with open(self.path, "wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, *map(str, words)], cwd=directory, stdout=out,
                stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": ""})

    def said(self):
        return self.path.read_text(errors="replace")

    def wait_until_it_says(self, text):
        deadline = time.monotonic() + DEADLINE_S
        while text not in self.said():
            assert self.process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.05)

    def ended(self):
        """What it said, when it has ended well."""
        try:
            assert self.process.wait(DEADLINE_S) == 0, self.said()
        except subprocess.TimeoutExpired:
            pytest.fail(f"it does not end: {self.process.args}\n{self.said()}")
        return self.said()


@pytest.fixture(name="cluster")
def fixture_cluster(tmp_path):
    """Starts tasks of a cluster with two workers, and kills what a failed test leaves of them."""
    ports = [socket.socket() for _ in range(4)]
    for each in ports:
        each.bind(("127.0.0.1", 0))
    hosts = [f"127.0.0.1:{each.getsockname()[1]}" for each in ports]
    for each in ports:
        each.close()
    tasks = []

    def begin(script, name, index, *words, servers=1):
        tasks.append(Task(tmp_path, [
            EXAMPLES / "tensorflow" / script, "--job_name", name, "--task_index", index,
            "--ps_hosts", ",".join(hosts[2:2 + servers]), "--worker_hosts", ",".join(hosts[:2]),
            *words]))
        return tasks[-1]

    yield begin
    for task in tasks:
        task.process.kill()
        task.process.wait()


def heard(ps, said):
    """From which workers a parameter server heard that they are done."""
    return sorted(re.findall(rf"ps {ps} received done (\d)\n", said))


def iterations(said):
    return int(re.search(r"did (\d+) iterations", said)[1])


@needs_mnist
def test_example_cluster_with_four_flags(cluster):
    """If this fails, the example for clusters of TensorFlow does not learn, or its ps stays."""
    tasks = [cluster("cluster_mnist.py", name, index, "--data_dir", MNIST)
             for name, index in (("ps", 0), ("worker", 0), ("worker", 1))]
    said = [task.ended() for task in tasks]
    assert heard(0, said[0]) == ["0", "1"]
    assert max(accuracies("".join(said))) > 0.88


def test_example_cluster_with_hooks(cluster):
    """If this fails, the example with hooks does not end, or does too much."""
    ps, *workers = [cluster("cluster_hooks.py", name, index, "--sleep", 0.01)
                    for name, index in (("ps", 0), ("worker", 0), ("worker", 1))]
    done = [iterations(worker.ended()) for worker in workers]
    assert 10 <= sum(done) <= 12  # each may be in the middle of one
    assert heard(0, ps.ended()) == ["0", "1"]


def test_example_cluster_with_hooks_and_a_worker_after_the_others(cluster):
    """If this fails, parameter servers do not wait for a worker that comes when the others have
    ended, or it waits for those."""
    servers = [cluster("cluster_hooks.py", "ps", ps, servers=2) for ps in range(2)]
    assert iterations(cluster("cluster_hooks.py", "worker", 0, servers=2).ended()) == 10
    assert iterations(cluster("cluster_hooks.py", "worker", 1, servers=2).ended()) == 1
    for ps, server in enumerate(servers):
        assert heard(ps, server.ended()) == ["0", "1"]


def test_example_cluster_with_hooks_and_worker_0_last(cluster):
    """If this fails, workers do not wait for the one that initializes the variables, or the script
    depends on who calls first."""
    one = cluster("cluster_hooks.py", "worker", 1)
    ps = cluster("cluster_hooks.py", "ps", 0)
    one.wait_until_it_says("worker 1 waits for worker 0")
    zero = cluster("cluster_hooks.py", "worker", 0)
    done = [iterations(worker.ended()) for worker in (zero, one)]
    assert 10 <= sum(done) <= 12
    assert heard(0, ps.ended()) == ["0", "1"]


@needs_mnist
def test_example_jax_mnist(call, job):
    """If this fails, workers with JAX train different models, or a worse one than one process."""
    script = EXAMPLES / "jax" / "mnist.py"
    words = (script, "--data", MNIST, "--steps", 200)
    alone = call(sys.executable, *words, path=str(TREE / "python"))
    assert alone.code == 0, alone.err
    done = job(*words)
    told = [re.findall("parameters ([0-9a-f]+)", done.log(f"worker{rank}")) for rank in range(2)]
    assert told[0] == told[1] and len(told[0]) == 1
    zero = accuracies(done.log("worker0"))[-1]
    assert zero == pytest.approx(accuracies(alone.out)[-1], abs=0.005) and zero > 0.9
