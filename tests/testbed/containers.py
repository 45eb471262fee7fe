# SPDX-License-Identifier: Apache-2.0
"""Containers on one Linux machine, with no registry: podman with an image of the programs under test
and the libraries they need, on a network where they find each other by name. Podman changes the
network it runs in, so it gets one of its own, with processes and mounts of its own: what is left when
this ends goes with them. Addresses and names of containers are kept below /run, by the name of their network: that is its own,
too, or two that run at once would find each other's containers.

By hand, as root:

    python3 tests/testbed/containers.py BIN SECRET NAME=COMMAND ...

runs each COMMAND in a container of that NAME, with the file SECRET as /secret, prints what each printed, and exits with the first code
that is not 0."""

import os
import pathlib
import re
import resource
import shlex
import shutil
import subprocess
import sys
import tempfile

PROGRAMS = ("psd_run", "ps_master", "ps_server", "hello")
IMAGE = "localhost/poseidon:test"
NETWORK = "psdtest"
APART = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
DEADLINE_S = 60

# crun refuses some mixes of cgroup versions that runc accepts; limits above ours cannot be set.
CONFIGURATION = """\
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""


def missing():
    """Why there can be no containers here; None: there may."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for name in ("podman", "runc", "unshare", "busybox"):
        if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
            return f"{name} is not installed (tools/setup.sh test)"
    return None


def limit(which):
    """A limit as podman takes it; it has no word for none."""
    hard = resource.getrlimit(which)[1]
    return 32768 if hard == resource.RLIM_INFINITY else min(hard, 32768)


def libraries(program):
    """The files that the dynamic linker loads."""
    text = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    return re.findall(r"(/\S+) \(0x", text)


class Podman:
    """podman with everything of its own under one directory."""

    def __init__(self, directory):
        self.directory = directory
        config = directory / "containers.conf"
        config.write_text(CONFIGURATION.format(files=limit(resource.RLIMIT_NOFILE),
                                               processes=limit(resource.RLIMIT_NPROC)))
        self.environment = {**os.environ, "CONTAINERS_CONF": str(config),
                            "PATH": "/usr/sbin:/sbin:/usr/bin:/bin"}
        self.words = ["podman", "--root", str(directory / "root"), "--runroot",
                      str(directory / "run"), "--tmpdir", str(directory / "tmp"),
                      "--network-config-dir", str(directory / "net")]

    def __call__(self, *words, check=True, **more):
        done = subprocess.run([*self.words, *map(str, words)], env=self.environment,
                              capture_output=True, text=True, timeout=DEADLINE_S, check=False, **more)
        if check and done.returncode != 0:
            raise RuntimeError(f"podman {words[0]}: {done.stderr.strip()}")
        return done

    def make_image(self, programs):
        files = self.directory / "files"
        for name in ("bin", "tmp", "work", "etc", "proc", "run", "dev"):
            (files / name).mkdir(parents=True, exist_ok=True)
        shutil.copy(shutil.which("busybox", path="/usr/bin:/bin"), files / "bin" / "busybox")
        (files / "bin" / "sh").symlink_to("busybox")
        for name in PROGRAMS:
            program = (programs / name).resolve()
            shutil.copy(program, files / "bin" / name)
            for library in libraries(program):
                system = library.startswith(("/lib", "/usr/lib"))
                place = files / (library.lstrip("/") if system else f"lib/{pathlib.Path(library).name}")
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, place)
        archive = self.directory / "image.tar"
        subprocess.run(["tar", "-C", str(files), "-cf", str(archive), "."], check=True)
        self("import", "-q", archive, IMAGE)

    def try_one(self):
        """Whether a container with a network can be at all."""
        self("network", "create", "--internal", "--subnet", "10.214.0.0/24", NETWORK)
        self("run", "--rm", "--pull", "never", "--network", NETWORK, IMAGE, "/bin/busybox", "true")

    def run_all(self, commands, secret):
        """Starts a container for each, and waits for all. Returns {name: (code, output)}."""
        for name, command in commands.items():
            self("run", "-d", "--pull", "never", "--name", name, "--hostname", name, "--network",
                 NETWORK, "-w", "/work", "-v", f"{secret}:/secret:ro", IMAGE,
                 *shlex.split(command))
        results = {}
        for name in commands:
            code = int(self("wait", name).stdout.split()[0])
            logs = self("logs", name)
            results[name] = (code, logs.stdout + logs.stderr)
        return results

    def remove(self, commands):
        self("rm", "-f", "-t", "0", *commands, check=False)
        self("network", "rm", "-f", NETWORK, check=False)
        for path in sorted(pathlib.Path("/sys/fs/cgroup").glob("*/libpod_parent"), reverse=True):
            subprocess.run(["find", str(path), "-depth", "-type", "d", "-exec", "rmdir", "{}", "+"],
                           capture_output=True, check=False)


def main():
    programs, secret = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    commands = dict(word.split("=", 1) for word in sys.argv[3:])
    if os.environ.get("PSD_APART") != "yes":
        os.execvpe(APART[0], [*APART, sys.executable, *sys.argv], {**os.environ, "PSD_APART": "yes"})
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", "/run"], check=True)
    directory = pathlib.Path(tempfile.mkdtemp(prefix="psdc-", dir="/tmp"))  # podman wants it short
    podman = Podman(directory)
    try:
        try:
            podman.make_image(programs)
            podman.try_one()
        except RuntimeError as problem:
            print(f"containers.py: podman cannot run here: {problem}", file=sys.stderr)
            sys.exit(77)
        results = podman.run_all(commands, secret)
    finally:
        podman.remove(commands)
        shutil.rmtree(directory, ignore_errors=True)
    for name, (code, output) in results.items():
        print(f"== {name} ended with {code}\n{output}", end="")
    sys.exit(next((code for code, _ in results.values() if code != 0), 0))


if __name__ == "__main__":
    main()
