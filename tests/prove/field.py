# SPDX-License-Identifier: Apache-2.0
"""A job between hosts: network namespaces on a switch of their own (root). The master and the workers have a host, every
server has another. Processes are started by hand, and a server that is lost is started again by hand, as somebody would
whose machine is back."""

import os
import pathlib
import signal
import subprocess
import time
import uuid

from helpers import MARK, ip, marked_processes, program, worker_environment

PORT = 7000  # in a namespace of our own every port is free
FENCED, REFUSED = 75, 73  # exit codes: declared dead; its place is another's


def missing():
    """Why there are no namespaces here; "" if there are."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    probe = f"psdp{os.getpid()}"
    made = ip("netns", "add", probe, check=False)
    ip("netns", "del", probe, check=False)
    return made.stderr.strip() if made.returncode != 0 else ""


class Field:
    """Hosts 0 to count - 1; 10.214.0.(1 + number)."""

    def __init__(self, count):
        mark = f"pv{os.getpid() % 100000}"
        self.switch = f"{mark}s"
        self.hosts = [f"{mark}h{number}" for number in range(count)]
        ip("netns", "add", self.switch)
        ip("-n", self.switch, "link", "add", "br0", "type", "bridge")
        ip("-n", self.switch, "link", "set", "br0", "up")
        for number, host in enumerate(self.hosts):
            ip("netns", "add", host)
            ip("link", "add", "eth0", "netns", host, "type", "veth", "peer", "name", f"port{number}", "netns", self.switch)
            ip("-n", self.switch, "link", "set", f"port{number}", "master", "br0")
            ip("-n", host, "addr", "add", f"{self.address(number)}/24", "dev", "eth0")
            for name in ("eth0", "lo"):
                ip("-n", host, "link", "set", name, "up")
            self.heal(number)

    @staticmethod
    def address(number):
        return f"10.214.0.{1 + number}"

    def inside(self, number, *command):
        return ["ip", "netns", "exec", self.hosts[number], *map(str, command)]

    def cut(self, number):
        ip("-n", self.switch, "link", "set", f"port{number}", "down")

    def heal(self, number):
        ip("-n", self.switch, "link", "set", f"port{number}", "up")

    def remove(self):
        for name in (*self.hosts, self.switch):
            ip("netns", "del", name, check=False)


class FieldJob:
    """What a run asks of a job (helpers.Job), of processes that were started one by one."""

    def __init__(self, directory, field, servers, workers, settings, command, environment):
        self.directory = pathlib.Path(directory)
        self.directory.mkdir(parents=True, exist_ok=True)
        self.field, self.settings = field, settings
        self.mark = uuid.uuid4().hex
        self.environment = {**os.environ, **worker_environment(), **environment, MARK: self.mark,
                            "PSD_MASTER_ADDRESS": f"tcp://{field.address(0)}:{PORT}"}
        self.life, self.processes = {}, {}
        self.start("master", 0, program("ps_master"), "--workers", workers, "--servers", servers, "--bind", field.address(0),
                   "--port", PORT, *settings)
        for index in range(servers):
            self.start_server(index)
        self.workers = [self.start(f"worker{rank}", 0, *command, PSD_RANK=str(rank)) for rank in range(workers)]

    def start(self, name, host, *command, **more):
        self.life[name] = self.life.get(name, -1) + 1
        with open(self.directory / f"{name}.{self.life[name]}.out", "wb") as out:
            self.processes[name] = subprocess.Popen(
                self.field.inside(host, *command), cwd=self.directory, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT, env={**self.environment, **more})
        return self.processes[name]

    def start_server(self, index):
        shared = [word for word in self.settings if word.startswith(("--heartbeat_ms", "--replicas"))]
        self.start(f"server{index}", 1 + index, program("ps_server"), "--index", index, "--master_address",
                   self.environment["PSD_MASTER_ADDRESS"], "--bind", self.field.address(1 + index), "--lanes=1", *shared)

    # ---------------------------------------------------------------- as helpers.Job has it ---

    process = property(lambda self: self)

    def poll(self):
        """The first code of a worker or the master; 0 when all have ended."""
        codes = [one.poll() for one in (*self.workers, self.processes["master"])]
        wrong = [code for code in codes if code]
        return wrong[0] if wrong else 0 if None not in codes else None

    def kill(self):
        for one in self.processes.values():
            if one.poll() is None:
                one.send_signal(signal.SIGCONT)
                one.kill()

    def wait(self, seconds=60.0):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and (self.poll() is None or marked_processes(self.mark)):
            if self.poll():
                self.kill()
            time.sleep(0.02)
        left = marked_processes(self.mark)
        assert self.poll() is not None and not left, f"the job did not end: {list(left.values())}"
        return self.poll()

    def output(self, name):
        return "".join((self.directory / f"{name}.{life}.out").read_text(errors="replace")
                       for life in range(self.life.get(name, -1) + 1))

    def output_of_life(self, name):
        """Of the last one."""
        return (self.directory / f"{name}.{self.life[name]}.out").read_text(errors="replace")

    def stdout(self):
        return "".join(self.output(name) for name in self.processes if name.startswith("worker"))

    def stderr(self):
        return self.output("master")

    def run_log(self):
        return "".join(f" PROCESS {name} pid {process.pid} \n" for name, process in self.processes.items())

    def pid_of(self, name):
        return self.processes[name].pid
