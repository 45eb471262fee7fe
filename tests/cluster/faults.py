# SPDX-License-Identifier: Apache-2.0
"""What ended a job: each of its processes and machines is taken away in every way, and psd_run has to
name that one, and nobody who only died of it.

A job of four workers and two servers on four hosts, over ssh, under Slurm and by rendezvous:

    kill  signal 9 to a process          cut  the network of a machine passes nothing any more
    stop  signal STOP to a process       off  a machine loses its power: cut, and all of it killed

    make test-faults [RUNS=10] [JOBS=2] [ONLY=TEXT]      the whole matrix, as root

Every run leaves a line in build/faults.tsv, and is not repeated once it has one: an interrupted pass
goes on where it stopped, `rm build/faults.tsv` begins anew. ONLY picks the cases whose name, such as
"slurm stop server1", has that text. test_faults.py has one of each kind."""

import argparse
import collections
import json
import multiprocessing
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import time
import traceback
import uuid

import bed
from helpers import HERE, library_path, wait_for

import hosts  # noqa: E402  (bed puts tests/testbed on the path)
import slurm as slurm_bed  # noqa: E402

END_S = 30  # for a job to end: 5 s of silence, 1 s of grace, the rest for a busy machine
GONE_S = 20  # for everything to be gone
SLURM_S = 300  # for Slurm to have done with a node, or a controller, that it had lost
GOES_ON_S = 7.0  # a job that does so must outlive every lease

LOST = {"master": 72, "server": 71, "worker": 70}
PROCESSES = ["master", "server0", "server1", "worker0", "worker1", "worker2", "worker3"]
# So that the loss of any process ends the job.
ENDS = ("--master_grace_ms=0", "--replicas=0", "--server_wait_ms=5000")
SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}

# What a fault must lead to. process, machine: the one that is named; code; "goes on": nothing happens;
# "nothing left": psd_run itself is gone, and everything with it.
Expected = collections.namedtuple("Expected", "what code process machine", defaults=(None,) * 3)


class Case(collections.namedtuple("Case", "way fault place")):
    __slots__ = ()
    name = property(lambda self: f"{self.way} {self.fault} {self.place}")


def role_of(name):
    return name.rstrip("0123456789")


# ------------------------------------------------------------------------------------------ ways ---


