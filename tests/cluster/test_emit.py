# SPDX-License-Identifier: Apache-2.0
"""What psd_run prints for other systems, compared with files that were read by people, and for
Kubernetes with its schema. PSD_GOLDEN=write makes the files anew."""

import os
import pathlib
import re
import shlex
import subprocess

import pytest

import bed  # noqa: F401  (puts tests/testbed on the path)
from helpers import NO_SECRET, bin_directory, program

import condor

GOLDEN = pathlib.Path(__file__).resolve().parent / "golden"
COMMAND = "python train.py --text 'two words, $HOME $(id)' \"it's\" 'a \"b\"'"
CONDOR = ["--emit", "condor", "--rendezvous", "/shared/meet", "--workers", "4", "--servers", "2"]
K8S = ["--emit", "k8s", "--image", "registry/train:1", "--name", "train", "--size", "6",
       "--servers", "2"]
SECRET = "0123456789abcdef" * 4


def emit(*words, code=0):
    done = subprocess.run([program("psd_run"), *map(str, words)], capture_output=True, text=True,
                          timeout=120, env={**os.environ, **NO_SECRET}, check=False)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


@pytest.fixture
def known_secret(tmp_path):
    path = tmp_path / "secret"
    path.write_text(SECRET + "\n")
    path.chmod(0o600)
    return path


def compare(name, text):
    path = GOLDEN / name
    text = text.replace(str((bin_directory() / "psd_run").resolve()), "/PATH/psd_run")
    if os.environ.get("PSD_GOLDEN") == "write":
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name, words", [
    ("vanilla.sub", ["--min_workers", "3", "--max_wait", "60", "--lanes=2"]),
    ("docker.sub", ["--universe", "docker", "--image", "registry/train:1"]),
    ("parallel.sub", ["--universe", "parallel", "--secret_file", "/home/ann/secret"]),
])
def test_condor(name, words):
    """If this fails, what is submitted to HTCondor is not what was looked at."""
    compare(name, emit(*CONDOR, *words, COMMAND))


def test_condor_gives_a_job_time_to_save():
    """If this fails, HTCondor kills a job that it evicts before that has saved."""
    text = emit(*CONDOR, "--checkpoint", "/shared/run7", "--checkpoint_every", "10m", COMMAND)
    assert re.search(r"^kill_sig = SIGTERM$", text, re.M)
    assert int(re.search(r"^job_max_vacate_time = (\d+)$", text, re.M).group(1)) > 60
    words = condor.words_of(text)
    assert "--checkpoint=/shared/run7" in words and "--checkpoint_every=10m" in words
    assert "job_max_vacate_time" not in emit(*CONDOR, COMMAND)


def test_condor_words_come_back():
    """If this fails, HTCondor runs another command than the one that was given."""
    words = condor.words_of(emit(*CONDOR, COMMAND))
    assert words[words.index("--") + 1:] == shlex.split(COMMAND)
    assert words[:8] == ["--rendezvous", "/shared/meet", "--job_id", "$(ClusterId)", "--rank",
                         "$(Process)", "--size", "6"]


@pytest.mark.parametrize("system", [CONDOR[:4], K8S[:6]])
def test_personality_is_handed_on(system):
    """If this fails, the other system runs a script as one of Poseidon's that was given as one of
    TensorFlow's."""
    words = ("--personality", "tf_config", "--chief", "--evaluator", "--auto", "off", "--keep_env",
             "--grace_ms", "500", "--max_restarts", "7", "--restart_delay_ms", "100", "--workers", "3")
    text = emit(*system, *words, "--", "train")
    for word in ("personality=tf_config", "chief", "evaluator", "auto=off", "keep_env",
                 "grace_ms=500", "max_restarts=7", "restart_delay_ms=100"):
        assert re.search(rf"['\"]--{word}['\"]", text), text
    assert text.startswith("# 1 servers (") and "and coordinates) and 3 workers." in text


@pytest.mark.parametrize("system", [CONDOR[:4], K8S[:6]])
def test_scripts_without_servers(system):
    """If this fails, a script for torch.distributed is given a rank that serves nobody."""
    text = emit(*system, "--personality", "torch", "--workers", "3", "--", "train")
    assert text.startswith("# 3 workers (")
    assert re.search(r"--servers[ =]0\b", text) and re.search(r"--size[ =]3\b", text)


