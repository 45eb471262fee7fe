# SPDX-License-Identifier: Apache-2.0
"""One run: a job with the ledger workload, the blows of its plan, and what must hold afterwards."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))

from helpers import Job, descriptors, marked_processes  # noqa: E402

import plan as plans  # noqa: E402
from board import KILL, STOP, Board  # noqa: E402
from tape import Tape  # noqa: E402

PUSHES_MIN = 50  # a second, in all, before each blow
RATE_TRIES = 12  # until it is held: others may use the machine for a while
SETTLE_S = 60  # until redundancy is back
REACH_S = 1.0  # until a point is passed by itself
PROVOKED_S = 5.0  # until it is passed after somebody was killed to send a process there
END_S = 60
STOPPED_S = (0.3, 4.0)  # before SIGCONT
DESCRIPTORS_MORE = 16
MODE_OF_WORKER = {"sum keep": "sum", "sum hold": "sum"}
SETTINGS = ("--heartbeat_ms=200", "--lost_grace_ms=100", "--server_restarts=1000", "--master_restarts=1000",
            "--restart_delay_ms=1", "--lanes=1")


def workload(mode):
    return "rows_ledger.py" if "rows" in mode else "ledger.py"


class Wrong(Exception):
    """A promise was broken."""


class Ended(Exception):
    """The job ended by itself."""


def wait_until(condition, seconds, what):
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise Wrong(f"{what}: not within {seconds:g} s")
        time.sleep(0.005)


def is_alive(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def send(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


class Run:
    seconds_to_end = END_S

    def __init__(self, plan, directory, points, python=sys.executable):
        self.plan = plan
        self.rng = random.Random(plan.seed + 1_000_000)
        self.directory = pathlib.Path(directory)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        self.tapes = [Tape(self.directory / f"{rank}.tape", create=True) for rank in range(plan.workers)]
        self.board = Board(self.directory / "board", points)
        self.python = python
        self.blows = []
        self.job = None

    # ------------------------------------------------------------------------------- the job ---

    def start(self):
        plan = self.plan
        worker = [self.python, HERE / workload(plan.mode), "--mode", MODE_OF_WORKER.get(plan.mode, plan.mode), "--shape", plan.shape,
                  "--tapes", self.directory, "--pace", plan.pace, *(["--meet"] if plan.meet else [])]
        self.job = Job(self.directory / "job", *SETTINGS, "--workers", plan.workers, "--servers", plan.servers,
                       *(["--replicas", 1] if plans.has_copies(plan.mode) else []),
                       *(["--transport=tcp"] if plan.way == "tcp" else []), "-o", "logs", "--", *worker,
                       environment={"PSD_FAIL_BOARD": str(self.board.path), "OMP_NUM_THREADS": "1",
                                    "PYTHONPATH": f"{HERE}:{HERE.parent / 'cluster'}"})

    def names(self):
        return ["master", *(f"server{index}" for index in range(self.plan.servers))]

    def pids(self):
        return {name: self.job.pid_of(name) for name in self.names()}

    def master_log(self):
        """Of the life that is, or was last."""
        try:
            (logs,) = (self.job.directory / "logs").iterdir()
        except (OSError, ValueError):
            return ""
        lives = sorted(logs.glob("master*.log"), key=lambda path: int((re.findall(r"\.(\d+)\.log$", path.name) or ["0"])[0]))
        return lives[-1].read_text(errors="replace") if lives else ""

    def losses(self):
        """How often a server with a part of the tables was lost, as all lives of the master said."""
        return sum(self.job.stderr().count(f"MEMBER-LOST {what} ") for what in ("server", "lane"))

    def has_ended(self):
        return self.job.process.poll() is not None

    def steps(self):
        return [tape.get("steps") for tape in self.tapes]

    def pushes(self):
        return sum(tape.get("pushes") for tape in self.tapes)

    def is_settled(self):
        """Everybody is there, and every server that holds parameters has a whole copy."""
        if self.has_ended():
            raise Ended
        log = self.master_log()
        for index in range(self.plan.servers):
            said = re.findall(rf"(COPY-WHOLE|COPY-LOST|MEMBER-LOST|MEMBER-BACK) server {index}\b", log)
            if plans.has_copies(self.plan.mode) and (not said or said[-1] != "COPY-WHOLE"):
                return False
            if said and said[-1] in ("MEMBER-LOST", "COPY-LOST"):
                return False
        if "JOB-START" not in log and "MASTER-BACK" not in log:
            return False
        try:
            return all(is_alive(pid) for pid in self.pids().values())
        except AssertionError:
            return False

    def settle(self, what):
        """Until redundancy is back and every worker has gone on since."""
        wait_until(self.is_settled, SETTLE_S, f"redundancy is back after {what}")
        steps = self.steps()

        def have_gone_on():
            if self.has_ended():
                raise Ended
            return all(now > before + 1 for now, before in zip(self.steps(), steps))

        wait_until(have_gone_on, SETTLE_S, f"all workers go on after {what}")

    def hold_rate(self):
        """Pushes a second before the blow; how long that is, chance decides."""
        for _ in range(RATE_TRIES):
            if self.has_ended():
                raise Ended
            begin, before = time.monotonic(), self.pushes()
            time.sleep(self.rng.uniform(0.4, 1.0))
            rate = (self.pushes() - before) / (time.monotonic() - begin)
            if rate >= PUSHES_MIN:
                break
        return rate

    # --------------------------------------------------------------------------------- blows ---

    def kill(self, name, number=signal.SIGKILL):
        pid = self.job.pid_of(name)
        moment = time.monotonic()
        send(pid, number)
        if number == signal.SIGKILL:  # it is seen for a moment yet
            wait_until(lambda: not is_alive(pid), 5, f"{name} is dead")
        return name, moment

    def some_server(self):
        return f"server{self.rng.randrange(self.plan.servers)}"

    def named(self, pid):
        """Of which process that was the number."""
        found = re.findall(rf" PROCESS (\w+) pid {pid} ", self.job.run_log())
        return found[-1] if found else f"process {pid}"

    def strike_plain(self, blow):
        if blow.action == "stop":
            name = self.some_server() if blow.role == "server" else "master"
            killed = [self.kill(name, signal.SIGSTOP)]
            time.sleep(self.rng.choice(STOPPED_S))
            send(self.job.pid_of(name), signal.SIGCONT)
            return killed
        if blow.role == "both":
            first, second = self.rng.sample([self.some_server(), "master"], 2)
            killed = [self.kill(first)]
            time.sleep(self.rng.uniform(0, 0.09))
            return [*killed, self.kill(second)]
        return [self.kill(self.some_server() if blow.role == "server" else "master")]

    def fired(self, blow, seconds):
        deadline = time.monotonic() + seconds
        while not self.board.fired(blow.point):
            if time.monotonic() > deadline or self.has_ended():
                return None
            time.sleep(0.002)
        pid, moment = self.board.fired(blow.point)
        if blow.action == "stop":
            time.sleep(self.rng.choice(STOPPED_S))
            send(pid, signal.SIGCONT)
        else:
            wait_until(lambda: not is_alive(pid), 5, f"{self.named(pid)} is dead at {blow.point}")
        return self.named(pid), moment

    def strike_point(self, blow):
        """Who died, and when; the one that was killed to get there first."""
        self.board.arm(blow.point, blow.passing, STOP if blow.action == "stop" else KILL)
        found = self.fired(blow, REACH_S if not blow.provoke else 0.05)
        killed = []
        if found is None and blow.provoke:
            killed.append(self.kill(self.some_server() if blow.provoke == "server" else "master"))
            found = self.fired(blow, PROVOKED_S)
        self.board.disarm(blow.point)
        found = found or self.fired(blow, 0)  # it may have been just now
        return killed + ([found] if found else [])

    def hold_rate_settled(self):
        """The same; with everybody still there at the end of it: the news of a death may have come meanwhile."""
        rate = self.hold_rate()
        while not self.is_settled():
            self.settle("late news")
            rate = self.hold_rate()
        return rate

    def strike(self, blow):
        rate = self.hold_rate_settled()
        noted = {**blow._asdict(), "rate": round(rate), "void": rate < PUSHES_MIN}
        self.blows.append(noted)
        if noted["void"]:
            return
        losses = self.losses()
        killed = self.strike_point(blow) if blow.point else self.strike_plain(blow)
        noted["killed"] = [name for name, _ in killed]
        noted["moments"] = [moment for _, moment in killed]
        noted["apart_ms"] = round(1000 * (max(noted["moments"], default=0) - min(noted["moments"], default=0)), 1)
        noted["reached"] = not blow.point or self.board.fired(blow.point) is not None
        if killed:
            self.settle(f"{noted['killed']} died{' at ' + blow.point if blow.point else ''}")
            noted["owned"] = self.losses() > losses  # else whoever died only stood by
            noted["recovery_ms"] = self.recoveries(noted)

    def recoveries(self, noted):
        """Per worker, from the last death to the end of the first step that began after it."""
        moment = max(noted["moments"])
        ends = [tape.recovered(moment) for tape in self.tapes]
        return [round(1000 * (end - moment), 1) for end in ends if end is not None]

    def strike_edge(self, blow):
        """Armed before it is known whether anybody comes there."""
        self.board.arm(blow.point, blow.passing)
        self.blows.append({**blow._asdict(), "rate": 0, "void": False, "killed": []})
        return self.blows[-1]

    def note_edge(self, noted):
        found = self.board.fired(noted["point"])
        noted["reached"] = found is not None
        if found:
            noted["killed"] = [self.named(found[0])]

    # ----------------------------------------------------------------------------- the whole ---

    def stop(self):
        """At one step for all, far enough that none has passed it."""
        at = (max(self.steps()) + 1024) // 64 * 64 if self.plan.pace == 0 else (max(self.steps()) + 128) // 64 * 64
        for tape in self.tapes:
            tape.set("stop_at", at)
        return at

    def end(self):
        try:
            return self.job.wait(self.seconds_to_end)
        except AssertionError as error:
            raise Wrong(str(error)[:300]) from None

    def run(self):
        """The record of the run. Raises nothing that is the job's fault."""
        begin = time.monotonic()
        record = {"seed": self.plan.seed, **{key: value for key, value in self.plan._asdict().items() if key != "blows"},
                  "verdict": "failed", "why": "", "lost": 0, "doubled": 0}
        try:
            self.go(record)
        except Ended:
            self.judge_end(record, self.end_code())
        except Wrong as wrong:
            record["why"] = str(wrong)
        finally:
            self.clean(record)
        if all(noted["void"] for noted in self.blows) and not record.get("ledger"):
            record["verdict"] = "void"  # nobody was killed: the machine had no time for the job
        for noted in self.blows:
            noted.pop("moments", None)
        record.update(blows=self.blows, seconds=round(time.monotonic() - begin, 1), pushes=self.pushes(),
                      steps=max(self.steps()), passes={name: count for name, count in self.board.passes().items() if count})
        return record

    def end_code(self):
        try:
            return self.end()
        except Wrong as wrong:
            return str(wrong)

    def go(self, record):
        edges = [self.strike_edge(blow) for blow in self.plan.blows if blow.phase == "start"]
        self.start()
        self.settle("the start")
        for noted in edges:
            self.note_edge(noted)
            self.board.disarm(noted["point"])
        open_before = {name: descriptors(pid) for name, pid in self.pids().items()}
        pids_before = self.pids()
        for blow in self.plan.blows:
            if blow.phase == "run":
                self.strike(blow)
        for name, pid in self.pids().items():
            more = descriptors(pid) - open_before[name] if pid == pids_before[name] else 0
            if more > DESCRIPTORS_MORE:
                raise Wrong(f"{name} has {more} more descriptors open than before")
        edges = [self.strike_edge(blow) for blow in self.plan.blows if blow.phase == "end"]
        record["stopped_at"] = self.stop()
        code = self.end()
        for noted in edges:
            self.note_edge(noted)
        self.judge_end(record, code)

    def judge_end(self, record, code):
        for noted in self.blows:
            if "reached" not in noted and noted["point"]:
                self.note_edge(noted)
        said = self.job.stdout()
        record["ledger"] = re.findall(r"LEDGER .*", said)
        record["lost"], record["doubled"], wrong = self.count(said) if code == 0 else (0, 0, "")
        may_end = any(noted["may_end"] and noted.get("reached") for noted in self.blows)
        if record["ledger"]:
            record["why"] = record["ledger"][0]
        elif code == 0 and not wrong:
            record["verdict"] = "held"
        elif code == 0:
            record["why"] = wrong
        elif may_end and code in (71, 137) and re.search(r"server \d+ .*(lost|killed by signal 9)", self.job.stderr()):
            record["verdict"] = "ended by name"
        else:
            record["why"] = f"the job ended with {code}: {self.job.stderr().strip().splitlines()[-1:]}"

    def count(self, said):
        """(lost, doubled, words): what is in the tables against what was acknowledged."""
        digests = dict(re.findall(r"digest (\d+) (\w+)", said))
        if len(re.findall(r"closed\n", said)) != self.plan.workers:
            return 0, 0, "not all workers closed"
        if self.plan.mode in plans.ROUNDS:
            self.digest = digests.get(str(max(self.steps())))
            if len(set(re.findall(rf"digest {max(self.steps())} (\w+)", said))) != 1:
                return 0, 0, "workers were told different values"
        if not plans.has_copies(self.plan.mode):
            return 0, 0, ""
        return self.count_final(said)

    def count_final(self, said):
        lost = doubled = 0
        steps = self.steps()
        finals = re.findall(r"final (\d+) (\d+) (.*)", said)
        if not finals:
            return 0, 0, "nothing was seen at the end"
        for _, _, text in finals:
            values = [float(word) for word in text.split()]
            for rank, count in enumerate(steps):
                for slot in range(64):
                    must = (count - slot + 63) // 64
                    lost += max(0, must - values[64 * rank + slot])
                    doubled += max(0, values[64 * rank + slot] - must)
            hot = sum(1 + (rank + step) % 3 for rank, count in enumerate(steps) for step in range(count))
            if values[1024] != hot:
                return lost, doubled, f"the hot slot is {values[1024]:g} and must be {hot}"
        added = {int(word) for word in re.findall(r"final steps (\d+)", said)}
        must = sum(tape.get("global_adds") for tape in self.tapes)
        if added != {must}:
            return lost, doubled, f"the global step is {added} and must be {must}"
        return int(lost), int(doubled), "the ledger is wrong" if lost or doubled else ""

    def clean(self, record):
        if self.job is None:
            return
        if not self.has_ended():
            self.job.process.kill()
            self.job.process.wait()
        deadline = time.monotonic() + 10
        while marked_processes(self.job.mark) and time.monotonic() < deadline:
            time.sleep(0.05)
        left = marked_processes(self.job.mark)
        for pid in left:
            send(pid, signal.SIGCONT)
            send(pid, signal.SIGKILL)
        if left and record["verdict"] != "failed":
            record.update(verdict="failed", why=f"processes were left: {list(left.values())}")
        (self.directory / "record.json").write_text(json.dumps(record, indent=1))

    digest = None