class Way:
    """A job that trains for ever, and how its parts are found."""

    name = ""
    roles = {}  # {host number: names of the processes there}
    observer = 0  # number of the host of the psd_run that coordinates
    keepers = True

    returns = ()  # places that come back by themselves, and the job with them

    def __init__(self, field):
        self.field = field
        self.directory = None

    def machine(self, number):
        """What psd_run calls a host."""
        return f"host{number}"

    def code_of(self, number):
        return LOST[min((role_of(name) for name in self.roles[number]),
                        key=list(LOST).index)]

    @classmethod
    def cases(cls):
        found = [Case(cls.name, fault, name) for fault in SIGNALS for name in PROCESSES]
        for number in sorted(cls.roles):
            found += [Case(cls.name, fault, f"host{number}") for fault in ("cut", "off")]
            found += [Case(cls.name, fault, f"agent{number}") for fault in SIGNALS]
            if cls.keepers and number != cls.observer:
                found += [Case(cls.name, fault, f"keeper{number}") for fault in SIGNALS]
        return found + [Case(cls.name, "kill", "psd_run")]

    def expected(self, case):
        number = int(re.sub(r"\D", "", case.place) or 0)
        if case.place in PROCESSES:
            code = 137 if case.fault == "kill" else LOST[role_of(case.place)]
            return Expected("ends", code, process=case.place)
        if case.place == "psd_run" or (case.fault == "off" and number == self.observer):
            return Expected("nothing left")
        if case.place.startswith("keeper") and case.fault == "stop":
            return Expected("goes on")
        return Expected("ends", self.code_of(number), machine=self.machine(number))

    # ------------------------------------------------------------------------------- finding ---

    def host(self, number):
        return self.field.bed.hosts[number]

    def run_log(self):
        path = self.directory / "poseidon_run.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def place_of(self, name):
        """The host of a process and its pid there."""
        found = re.findall(rf"PROCESS {name} pid (\d+) on (\w+): ", self.run_log())
        assert found, f"{name} was not started:\n{self.run_log()}"
        return self.number_of(found[-1][1]), int(found[-1][0])

    def number_of(self, machine):
        return int(machine.removeprefix("host"))

    def pids_named(self, number, comm):
        """The processes of a host by the names they give themselves, as this machine numbers them."""
        found = []
        for pid in self.host(number).processes():
            try:
                if pathlib.Path(f"/proc/{pid}/comm").read_text().strip() == comm:
                    found.append(pid)
            except OSError:
                continue
        return found

    def pid_of(self, place):
        """Of an agent, a keeper or psd_run."""
        if place == "psd_run":
            return self.launcher_pid()
        kind, number = place.rstrip("0123456789"), int(re.sub(r"\D", "", place))
        (pid,) = self.pids_named(number, f"psd_{kind}")
        return pid

    # ------------------------------------------------------------------------------ injecting ---

    def inject(self, case):
        if case.place in PROCESSES:
            number, pid = self.place_of(case.place)
            hosts.run(*self.host(number).inside("kill", f"-{SIGNALS[case.fault].value}", pid,
                                                user="root"))
        elif case.fault in SIGNALS:
            os.kill(self.pid_of(case.place), SIGNALS[case.fault])
        else:
            host = self.host(int(case.place.removeprefix("host")))
            host.cut() if case.fault == "cut" else host.power_off()

    # ------------------------------------------------------------------------------ observing ---

    def wait_for_steps(self):
        wait_for(lambda: all(f"[worker{i}] step 10\n" in self.output() for i in range(4)), 60,
                 f"all workers train\n{self.story()}")

    def last_step(self):
        found = re.findall(r"\[worker0\] step (\d+)", self.output())
        return int(found[-1]) if found else -1

    def ends(self):
        """(code, words) of every attempt that ended."""
        return [(int(code), text) for code, text in
                re.findall(r" END code (\d+) after [\d.]+ s: (.*)", self.run_log())]

    def result(self):
        (directory,) = (self.directory / "logs").iterdir()
        return json.loads((directory / "result.json").read_text())

    def check(self, case, expected):
        """Words for what is wrong; "" if nothing is."""
        wait_for(lambda: self.ends(), END_S, f"psd_run says why the job ended\n{self.story()}")
        code, text = self.ends()[0]
        wait_for(lambda: (self.directory / "logs").exists() and
                 any((self.directory / "logs").glob("*/result.json")), 5, "result.json")
        result = self.result()
        named = [one["name"] for kind in ("processes", "machines") for one in result[kind]
                 if one["cause"]]
        wanted = [expected.process or expected.machine] if (expected.process or
                                                            expected.machine) else []
        if code != expected.code:
            return f"code {code}, not {expected.code}"
        if named != wanted:
            return f"names {named}, not {wanted}"
        if (result["exit_code"], result["cause"]) != (code, text):
            return f"result.json has {result['exit_code']}, {result['cause']}"
        if wanted == [] and "was cut off from all others" not in text:
            return "no word of being cut off"
        return self.check_exit(case, code)

    def check_goes_on(self):
        step = self.last_step()
        until = time.monotonic() + GOES_ON_S
        wait_for(lambda: self.ends() or time.monotonic() > until, GOES_ON_S + END_S, "its leases to pass")
        wait_for(lambda: self.last_step() > step or self.ends(), END_S, "the job goes on")
        return f"it ended: {self.ends()[0]}" if self.ends() else ""

    def left(self):
        """What still runs of the job on hosts that are up."""
        found = {}
        for name, lines in self.field.processes().items():
            mine = {pid: line for pid, line in lines.items() if self.is_mine(line)}
            if mine:
                found[name] = mine
        return found

    def is_mine(self, line):
        return True

    def story(self):
        return f"{self.output()[-1500:]}\n{self.errors()[-3000:]}\n{self.run_log()[-3000:]}"