def test_k8s(known_secret):
    """If this fails, what is applied to Kubernetes is not what was looked at."""
    compare("train.yaml", emit(*K8S, "--secret_file", known_secret, "--lanes=2", COMMAND))


def test_k8s_is_valid(known_secret):
    """If this fails, Kubernetes refuses the manifests, or ignores a field that is misspelt."""
    yaml = pytest.importorskip("yaml")
    validate = pytest.importorskip("kubernetes_validate")
    manifests = list(yaml.safe_load_all(emit(*K8S, "--secret_file", known_secret, COMMAND)))
    assert [item["kind"] for item in manifests] == ["Secret", "Service", "NetworkPolicy", "Job"]
    for item in manifests:
        validate.validate(item, validate.latest_version(), strict=True)
    secret, service, _, job = manifests
    assert secret["stringData"]["secret"] == SECRET + "\n"
    pod = job["spec"]["template"]
    assert pod["metadata"]["labels"] == service["spec"]["selector"]
    assert pod["spec"]["subdomain"] == service["metadata"]["name"]
    command = pod["spec"]["containers"][0]["command"]
    words = [word.replace("$$(", "$(") for word in command[command.index("--") + 1:]]
    assert words == shlex.split(COMMAND) and "$$(id)" in command[-3]
    port = service["spec"]["ports"][0]["port"]
    assert f"--coordinator=train-0.train:{port}" in command


def test_k8s_validation_bites(known_secret):
    """If this fails, the test before proves nothing."""
    yaml = pytest.importorskip("yaml")
    validate = pytest.importorskip("kubernetes_validate")
    *_, job = yaml.safe_load_all(emit(*K8S, "--secret_file", known_secret, COMMAND))
    job["spec"]["completionsMode"] = "Indexed"
    with pytest.raises(validate.ValidationError):
        validate.validate(job, validate.latest_version(), strict=True)


def test_k8s_secret_is_fresh():
    """If this fails, two jobs share a secret that nobody chose."""
    found = {re.search(r'secret: "([0-9a-f]{64})\\n"', emit(*K8S, "true")).group(1)
             for _ in range(2)}
    assert len(found) == 2


SHARES = ["--gpus_per_worker", "2", "--cpus-per-worker", "6", "--memory_per_worker=16000"]


@pytest.mark.parametrize("words, found", [
    (["--nodes", "2", "--workers", "6"],
     ["--nodes=2", "--ntasks-per-node=3", "--gres=gpu:6", "--cpus-per-task=6", "--mem=48000M"]),
    (["--nodes", "2", "--workers", "6", "--ps", "2"],  # both servers on the first node
     ["--nodes=2", "--ntasks-per-node=4", "--gres=gpu:8", "--cpus-per-task=6", "--mem=64000M"]),
    (["--nodes", "2", "--workers", "6", "--ps", "2", "--placement", "spread"],
     ["--nodes=2", "--ntasks-per-node=4", "--gres=gpu:6", "--cpus-per-task=6", "--mem=64000M"]),
    (["--nodes", "3", "--roles", "ps,worker*6"],
     ["--nodes=3", "--ntasks=7", "--ntasks-per-node=3", "--gres=gpu:6", "--cpus-per-task=6",
      "--mem=48000M"])])
def test_sbatch_asks_for_what_workers_need(words, found):
    """If this fails, a job that needs GPUs is sent where there are none."""
    text = emit("--emit", "sbatch", *words, *SHARES, "--", "train", "--cpus_per_worker", "1")
    asked = re.findall(r"^#SBATCH (--(?:nodes|ntasks|gres|cpus|mem)\S*)", text, re.MULTILINE)
    assert asked == found
    command = shlex.split(text.splitlines()[-1])
    assert command[-4:] == ["--", "train", "--cpus_per_worker", "1"]
    assert "--gpus_per_worker" in command and "--memory_per_worker=16000" not in command
    assert command.count("--cpus_per_worker") == 1 and "--cpus-per-worker" not in command


