# SPDX-License-Identifier: Apache-2.0
"""A stand-in for a batch system that has no idea of jobs that belong together: it starts processes in
any order, on any host, at any time, takes them away again (TERM, and KILL when that is not heard; or
KILL at once) and starts them anew elsewhere. Every start has a scratch directory of its own, the
shared directory is all that they have in common. What happens is a function of the seed."""

import os
import random
import re
import signal
import subprocess
import time

import hosts

GRACE_S = 4.0  # between TERM and KILL, where the submit description does not say
SPREAD_S = 1.0  # over which processes start
QUIET_S = 2.5  # no eviction after that


def words_of(submit, process="$(Process)", cluster="$(ClusterId)"):
    """The words of `arguments = "..."` in a submit description, by HTCondor's rules: quotes of both
    kinds are doubled, single ones hold blanks together, $(NAME) is a macro."""
    (text,) = re.findall(r'^arguments = "(.*)"$', submit, re.MULTILINE)
    words = re.findall(r"(?:[^\s']|'(?:[^']|'')*')+", text.replace('""', '"'))
    plain = [re.sub(r"'((?:[^']|'')*)'", lambda m: m.group(1).replace("''", "'"), word)
             for word in words]
    macros = {"Process": process, "ClusterId": cluster, "DOLLAR": "$"}
    return [re.sub(r"\$\((\w+)\)", lambda m: macros[m.group(1)], word) for word in plain]


def grace_of(submit):
    """Seconds between TERM and KILL: what `job_max_vacate_time` asks for."""
    asked = re.findall(r"^job_max_vacate_time = (\d+)$", submit, re.MULTILINE)
    return float(asked[0]) if asked else GRACE_S


class Task:
    """One process of the cluster, over all its lives."""

    def __init__(self, number):
        self.number = number
        self.lives = 0
        self.process = None
        self.host = None
        self.start_s = 0.0  # when to start next
        self.kill_s = None  # TERM was sent: when to send KILL
        self.evicted = False
        self.code = None  # of a life that ended by itself

    def pid(self):
        return hosts.first_child(self.process.pid)


class Pool:
    """Runs `count` processes until each has ended by itself. command(number) gives the words of one."""

    def __init__(self, bed, count, command, directory, seed, evictions, on_quiet, environment=None, grace_s=GRACE_S,
                 signals=(signal.SIGTERM, signal.SIGTERM, signal.SIGKILL), is_ready=lambda pool: True):
        self.bed = bed
        self.command = command
        self.directory = directory
        self.random = random.Random(seed)
        self.environment = environment or {}
        self.grace_s = grace_s
        self.is_ready = is_ready  # from then on processes are taken away
        self.ready_s = None
        self.tasks = [Task(number) for number in range(count)]
        self.on_quiet = on_quiet
        self.events = []  # what was done, for a test that fails
        for task in self.tasks:
            task.start_s = self.random.uniform(0, SPREAD_S)
        self.evictions = sorted(
            (self.random.uniform(0.2, QUIET_S), self.random.randrange(count),
             self.random.choice(signals))
            for _ in range(evictions))

    def note(self, now, text):
        self.events.append(f"{now:6.2f} {text}")

    def start(self, task, now):
        task.host = self.random.choice(self.bed.hosts[1:])
        task.lives += 1
        task.kill_s = None
        task.evicted = False
        scratch = self.directory / f"scratch-{task.number}-{task.lives}"
        scratch.mkdir()
        os.chown(scratch, hosts.USER_ID, hosts.USER_ID)
        variables = {"HOME": str(scratch), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8",
                     "XDG_RUNTIME_DIR": str(scratch), "_CONDOR_SCRATCH_DIR": str(scratch),
                     "_CONDOR_SLOT": f"slot{task.number}", **self.environment}
        with open(scratch / "stdout", "wb") as out, open(scratch / "stderr", "wb") as err:
            task.process = subprocess.Popen(
                task.host.inside("env", "-i", *(f"{k}={v}" for k, v in variables.items()),
                                 *self.command(task.number), directory=scratch),
                stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.note(now, f"{task.number} starts on {task.host.name}, life {task.lives}")

    def evict(self, number, how, now):
        task = self.tasks[number]
        pid = task.pid() if task.process is not None and task.process.poll() is None else None
        if pid is None or task.evicted:
            return
        task.evicted = True
        task.kill_s = now + self.grace_s
        os.kill(pid, how)
        self.note(now, f"{number} is evicted with {how.name}")

    def look(self, task, now):
        """Whether it is done."""
        if task.process is None:
            if task.code is None and now >= task.start_s:
                self.start(task, now)
            return task.code is not None
        code = task.process.poll()
        if code is None:
            if task.kill_s is not None and now >= task.kill_s and task.pid() is not None:
                os.kill(task.pid(), signal.SIGKILL)
                self.note(now, f"{task.number} did not leave in time: killed")
            return False
        self.note(now, f"{task.number} ended with {code}")
        task.process = None
        if task.evicted:
            task.start_s = now + self.random.uniform(0, SPREAD_S)
            return False
        task.code = code
        return True

    def run(self, seconds):
        begin = time.monotonic()
        quiet = False
        try:
            while not all([self.look(task, time.monotonic() - begin) for task in self.tasks]):
                now = time.monotonic() - begin
                if self.ready_s is None and self.is_ready(self):
                    self.ready_s = now
                since = now - self.ready_s if self.ready_s is not None else -1.0
                assert now < seconds, "not done in time:\n" + self.story()
                while self.evictions and since >= self.evictions[0][0]:
                    _, number, how = self.evictions.pop(0)
                    self.evict(number, how, now)
                if since >= QUIET_S and not quiet:
                    quiet = True
                    self.on_quiet()
                time.sleep(0.02)
        finally:
            self.end()
        return [task.code for task in self.tasks]

    def end(self):
        for task in self.tasks:
            if task.process is not None and task.process.poll() is None:
                if task.pid() is not None:
                    os.kill(task.pid(), signal.SIGKILL)
                task.process.wait(10)

    def story(self):
        """Everything that a person wants to see when it went wrong."""
        texts = list(self.events)
        for task in self.tasks:
            for life in range(1, task.lives + 1):
                scratch = self.directory / f"scratch-{task.number}-{life}"
                texts.append(f"-- {task.number}, life {life}\n"
                             + (scratch / "stderr").read_text(errors="replace")[-1500:])
        return "\n".join(texts)
