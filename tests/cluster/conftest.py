# SPDX-License-Identifier: Apache-2.0
"""Fixtures of the tests with real processes."""

import os
import signal
import subprocess

import pytest

import bed
from helpers import Flood, Hand, Hosts, Job, bin_directory, end_all, ip, make_secret


# Under nohup, and in the background of a shell, these come ignored, and every job would inherit that.
for number, action in ((signal.SIGHUP, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
    if signal.getsignal(number) == signal.SIG_IGN:
        signal.signal(number, action)


def pytest_collection_modifyitems(items):
    """Without programs there is nothing to test."""
    if not (bin_directory() / "psd_run").exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="psd_run is not built"))


@pytest.fixture(scope="session", autouse=True)
def secret_file(tmp_path_factory):
    """A secret that every process of every test finds in its environment, as on a machine where
    somebody starts jobs by hand. Tests that want another one, or none, say so."""
    if not (bin_directory() / "psd_run").exists():
        yield None
        return
    path = make_secret(tmp_path_factory.mktemp("secret") / "secret")
    os.environ["PSD_SECRET_FILE"] = str(path)
    yield path
    del os.environ["PSD_SECRET_FILE"]


@pytest.fixture(scope="session", autouse=True)
def own_jobs(tmp_path_factory):
    """Jobs of other people on this machine have the same user: tests list only their own."""
    path = tmp_path_factory.mktemp("rt")
    path.chmod(0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(path)
    yield
    del os.environ["XDG_RUNTIME_DIR"]


@pytest.fixture
def start(tmp_path):
    """Starts jobs with psd_run, and kills what a failed test leaves of them."""
    jobs = []

    def begin(*arguments, name="job", **options):
        jobs.append(Job(tmp_path / name, *arguments, **options))
        return jobs[-1]

    yield begin
    end_all(jobs)


@pytest.fixture
def hand(tmp_path):
    """Starts the processes of a job one by one. Afterwards nothing may be left."""
    processes = Hand(tmp_path)
    yield processes
    failed = [process.name for process in processes.processes if process.process.poll() is None]
    processes.kill_all()
    processes.expect_nothing_left()
    assert not failed, f"still running at the end of the test: {failed}"


@pytest.fixture
def crowd():
    """Sends crowds of strangers, and calls off what a failed test leaves of them."""
    floods = []

    def begin(count, ports):
        floods.append(Flood(count, ports))
        return floods[-1]

    yield begin
    for flood in floods:
        flood.kill()


@pytest.fixture
def hosts():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    probe = ip("netns", "add", f"psd{os.getpid() % 10000}probe", check=False)
    if probe.returncode != 0:
        pytest.skip(f"no network namespaces here: {probe.stderr.strip()}")
    ip("netns", "del", f"psd{os.getpid() % 10000}probe")
    made = Hosts()
    yield made
    made.remove()


@pytest.fixture
def small_disk(tmp_path):
    """Mounts file systems of a few MiB (root only), and takes them away again."""
    mounted = []

    def mount(mebibytes):
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", path],
                              capture_output=True, text=True, check=False)
        if done.returncode != 0:
            pytest.skip(f"cannot mount a small file system: {done.stderr.strip()}")
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", path], check=True)


@pytest.fixture(scope="session")
def four_hosts():
    """A launcher and four hosts with sshd, for all tests that want them."""
    why = bed.hosts.missing()
    if why is not None:
        pytest.skip(f"no hosts: {why}")
    made = bed.hosts.Testbed(4)
    yield made
    made.remove()


@pytest.fixture
def launch(four_hosts):
    """Starts jobs on the hosts. Afterwards all hosts are up, joined and empty."""
    jobs = []

    def begin(config, *arguments, **options):
        jobs.append(bed.SshJob(four_hosts, config, *arguments, **options))
        return jobs[-1]

    yield begin
    for job in jobs:
        if job.process.poll() is None:
            job.kill()
    for host in four_hosts.hosts:
        if host.holder is None:
            host.boot()
            host.wait_until_up()
        else:
            host.heal()
        for pid in host.processes():
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