class Ssh(Way):
    name = "ssh"
    roles = {1: ["worker0"], 2: ["worker1", "server0"], 3: ["worker2", "server1"],
             4: ["worker3", "master"]}
    config = {"worker_nodes": ["host1", "host2", "host3", "host4"],
              "server_nodes": ["host2", "host3"], "master_node": "host4"}

    @classmethod
    def cases(cls):
        return super().cases() + [Case("ssh", "cut", "launcher"), Case("ssh", "off", "launcher")]

    def expected(self, case):
        if case.place == "launcher":
            return Expected("ends", 72) if case.fault == "cut" else Expected("nothing left")
        return super().expected(case)

    def inject(self, case):
        if case.place == "launcher":
            host = self.field.bed.launcher
            host.cut() if case.fault == "cut" else host.power_off()
            return
        super().inject(case)

    def start(self):
        self.job = bed.SshJob(self.field.bed, self.config, "-o", "logs", *ENDS, bed.worker("--steps", 1_000_000))
        self.directory = self.job.directory
        self.wait_for_steps()

    def output(self):
        return self.job.stdout()

    def errors(self):
        return self.job.stderr()

    def launcher_pid(self):
        return self.job.pid()

    def check_exit(self, case, code):
        return "" if self.job.wait(END_S) == code else f"exit code {self.job.wait()}"

    def stop(self):
        if self.job.process.poll() is None:
            os.kill(self.job.pid(), signal.SIGTERM)
            self.job.wait(60)

    def kill(self):
        if self.job.process.poll() is None:
            self.job.kill()


class Slurm(Way):
    name = "slurm"
    observer = 1
    roles = {1: ["master", "worker0", "worker1", "worker2"], 2: ["server0"], 3: ["server1"],
             4: ["worker3"]}

    def expected(self, case):
        if case.name == "slurm cut host1":  # where psd_run is: it sees the others go
            return Expected("ends", 72, machine="host1")
        return super().expected(case)

    def start(self):
        slurm = self.field.slurm
        self.directory = slurm.shared / f"job-{uuid.uuid4().hex[:8]}"
        slurm.run("mkdir", self.directory)
        environment = {"PATH": f"{bed.seen_inside(library_path()).parent}:{slurm_bed.PATH}",
                       "PYTHONPATH": str(bed.seen_inside(HERE)),
                       "PSD_LIB": str(bed.seen_inside(library_path())),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        words = ["psd_run", "-o", "logs", *ENDS, "--roles", "worker*3,ps,ps,worker",
                 bed.worker("--steps", 1_000_000)]
        script = self.directory / "script"
        script.write_text(f"#!/bin/sh\n{shlex.join(words)}\ncode=$?\necho $code >code\nexit $code\n")
        done = slurm.run("sbatch", "--parsable", "--output=out", "--error=err", "--no-requeue",
                         "-N4", "-n6", script, environment=environment, directory=self.directory)
        self.id = int(done.stdout)
        self.blind = False
        self.wait_for_steps()

    def text(self, name):
        path = self.directory / name
        return path.read_text(errors="replace") if path.exists() else ""

    def output(self):
        return self.text("out")

    def errors(self):
        return self.text("err") + self.field.slurm.logs()

    def launcher_pid(self):
        agent = self.pid_of("agent1")
        return int(pathlib.Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])

    def check_exit(self, case, code):
        code_file = self.directory / "code"
        said = int(wait_for(lambda: code_file.exists() and code_file.read_text(), END_S,
                            f"psd_run ends\n{self.story()}"))
        return "" if said == code else f"exit code {said}"

    def inject(self, case):
        self.blind = case.name == "slurm cut host1"
        super().inject(case)

    def is_mine(self, line):
        """A helper of srun itself lives on until it has reached slurmctld."""
        return not (self.blind and line.startswith("srun "))

    def stop(self):
        self.field.slurm.run("scancel", self.id, check=False)

    kill = stop


