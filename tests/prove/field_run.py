# SPDX-License-Identifier: Apache-2.0
"""A run between hosts: the network of a server's machine is cut, or the server is killed there."""

import re
import time

import plan as plans
from field import FENCED, REFUSED, Field, FieldJob
from run import HERE, MODE_OF_WORKER, Run, Wrong, wait_until, workload

CUT_S = 3  # at least: longer than a silence is borne
LEAVE_S = 30  # for a server that was cut off to learn that it is out, after its network is back
NEWS_S = 3  # longer than lost_grace_ms
SETTINGS = ("--heartbeat_ms=250", "--master_grace_ms=30000")  # as psd_run has it by default: silence of 2 s


class FieldRun(Run):
    field = None

    def start(self):
        plan = self.plan
        self.field = Field(1 + plan.servers)
        copies = ["--replicas=1"] if plans.has_copies(plan.mode) else []
        command = [self.python, HERE / workload(plan.mode), "--mode", MODE_OF_WORKER.get(plan.mode, plan.mode), "--shape", plan.shape,
                   "--tapes", self.directory, "--pace", plan.pace]
        self.job = FieldJob(self.directory / "job", self.field, plan.servers, plan.workers, [*SETTINGS, *copies], command,
                            {"PSD_FAIL_BOARD": str(self.board.path), "OMP_NUM_THREADS": "1",
                             "PYTHONPATH": f"{HERE}:{HERE.parent / 'cluster'}"})

    def master_log(self):
        return self.job.output("master")

    def pids(self):
        return {name: pid for name, pid in super().pids().items()
                if plans.has_copies(self.plan.mode) or self.job.processes[name].poll() is None}

    def strike_plain(self, blow):
        index = self.rng.randrange(self.plan.servers)
        name = f"server{index}"
        if blow.role == "server":
            losses = self.all_losses()
            killed = self.kill(name)
            self.job.processes[name].wait()
            self.job.start_server(index)
            self.wait_for_news(losses)
            return [killed]
        losses = self.losses()
        self.field.cut(1 + index)
        moment = time.monotonic()
        self.wait_for_steps_since(moment)
        time.sleep(max(0.0, moment + CUT_S - time.monotonic()))
        self.field.heal(1 + index)
        if self.losses() > losses:  # else it only stood by, and goes on to do so
            self.expect_to_leave(name)
            if plans.has_copies(self.plan.mode):  # else another has its part for good, and it is not wanted
                self.start_afresh(index)
        return [(f"machine of {name}", moment)]

    def start_afresh(self, index):
        """One that stands by has fewer lanes than before, perhaps too few for the copies that are missing."""
        process = self.job.processes[f"server{index}"]
        if process.poll() is None:
            process.kill()
            process.wait()
        self.job.start_server(index)

    def all_losses(self):
        """Of servers and of copies."""
        return len(re.findall(r"(MEMBER|COPY)-LOST server ", self.master_log()))

    def wait_for_news(self, losses):
        """By hand the master hears of a death when a connection is not renewed. Until then all looks well. Of a process that
        had no part and no copy there is no news."""
        deadline = time.monotonic() + NEWS_S
        while self.all_losses() == losses and time.monotonic() < deadline and not self.has_ended():
            time.sleep(0.01)

    def wait_for_steps_since(self, moment):
        """The others go on before the machine is back."""
        wait_until(lambda: self.has_ended() or all(tape.recovered(moment) for tape in self.tapes), 30,
                   "workers go on without a machine that is cut off")

    def expect_to_leave(self, name):
        """A server that was given up learns so, and leaves with a line that says why."""
        process = self.job.processes[name]

        def is_out():
            """One whose own place another has stands by as before; only its lanes with places of others end."""
            said = self.job.output_of_life(name)
            return process.poll() is not None or ("STANDS-BY" in said and "SENT-AWAY" in said)

        wait_until(lambda: self.has_ended() or is_out(), LEAVE_S, f"{name}, cut off and given up, leaves")
        if process.poll() not in (FENCED, REFUSED, None):
            raise Wrong(f"{name}, cut off and given up, left with {process.poll()}, not {FENCED}")
        if process.poll() is not None and not re.search("JOB-END refused by the master", self.job.output(name)):
            raise Wrong(f"{name} left without a word: {self.job.output(name).splitlines()[-1:]}")

    def clean(self, record):
        super().clean(record)
        if self.field is not None:
            self.field.remove()