def test_condor_asks_for_what_workers_need():
    """If this fails, workers get no GPU, or servers hold one that nobody uses."""
    text = emit(*CONDOR, *SHARES, "train")
    assert re.search(r"\nrequest_cpus = 6\nrequest_memory = 16000 MB\n# .*\nqueue 2\n"
                     r"request_gpus = 2\nqueue 4\n$", text), text
    text = emit(*CONDOR, *SHARES, "--universe", "parallel", "train")
    assert re.search(r"\nrequest_gpus = 2\nmachine_count = 6\n", text), text
    text = emit(*CONDOR[:6], "--personality", "torch", *SHARES, "train")
    assert re.search(r"\nrequest_gpus = 2\nqueue 4\n$", text), text


def test_k8s_asks_for_what_workers_need():
    """If this fails, pods start where there is no GPU, or memory for half of them."""
    yaml = pytest.importorskip("yaml")
    validate = pytest.importorskip("kubernetes_validate")
    *_, job = yaml.safe_load_all(emit(*K8S, *SHARES, "train"))
    validate.validate(job, validate.latest_version(), strict=True)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"] == {"requests": {"cpu": "6", "memory": "16000Mi"},
                                      "limits": {"nvidia.com/gpu": 2}}
    assert "--gpus_per_worker=2" in container["command"]


def test_ports():
    """If this fails, a firewall is opened in the wrong places."""
    text = emit("--emit", "ports", "--size", "6", "--servers", "2", "--initial_port", "7000",
                "--final_port", "7010", "true")
    first, last = pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    rows = [re.split(r"  +", line.strip()) for line in text.splitlines()]
    any_port = f"{first}-{last}"
    assert [row[:3] for row in rows[1:]] == [
        ["all ranks", "rank 0", "7000-7010"], ["all ranks", "rank 0", any_port],
        ["all ranks", "rank 0-1", any_port], ["rank 2-5", "rank 2-5", "20000-32767"]]


def test_ports_of_other_scripts():
    """If this fails, a firewall is opened for daemons that are not there, and not for the script."""
    text = emit("--emit", "ports", "--workers", "3", "--personality", "torch", "--initial_port",
                "7000", "--final_port", "7010", "true")
    rows = [re.split(r"  +", line.strip())[:3] for line in text.splitlines()]
    assert rows[1:] == [["all ranks", "rank 0", "7000-7010"],
                        ["all ranks", "all ranks", "20000-32767"]]


@pytest.mark.parametrize("words, text", [
    (["--emit", "pbs", "--size", "2", "x"], "--emit pbs: must be sbatch, condor, k8s or ports"),
    (["--emit", "sbatch", "--name", "a\n#SBATCH -N9", "x"], "use letters, digits, '-' and '_'"),
    (["--emit", "sbatch", "--gpus_per_worker", "1", "x"], "--gpus_per_worker needs --nodes N"),
    (["--emit", "sbatch", "--memory_per_worker", "1", "x"], "--memory_per_worker needs --nodes N"),
    (["--cpus_per_worker", "1", "x"], "--cpus_per_worker works only with --emit"),
    (["--emit", "k8s", "--image", "i", "x"], "give --workers W"),
    (["--emit", "k8s", "--size", "3", "x"], "--image NAME is needed"),
    (["--emit", "k8s", "--image", "i", "--size", "3", "--name", "My_Job", "x"],
     "--name My_Job: for Kubernetes"),
    (["--emit", "k8s", "--image", "i", "--size", "1", "x"], "at least one worker"),
    (["--emit", "k8s", "--image", "i", "--size", "3"], "nothing to run"),
    (["--emit", "condor", "--size", "3", "x"], "--rendezvous /DIR is needed"),
    (["--emit", "condor", "--rendezvous", "here", "--size", "3", "x"], "--rendezvous /DIR"),
    ([*CONDOR, "--universe", "grid", "x"], "--universe grid: must be vanilla"),
    ([*CONDOR, "--universe", "docker", "x"], "--image NAME is needed"),
    ([*CONDOR, "--", "sh", "-c", "a\nb"], "a line end"),
    ([*CONDOR, "--workdir", "/a\nqueue 99", "x"], "a line end"),
    ([*CONDOR, "-c", "cluster.json", "x"], "--cluster_config does not go with --emit condor"),
    ([*CONDOR[:6], "--personality", "torch", "--servers", "1", "x"], "torch has none"),
])
def test_usage(words, text):
    """If this fails, a mistake is found out by the other system, hours later."""
    assert text in emit(*words, code=2)