class Rendezvous(Way):
    """Whoever is lost is not started again, as a batch system would: psd_run says what ended the job,
    and waits for its return where it is a server's."""

    name = "rendezvous"
    observer = 1
    keepers = False
    ranks = {0: 1, 1: 2, 2: 3, 3: 4, 4: 3, 5: 4}  # {rank: host}
    returns = ("agent1",)  # of a server whose psd_run lives: it takes another one
    roles = {1: ["server0", "master"], 2: ["server1"], 3: ["worker0", "worker2"],
             4: ["worker1", "worker3"]}

    @classmethod
    def cases(cls):
        found = [case for case in super().cases() if not case.place.startswith("agent")]
        for rank in cls.ranks:
            found += [Case(cls.name, fault, f"agent{rank}") for fault in SIGNALS]
            found += [Case(cls.name, fault, f"rank{rank}") for fault in SIGNALS if rank > 0]
        return found

    def rank_roles(self, rank):
        return ["master", "server0"] if rank == 0 else [f"server{rank}" if rank < 2 else
                                                         f"worker{rank - 2}"]

    def expected(self, case):
        rank = re.fullmatch(r"(?:agent|rank)(\d)", case.place)
        if rank is not None:
            code = LOST[role_of(self.rank_roles(int(rank[1]))[0])]
            return Expected("ends", code, machine=f"rank{rank[1]}")
        if case.place.startswith("host") and case.place != "host1":
            number = int(case.place[4:])
            gone = [f"rank{r}" for r, host in self.ranks.items() if host == number]
            return Expected("ends", self.code_of(number), machine=gone)
        if case == Case("rendezvous", "cut", "host1"):
            return Expected("ends", 72, machine="rank0")
        return super().expected(case)

    def check(self, case, expected):
        """Of several ranks on one host, either is right."""
        if not isinstance(expected.machine, list):
            return super().check(case, expected)
        wrong = [super(Rendezvous, self).check(case, expected._replace(machine=one))
                 for one in expected.machine]
        return "" if "" in wrong else wrong[0]

    def number_of(self, machine):
        return self.ranks[int(machine.removeprefix("rank"))]

    def start(self):
        self.top = self.field.shared / f"job-{uuid.uuid4().hex[:8]}"
        self.top.mkdir()
        self.members = {}
        for name in ["meeting", *(f"rank{rank}" for rank in self.ranks)]:
            (self.top / name).mkdir()
        hosts.run("chown", "-R", f"{hosts.USER_ID}:{hosts.USER_ID}", self.top)
        variables = {"HOME": f"/home/{hosts.USER}", "USER": hosts.USER, "LANG": "C.UTF-8",
                     "PATH": "/usr/bin:/bin", "PYTHONPATH": str(bed.seen_inside(HERE)),
                     "PSD_LIB": str(bed.seen_inside(library_path())),
                     "PYTHONDONTWRITEBYTECODE": "1"}
        for rank, number in self.ranks.items():
            directory = self.top / f"rank{rank}"
            words = [bed.seen_inside(bed.bin_directory() / "psd_run"), "--rendezvous",
                     self.top / "meeting", "--rank", rank, "--size", 6, "--servers", 2, "-o", "logs",
                     "--on_worker_death=fail", *ENDS, "--", *shlex.split(bed.worker("--steps", 1_000_000))]
            variables["XDG_RUNTIME_DIR"] = str(directory)
            with open(directory / "stdout", "wb") as out, open(directory / "stderr", "wb") as err:
                self.members[rank] = subprocess.Popen(
                    self.host(number).inside("env", "-i", *(f"{k}={v}" for k, v in
                                                            variables.items()), *words,
                                             directory=directory),
                    stdin=subprocess.DEVNULL, stdout=out, stderr=err)
        self.directory = self.top / "rank0"
        self.wait_for_steps()

    def output(self):
        return (self.top / "rank0" / "stdout").read_text(errors="replace")

    def errors(self):
        return "\n".join(f"-- rank {rank}\n" + (self.top / f"rank{rank}" / "stderr").read_text(
            errors="replace")[-1500:] for rank in self.ranks)

    def member_pid(self, rank):
        return wait_for(lambda: hosts.first_child(self.members[rank].pid), 30, f"rank {rank} runs")

    def launcher_pid(self):
        return self.member_pid(0)

    def pid_of(self, place):
        kind, rank = place.rstrip("0123456789"), int(re.sub(r"\D", "", place) or 0)
        return hosts.first_child(self.member_pid(rank)) if kind == "agent" else self.member_pid(rank)

    def check_exit(self, case, code):
        """Without a server, or rank 0, the job waits for its return; otherwise all end alike."""
        if code != 70 or case.place in PROCESSES:
            return ""
        got = self.members[0].wait(END_S)
        return "" if got == code else f"exit code {got}"

    def is_mine(self, line):
        """The other psd_run wait for whoever is lost; nothing that they started may run on."""
        return "psd_run" not in line

    def stop(self):
        for member in self.members.values():
            if member.poll() is None and hosts.first_child(member.pid) is not None:
                try:
                    os.kill(hosts.first_child(member.pid), signal.SIGKILL)
                except ProcessLookupError:
                    pass
                member.send_signal(signal.SIGCONT)  # nsenter stops with its child
        for member in self.members.values():
            member.wait(60)

    kill = stop


WAYS = {way.name: way for way in (Ssh, Slurm, Rendezvous)}


# ----------------------------------------------------------------------------------------- field ---


class Field:
    """Four hosts and a launcher; Slurm on them once somebody wants it. Several of them do not meet."""

    def __init__(self):
        self.bed = hosts.Testbed(4)
        self.cluster = None
        self.shared = self.bed.directory / "meetings"
        self.shared.mkdir()

    @property
    def slurm(self):
        if self.cluster is None:
            self.cluster = slurm_bed.Slurm(self.bed)
        return self.cluster

    def processes(self):
        """What runs beside the hosts themselves, and beside Slurm: {host: {pid: command line}}."""
        daemons = ("munged ", "slurmctld ", "slurmd ", ": slurmscriptd",
                   "sh -c mkdir -p -m 755 /run/munge", "slurmstepd")
        found = {}
        for host in self.bed.hosts:
            left = {pid: line for pid, line in host.processes().items()
                    if line and not line.startswith(daemons)}
            if left:
                found[host.name] = left
        return found

    def mend(self):
        """Everybody is up, joined and empty."""
        for host in self.bed.hosts:
            if host.holder is None:
                host.boot()
                host.wait_until_up()
                self.bring_back(host)
            else:
                host.heal()
        for lines in self.processes().values():
            for pid in lines:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        wait_for(lambda: not self.processes(), 30, f"empty hosts: {self.processes()}")
        if self.cluster is not None:
            wait_for(self.cluster.is_ready, SLURM_S, "all nodes are idle")

    def bring_back(self, host):
        """A host that has just booted has its daemons again."""
        if self.cluster is None:
            return
        if host.number == 0:
            self.cluster.daemon(host, "munged")
            self.cluster.daemon(host, "slurmctld", "-D", "-c", "-f", self.cluster.config)
        else:
            self.cluster.add(host)

    def remove(self):
        self.bed.remove()


def wait_for_none(left, seconds):
    """Until nothing is left; what is, is named as it is in the end."""
    wait_for(lambda: not left(), seconds, lambda: f"left: {left()}")


def run_case(field, case):
    """(wrong, words, seconds): wrong is "" if all is as it must be."""
    job = WAYS[case.way](field)
    expected = job.expected(case)
    try:
        job.start()
        begin = time.monotonic()
        job.inject(case)
        if expected.what == "goes on":
            wrong = job.check_goes_on()
            job.stop()
        elif expected.what == "nothing left":
            wrong = ""
        else:
            wrong = job.check(case, expected)
        seconds = time.monotonic() - begin
        if case.place in job.returns:
            job.stop()
        wait_for_none(job.left, GONE_S)
        words = job.ends()[0][1] if job.ends() else ""
        return wrong, words if not wrong else f"{words}\n{job.story()}", seconds
    finally:
        job.kill()
        field.mend()


def all_cases():
    return [case for way in WAYS.values() for case in way.cases()]


# ------------------------------------------------------------------------------------------ pass ---


def read_results(path):
    """[(case name, run, right, line)]"""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        fields = line.split("\t")
        if len(fields) == 5:
            found.append((fields[0], int(fields[1]), fields[2] == "right", line))
    return found


def pending_units(results, runs, only):
    """Run by run, so that a pass that is interrupted has seen something of everything."""
    done = {(name, run) for name, run, _, _ in results}
    return [(case, run) for run in range(runs) for case in all_cases()
            if only in case.name and (case.name, run) not in done]


def be_interrupted(*_):
    raise KeyboardInterrupt


def take_interrupts():
    """In the background of a shell SIGINT comes ignored; hosts must go in any case."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, be_interrupted)


def work(number, units, lines, path):
    """One of several that share the work: a field of its own, until there is nothing left to do."""
    take_interrupts()
    field = None
    while True:
        unit = units.get()
        if unit is None:
            break
        case, run = unit
        try:
            field = field or Field()
            wrong, words, seconds = run_case(field, case)
        except KeyboardInterrupt:
            break
        except BaseException as error:  # whatever it is, this run was not right
            wrong, words, seconds = f"{error!r}"[:300], traceback.format_exc(), 0.0
            if field is not None:
                field.remove()
            field = None
        if wrong:
            story = path.with_suffix("") / f"{case.name.replace(' ', '-')}-{run}.txt"
            story.parent.mkdir(parents=True, exist_ok=True)
            story.write_text(f"{wrong}\n{words}\n")
        line = "\t".join([case.name, str(run), "wrong" if wrong else "right", f"{seconds:.1f}",
                          (wrong or words).replace("\t", " ").replace("\n", " ")[:300]])
        with lines, open(path, "a", encoding="utf-8") as out:
            out.write(line + "\n")
        print(f"{number}: {line}"[:200], flush=True)
    if field is not None:
        field.remove()


def print_table(path):
    """Right and wrong by way and fault; True if nothing was wrong."""
    counts = collections.defaultdict(lambda: [0, 0])
    results = read_results(path)
    for name, _, right, _ in results:
        way, fault, place = name.split()
        counts[way, fault, re.sub(r"\d", "", place)][0 if right else 1] += 1
    print(f"\n{'WAY':12}{'FAULT':8}{'PLACE':12}{'RIGHT':>6}{'WRONG':>6}")
    for (way, fault, place), (right, wrong) in sorted(counts.items()):
        print(f"{way:12}{fault:8}{place:12}{right:6}{wrong:6}")
    wrong = [line for _, _, right, line in results if not right]
    print(f"{'all':32}{len(results) - len(wrong):6}{len(wrong):6}")
    for line in wrong:
        print(f"wrong: {line}")
    return not wrong


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="")
    parser.add_argument("--out", type=pathlib.Path,
                        default=HERE.parents[1] / "build" / "faults.tsv")
    args = parser.parse_args()
    why = slurm_bed.missing()
    if why is not None:
        sys.exit(f"faults.py: {why}")
    pending = pending_units(read_results(args.out), args.runs, args.only)
    print(f"{len(pending)} of {len(all_cases()) * args.runs} runs to do; results in {args.out}")
    units, lines = multiprocessing.Queue(), multiprocessing.Lock()
    for unit in pending:
        units.put(unit)
    take_interrupts()
    workers = [multiprocessing.Process(target=work, args=(number, units, lines, args.out))
               for number in range(min(args.jobs, len(pending)))]
    for worker in workers:
        units.put(None)
        worker.start()
    try:
        for worker in workers:
            worker.join()
    except KeyboardInterrupt:
        for worker in workers:
            worker.terminate()  # each takes its hosts away
        for worker in workers:
            worker.join()
    sys.exit(0 if print_table(args.out) else 1)


if __name__ == "__main__":
    main()
