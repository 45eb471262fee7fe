# SPDX-License-Identifier: Apache-2.0
"""Nobody without the job's secret gets in, nobody with it gets further than its name allows, and
the secret is nowhere to be found."""

import collections
import contextlib
import os
import pathlib
import re
import secrets
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest

from helpers import (BRISK, HERE, INSECURE, NO_SECRET, SANITIZED, Job, free_port, make_secret,
                     marked_processes, program, python_worker, saved_digests, wait_for,
                     worker_environment)
from intruder import (TLS1_2, Wiretap, answer, connect, ends, greeting, handshake, record,
                      records)
from test_strangers import header

USAGE = 2
LISTENERS = ("master", "server:0.0", "server:0.1", "server:1.0", "server:1.1")


def read_secret(path):
    return bytes.fromhex(pathlib.Path(path).read_text())


# ------------------------------------------------------------------------- a job under attack ---


class Fortress:
    """A job of two workers and two servers with two lanes each. It waits at step 20 until the gate
    opens; rank 0 saves what was learned."""

    def __init__(self, start, directory, name="job", environment=None):
        self.directory = directory / name
        self.gate = directory / f"{name}.gate"
        self.job = start(*BRISK, "--workers", 2, "--servers", 2, "--lanes=2", "--",
                         *python_worker("--steps", 40, "--hold", f"20:{self.gate}",
                                        "--save", self.directory / "saved"),
                         name=name, environment=environment)

    def wait_until_held(self):
        self.job.wait_for_output("holding")
        self.before = self.nodes()
        self.ports = {"master": int(self.job.master_address().rpartition(":")[2])}
        for server in range(2):
            log = self.job.log(f"server{server}").decode()
            for lane, port in re.findall(r"lane (\d) of \d .*?tcp://127\.0\.0\.1:(\d+)", log):
                self.ports[f"server:{server}.{lane}"] = int(port)
        assert set(self.ports) == set(LISTENERS), self.ports

    def nodes(self):
        """Who is in the job, without what moves by itself."""
        return [(node["role"], node["rank"], node["state"], node["incarnation"])
                for node in self.job.nodes()]

    def warnings(self, listener):
        name = "master" if listener == "master" else f"server{listener[7]}"
        return re.findall(r" warn (?!AS-ROOT).*", self.job.log(name).decode())

    def refusals(self):
        """How many were refused, those included that a busy log only counts."""
        lines = [line for name in ("master", "server:0", "server:1")
                 for line in self.warnings(name)]
        hidden = [int(number) for line in lines
                  for number in re.findall(r"\((\d+) warnings before it", line)]
        return len(lines) + sum(hidden)

    def finish(self):
        """The digests of what the job has learned."""
        self.gate.touch()
        assert self.job.wait(60) == 0, self.job.stderr()
        assert self.job.stdout().count("closed") == 2
        return saved_digests(self.directory / "saved")


@pytest.fixture
def fortress(start, tmp_path, undisturbed):
    """At the end it must have learned what a job learns that nobody troubled."""
    castle = Fortress(start, tmp_path)
    castle.wait_until_held()
    yield castle
    assert castle.nodes() == castle.before
    assert castle.finish() == undisturbed


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    directory = tmp_path_factory.mktemp("undisturbed")
    castle = Fortress(lambda *arguments, name, environment: Job(
        directory / name, *arguments, environment=environment), directory)
    return castle.finish()


def say(listener, secret, names, **options):
    """An attack that is a handshake."""
    def attack(fortress):
        with connect(fortress.ports[listener]) as peer:
            assert not handshake(peer, secret, names.encode(), **options)
            expect_nothing_said(peer)
    return attack


def replay(listener, recording, source=None):
    """An attack that is a recording, sent from a socket that may have been chosen before."""
    def attack(fortress):
        with source or socket.socket() as peer:
            peer.settimeout(10)
            peer.connect(("127.0.0.1", fortress.ports[listener]))
            peer.sendall(recording)
            expect_nothing_said(peer)
    return attack


def expect_nothing_said(peer):
    """The listener ends the connection, and has said nothing that only members may hear."""
    said = answer(peer)
    assert b"PSD1" not in said, said


def record_worker(port):
    """What a worker says to a master, whose secret it has; it is refused as one too many. Sealed,
    because whoever stands between members that send plain bytes hears no more than a greeting."""
    tap = Wiretap(port)
    subprocess.run(python_worker("--open_timeout_ms", 3000), check=False, capture_output=True,
                   timeout=120, env={**os.environ, **worker_environment(),
                                    "PSD_MASTER_ADDRESS": f"tcp://127.0.0.1:{tap.port}",
                                    "PSD_RANK": "0", "PSD_FORCE_TLS": "1"})
    wait_for(lambda: tap.recordings and len(tap.recordings[0]) > 300, 30, "a recording")
    recording = bytes(tap.recordings[0])
    tap.close()
    return recording


def recordings(listener, port, secret):
    """Of somebody with that secret who was let in where it is the right one: two sealed connections
    to the listener of that name, and one in plain bytes from a socket that is still to be used."""
    hello = hello_frame(3, 0)
    source = socket.socket()
    source.bind(("127.0.0.1", 0))
    here = f"tcp://127.0.0.1:{source.getsockname()[1]} tcp://127.0.0.1:{port}"
    if secret is None:
        bare = greeting(None, b"psd1 tls worker:0 " + listener.encode())
        return (bare, hello), (bare, hello), (bare, hello), source
    return (*(record(secret, f"psd1 tls worker:0 {listener}".encode(), hello) for _ in range(2)),
            record(secret, f"psd1 plain worker:0 {listener} {here}".encode(), hello), source)


def attacks(listener, port, secret):
    """Every way in that is tried at one listener with one secret (None: none). All but the first
    must fail with the right one, too."""
    other = "server:0.0" if listener == "master" else "master"
    label = f"psd1 plain worker:0 {listener}"
    one, two, plain, source = recordings(listener, port, secret)
    return {
        "join": say(listener, secret, label),
        "replay": replay(listener, b"".join(one)),
        "replay in plain bytes": replay(listener, b"".join(plain), source),
        "splice": replay(listener, two[0] + one[1]),
        "reflection": say(listener, secret, f"psd1 plain {listener} {listener}"),
        "swapped role": say(listener, secret, f"psd1 plain {listener} worker:0"),
        "other door": say(listener, secret, f"psd1 plain worker:0 {other}"),
        "old scheme": say(listener, secret, label.replace("psd1", "psd0")),
        "old TLS": say(listener, secret, label, version=TLS1_2),
        "weaker mode": say(listener, secret, label.replace("plain", "none")),
    }


SECRETS = {
    "no": lambda true, other: None,
    "wrong": lambda true, other: secrets.token_bytes(32),
    "truncated": lambda true, other: true[:31] + (b"\0" if true[31] else b"\1"),
    "other job's": lambda true, other: other,
    "right": lambda true, other: true,
}


@pytest.mark.parametrize("kind", SECRETS)
def test_matrix(fortress, secret_file, tmp_path, kind):
    """If this fails, somebody without this job's secret gets in, or somebody with it who says what
    no member would say, or such attempts leave a trace in the job."""
    other_file = make_secret(tmp_path / "other")
    secret = SECRETS[kind](read_secret(secret_file), read_secret(other_file))
    attempts, before = 0, fortress.refusals()
    for listener in LISTENERS:
        for name, attack in attacks(listener, fortress.ports[listener], secret).items():
            if (kind, name) != ("right", "join"):
                attack(fortress)
                attempts += 1

    def all_told():
        nonlocal attempts
        for listener in LISTENERS:
            say(listener, None, "x")(fortress)  # a later line tells how many were hidden
            attempts += 1
        return fortress.refusals() - before == attempts

    wait_for(all_told, 60, lambda: "a line, or a count, for every attempt and for nothing else: "
             f"{fortress.refusals() - before} of {attempts}")
    for listener in LISTENERS:
        for line in fortress.warnings(listener):
            assert re.search(r"authentication (refused|failed): |too many attempts", line), line


def test_replays_are_told_from_members(fortress, secret_file):
    """If this fails, a recording is refused for some other reason than that it is one."""
    for listener in LISTENERS:
        recording = b"".join(record(read_secret(secret_file),
                                    f"psd1 tls worker:0 {listener}".encode(), hello_frame(3, 0)))
        # Its last words do not fit our answer, which is new; the second time there is none.
        for reason in ("authentication failed", "a recorded greeting, said again"):
            before = len(fortress.warnings(listener))
            replay(listener, recording)(fortress)
            wait_for(lambda: fortress.warnings(listener)[before:], 30, "a line in the log")
            assert reason in fortress.warnings(listener)[before]


@pytest.mark.smoke
def test_job_without_intruders_lets_members_in(fortress, secret_file):
    """If this fails, the intruder of these tests is refused for its clumsiness, not its secret."""
    secret = read_secret(secret_file)
    for listener in LISTENERS:
        for identity in (f"psd1 plain worker:0 {listener}", f"psd1 tls worker:0 {listener}"):
            with connect(fortress.ports[listener]) as peer:
                assert handshake(peer, secret, identity.encode())


def test_names_bind_members_too(fortress, secret_file):
    """If this fails, a key that proves one name, door or mode is good for another."""
    secret = read_secret(secret_file)
    for listener in LISTENERS:
        label = f"psd1 plain worker:0 {listener}"
        for key in ("psd1 plain worker:1 {}", "psd1 tls worker:0 {}", "psd1 plain observer {}",
                    "psd1 plain worker:0 {}x"):
            say(listener, secret, label, key_names=key.format(listener).encode())(fortress)
        for identity in (f"psd1 plain {listener} {listener}", "psd1 plain worker:0 server:9.9",
                         f"psd1 mac worker:0 {listener}", f"psd0 plain worker:0 {listener}"):
            say(listener, secret, identity)(fortress)


def hello_frame(role, rank, incarnation=0, job=0):
    """A HELLO, by default of somebody new."""
    body = struct.pack("<BIIIIQIQ", role, rank, 0, 1, incarnation, 77, 0, job)
    body += struct.pack("<HHQII", 0, 0, 0, 0, 0)
    return header(payload_bytes=len(body)) + body


@pytest.mark.parametrize("identity,hello", [
    ("observer", (3, 0)), ("worker:1", (3, 0)), ("worker:*", (3, 0)), ("worker:1", (2, 0)),
    ("observer", (2, 0)), ("worker:1", (3, 1, 1, 255)), ("worker:1@1.00000000000000ff", (3, 1)),
    ("worker:1@1.00000000000000ff", (3, 1, 2, 255)),
    ("worker:1@1.00000000000000ff", (3, 1, 1, 254))])
def test_hello_must_agree_with_the_proof(fortress, secret_file, identity, hello):
    """If this fails, a member proves one name, life or job and then speaks under another."""
    with connect(fortress.ports["master"]) as peer:
        assert handshake(peer, read_secret(secret_file), f"psd1 plain {identity} master".encode())
        peer.sendall(hello_frame(*hello))
        said = answer(peer)
    assert b"HELLO of role" in said
    wait_for(lambda: any(f"from {identity}" in line for line in fortress.warnings("master")), 30,
             "a line in the log")


def test_recorded_connections_of_every_listener(fortress):
    """If this fails, what a member said to one listener can be said again to it or to another."""
    recording = record_worker(fortress.ports["master"])
    for listener in LISTENERS:
        replay(listener, recording)(fortress)
        for cut in (3, 5, 100, 250, len(recording) - 1):
            with connect(fortress.ports[listener]) as peer:
                peer.sendall(recording[:cut])
    wait_for(lambda: any("authentication" in line for line in fortress.warnings("server:1")), 30,
             "a line in the log")


class Relay:
    """relay.py, from its first line to end()."""

    def __init__(self, kind, port):
        self.process = subprocess.Popen([sys.executable, str(HERE / "relay.py"), kind, str(port)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.port = int(self.process.stdout.readline())

    def end(self):
        """The bytes of each connection, to the listener and back."""
        said, _ = self.process.communicate(timeout=120)
        return [tuple(map(int, line.split()[1:])) for line in said.splitlines()]


@pytest.fixture
def relay():
    relays = []

    def begin(kind, port):
        relays.append(Relay(kind, port))
        return relays[-1]

    yield begin
    for one in relays:
        if one.process.poll() is None:
            one.process.kill()
            one.process.communicate()


RELAYED = "somebody relays this connection; through a forwarder set PSD_FORCE_TLS=1"


def test_relayed_members_are_refused_by_every_listener(fortress, secret_file, relay):
    """If this fails, another user of the machine who gets between a member and a listener owns all
    that they say after the handshake."""
    secret = read_secret(secret_file)
    for listener in LISTENERS:
        between = relay("pass", fortress.ports[listener])
        before = len(fortress.warnings(listener))
        with connect(between.port) as peer:
            claimed = ends(peer).decode()
            assert not handshake(peer, secret, f"psd1 plain worker:0 {listener}".encode())
        wait_for(lambda: any(RELAYED in line and claimed in line
                             for line in fortress.warnings(listener)[before:]), 5, "a line")
        with connect(between.port) as peer:  # whoever needs a forwarder has this
            assert handshake(peer, secret, f"psd1 tls worker:0 {listener}".encode())
        between.end()


def test_worker_led_to_a_relay(hand, relay):
    """If this fails, a worker that dials the wrong local port hands its gradients to whoever
    listens there."""
    master, server = hand.master(1), hand.server()
    between = relay("pass", hand.port)
    led = {"PSD_MASTER_ADDRESS": f"tcp://127.0.0.1:{between.port}"}
    worker = hand.worker(0, "--open_timeout_ms", 3000, environment=led)
    assert worker.wait() == 1
    assert "authentication failed" in worker.output()
    assert RELAYED in master.output()
    assert hand.worker(0, name="right", environment={}).wait() == 0
    assert [process.wait() for process in (master, server)] == [0, 0]


def test_port_taken_before_the_master(hand, relay, undisturbed, tmp_path):
    """If this fails, somebody who squats on a port until its master comes reads and changes the
    whole training; now the handshake that it relays fails, and the worker knocks again."""
    squatter = relay("squat", hand.port)
    saved = tmp_path / "saved"
    workers = [hand.worker(0, "--steps", 40, "--save", saved)]
    wait_for(lambda: connections_to(hand.port), 30, "the worker has knocked")
    wait_for(lambda: not is_listening(hand.port), 30, "the port is free")
    master = hand.master(2, 2, *BRISK)
    servers = [hand.server(index, "--lanes=2") for index in range(2)]
    workers.append(hand.worker(1, "--steps", 40))
    assert [process.wait(60) for process in (*workers, master, *servers)] == [0] * 5
    assert RELAYED in master.output()
    ((up, down),) = squatter.end()
    assert up > 200 and down < 100, "the worker's greeting, and an alert"
    assert saved_digests(saved) == undisturbed


def tcp_table():
    """Rows of /proc/net/tcp: local port, remote port, state."""
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return [(int(row[1].partition(":")[2], 16), int(row[2].partition(":")[2], 16), row[3])
            for row in rows]


def connections_to(port):
    return [row for row in tcp_table() if row[1] == port and row[2] == "01"]


def is_listening(port):
    return any(row[0] == port and row[2] == "0A" for row in tcp_table())


def test_server_connected_to_itself(hand):
    """If this fails, a server that is led back to its own door takes itself for the master."""
    tap = Wiretap(free_port())
    hand.port = tap.port
    server = hand.server(0, "--start_timeout_ms=2500")
    ports = wait_for(lambda: listening_ports(server.pid), 30, "a lane listens")
    tap.target = ("127.0.0.1", ports[0])
    server.wait_for_output("this is not master")
    assert server.wait() != 0
    tap.close()


def listening_ports(pid):
    """The ports on which a process listens, from /proc."""
    inodes = set()
    for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            inodes.add(os.readlink(entry).removeprefix("socket:[").removesuffix("]"))
        except OSError:
            continue
    rows = (line.split() for line in pathlib.Path("/proc/net/tcp").read_text().splitlines()[1:])
    return [int(row[1].partition(":")[2], 16) for row in rows
            if row[3] == "0A" and row[9] in inodes]


@pytest.mark.parametrize("kind", ["damage", "repeat", "drop", "splice"])
def test_sealed_bytes_changed_on_the_way(hand, undisturbed, tmp_path, kind):
    """If this fails, somebody on the way can change, repeat or leave out what a member says, or put
    in what another member said in its own, authenticated connection."""
    hand.environment = {"PSD_FORCE_TLS": "1"}
    gate = tmp_path / "gate"
    master = hand.master(2, 2, BRISK[0], "--lost_grace_ms=10000")  # it is cut, and has to come back
    servers = [hand.server(index, "--lanes=2") for index in range(2)]
    tap = Wiretap(hand.port)
    done = []

    def change(connection, offset, data):
        if done or offset < 4000 or connection > 0 or len(tap.recordings[1]) < 2000:
            return data
        done.append(kind)
        if kind == "damage":
            return data[:-1] + bytes([data[-1] ^ 1])
        if kind == "splice":
            return records(bytes(tap.recordings[1]))[-1] + data
        return data + data if kind == "repeat" else b""

    tap.change = change
    saved = tmp_path / "saved"
    workers = [hand.worker(rank, "--steps", 40, "--hold", f"20:{gate}", "--save", saved,
                           environment={"PSD_MASTER_ADDRESS": f"tcp://127.0.0.1:{tap.port}"})
               for rank in range(2)]
    wait_for(lambda: done, 30, "enough traffic to change")
    gate.touch()
    assert [worker.wait(60) for worker in workers] == [0, 0], workers[0].output()
    assert [process.wait() for process in (master, *servers)] == [0, 0, 0]
    assert len(tap.recordings) > len(workers), "the changed connection went on"
    assert saved_digests(saved) == undisturbed
    tap.close()


class Cutter:
    """Stands between a worker and a sealed listener. Of the first connections it passes on no more
    than the greeting and the listener's answer, and then resets the worker's end, so that the last
    words of its handshake meet a dead connection; the others are passed on whole."""

    def __init__(self, port, cuts):
        self.tap = Wiretap(port)
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.cut = 0
        threading.Thread(target=self.accept, args=(cuts,), daemon=True).start()

    def accept(self, cuts):
        with contextlib.suppress(OSError):
            while True:
                member, _ = self.listener.accept()
                other = socket.create_connection(self.target)
                if self.cut == cuts:
                    self.tap.join(member, other)
                    continue
                other.sendall(member.recv(65536))
                flight = other.recv(65536)
                member.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                member.send(flight)
                member.close()
                other.close()
                self.cut += 1

    def close(self):
        self.listener.close()
        self.tap.close()


def test_connection_reset_within_the_last_flight(hand):
    """If this fails, whoever resets a connection at the right moment ends a worker's process."""
    hand.environment = {"PSD_FORCE_TLS": "1"}
    master, server = hand.master(1), hand.server()
    cutter = Cutter(hand.port, 5)
    led = {"PSD_MASTER_ADDRESS": f"tcp://127.0.0.1:{cutter.port}"}
    worker = hand.worker(0, environment=led)
    assert [process.wait(60) for process in (worker, master, server)] == [0] * 3, worker.output()
    assert cutter.cut == 5
    cutter.close()


# ------------------------------------------------------------------------------- wrong secrets ---


def test_worker_with_another_jobs_secret(hand, tmp_path):
    """If this fails, a worker of another job joins this one, or is not told what is wrong."""
    other = make_secret(tmp_path / "other")
    master, server = hand.master(1), hand.server()
    worker = hand.worker(0, "--open_timeout_ms", 1500, environment={"PSD_SECRET_FILE": str(other)})
    assert worker.wait() == 1
    assert "do both have the secret of the same job?" in worker.output()
    assert "alert" not in worker.output()  # OpenSSL's word for it
    assert re.search("MEMBER-REFUSED .*authentication failed", master.output())
    assert hand.worker(0, name="right").wait() == 0
    assert [process.wait() for process in (master, server)] == [0, 0]


def test_server_with_another_jobs_secret(hand, tmp_path):
    """If this fails, a server of another job gets this one's gradients."""
    other = make_secret(tmp_path / "other")
    master = hand.master(1)
    server = hand.start("stranger", program("ps_server"), "--index", 0, "--master_address",
                        hand.address, "--secret_file", other, "--start_timeout_ms=1500")
    assert server.wait() != 0
    assert "do both have the secret of the same job?" in server.output()
    processes = [hand.server(), hand.worker(0), master]
    assert [process.wait() for process in processes] == [0, 0, 0]


def test_show_needs_the_secret(start, tmp_path):
    """If this fails, the table of nodes is a side door."""
    fortress = Fortress(start, tmp_path)
    fortress.wait_until_held()
    address = fortress.job.master_address()
    other = make_secret(tmp_path / "other")
    for environment, arguments in ((NO_SECRET, ()), ({**NO_SECRET, "PSD_INSECURE": "1"}, ()),
                                   ({}, ("--secret_file", other))):
        result = subprocess.run([program("psd_run"), "show", "--master", address, *arguments],
                                capture_output=True, text=True, timeout=120, check=False,
                                env={**os.environ, **environment})
        assert result.returncode != 0
        assert "worker" not in result.stdout
    fortress.finish()


# ------------------------------------------------------------- with and without a secret ---

# Three refusals, a quarter of a second apart, and the time that a busy machine takes to start them.
MISMATCH_S = 5


class Half:
    """The processes of a job, with a secret or without."""

    def __init__(self, hand, insecure):
        self.hand = hand
        self.switch = ("--insecure",) if insecure else ()
        self.environment = INSECURE if insecure else {}

    def run(self, start, *arguments, **options):
        self.hand.environment = self.environment
        return start(*arguments, **options)

    def master(self):
        return self.run(self.hand.master, 1, 1, *self.switch)

    def server(self, name):
        return self.run(self.hand.server, 0, *self.switch, "--lanes=2", name=name)

    def worker(self, name):
        return self.run(self.hand.worker, 0, name=name)


@pytest.mark.parametrize("insecure,text,told", [
    (True, "that job needs a secret: set PSD_SECRET_FILE", "it does without a secret"),
    (False, "that job runs --insecure, and this process has a secret", "it has a secret, and this"),
], ids=["without meets with", "with meets without"])
def test_mismatch_is_told_at_once(hand, insecure, text, told):
    """If this fails, half a job with a secret and half a job without wait a minute for each
    other."""
    members, strangers = Half(hand, not insecure), Half(hand, insecure)
    master = members.master()
    master.wait_for_output("LISTENING")
    begin = time.monotonic()
    server, worker = strangers.server("odd-server"), strangers.worker("odd-worker")
    assert server.wait(MISMATCH_S) == 77
    assert worker.wait(MISMATCH_S) == 1
    seconds = time.monotonic() - begin
    assert f"refused by the master at {hand.address}: " in server.output().splitlines()[-1]
    assert text in server.output().splitlines()[-1]
    assert "error PSD_ERR_REFUSED" in worker.output() and text in worker.output()
    lines = [line for line in master.output().splitlines() if told in line]
    assert lines and all(" warn MEMBER-REFUSED tcp://127.0.0.1:" in line for line in lines)
    by_second = collections.Counter(line.split()[0].partition(".")[0] for line in lines)
    assert len(by_second) <= seconds + 2
    assert max(by_second.values()) <= 2, lines  # the limiter's seconds are not the wall's
    processes = [members.server("server"), members.worker("worker"), master]
    assert [process.wait() for process in processes] == [0, 0, 0], master.output()


@pytest.mark.parametrize("insecure", [True, False])
def test_mismatch_of_show(hand, insecure):
    """If this fails, `psd_run show` waits for an answer that cannot come."""
    members, stranger = Half(hand, not insecure), Half(hand, insecure)
    master = members.master()
    master.wait_for_output("LISTENING")
    result = subprocess.run([program("psd_run"), "show", "--master", hand.address],
                            capture_output=True, text=True, timeout=MISMATCH_S, check=False,
                            env={**os.environ, **stranger.environment})
    assert result.returncode != 0
    assert "that job needs a secret" in result.stderr or "runs --insecure" in result.stderr
    master.signal(signal.SIGTERM)
    assert master.wait() == 143


# ---------------------------------------------------------------------- refusals that help ---


def expect_refusal(hand, *command, environment=None, texts=()):
    process = hand.start("program", *command, environment=environment)
    assert process.wait(60) == USAGE, process.output()
    for text in texts:
        assert text in process.output(), process.output()


DAEMONS = {
    "ps_master": ("--workers", 1, "--servers", 1, "--port", 0),
    "ps_server": ("--index", 0, "--master_address", "tcp://127.0.0.1:1"),
}


@pytest.mark.parametrize("daemon", DAEMONS)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o666])
def test_secret_file_that_others_may_read(hand, tmp_path, daemon, mode):
    """If this fails, a daemon uses a secret that is none."""
    path = make_secret(tmp_path / "secret")
    path.chmod(mode)
    for arguments, environment in ((("--secret_file", path), {}),
                                   ((), {"PSD_SECRET_FILE": str(path)})):
        expect_refusal(hand, program(daemon), *DAEMONS[daemon], *arguments, environment=environment,
                       texts=("others may read it", f"chmod 600 {path}"))
    expect_refusal(hand, program("psd_run"), "--secret_file", path, "true",
                   texts=("others may read it", f"chmod 600 {path}"))


@pytest.mark.parametrize("daemon", DAEMONS)
@pytest.mark.parametrize("address", ["10.1.2.3", "192.0.2.1", "2001:db8::1"])
def test_routable_address_without_a_secret(hand, daemon, address):
    """If this fails, whoever reaches the machine can join, read and poison."""
    for switch, more in ((), ()), (("--insecure",), ("--insecure is for loopback only",)):
        expect_refusal(hand, program(daemon), *DAEMONS[daemon], "--bind", address, *switch,
                       environment=NO_SECRET,
                       texts=(f"refusing to listen on {address} without a secret",
                              "psd_run secret FILE makes one", *more))


@pytest.mark.parametrize("daemon", DAEMONS)
@pytest.mark.parametrize("address", ["0.0.0.0", "::", "0"])
def test_every_address_at_once(hand, daemon, address):
    """If this fails, members are told to connect to an address that is none."""
    expect_refusal(hand, program(daemon), *DAEMONS[daemon], "--bind", address,
                   texts=(f"refusing to listen on {address}", "one address of this machine"))


@pytest.mark.parametrize("daemon", DAEMONS)
def test_no_secret_at_all(hand, daemon):
    """If this fails, other users of the machine can join, or nobody is told how to begin."""
    expect_refusal(hand, program(daemon), *DAEMONS[daemon], environment=NO_SECRET,
                   texts=("no secret", "psd_run secret FILE makes one", "or --insecure"))


def test_worker_without_a_secret(hand):
    """If this fails, a worker falls back to no authentication by itself."""
    worker = hand.worker(0, environment=NO_SECRET)
    assert worker.wait(60) == 1
    assert "no secret for the job" in worker.output() and "PSD_SECRET_FILE" in worker.output()


def test_insecure_worker_and_a_routable_master(hand):
    """If this fails, PSD_INSECURE sends gradients to whoever answers on a network."""
    worker = hand.worker(0, environment={**NO_SECRET, "PSD_INSECURE": "1",
                                         "PSD_MASTER_ADDRESS": "tcp://192.0.2.1:5555"})
    assert worker.wait(60) == 1
    assert "not a loopback address; set PSD_SECRET_FILE" in worker.output()


def test_secret_file_that_is_a_link(hand, tmp_path, secret_file):
    """If this fails, "too many levels of symbolic links" is all that people hear."""
    link = tmp_path / "link"
    link.symlink_to(secret_file)
    for daemon, arguments in DAEMONS.items():
        expect_refusal(hand, program(daemon), *arguments, "--secret_file", link,
                       texts=(f"secret file {link}: is a symbolic link: refused",))


def test_insecure_server_and_a_routable_master(hand):
    """If this fails, --insecure sends parameters to whoever answers on a network."""
    expect_refusal(hand, program("ps_server"), "--index", 0, "--master_address",
                   "tcp://192.0.2.2:5577", "--insecure", environment=NO_SECRET,
                   texts=("--insecure: tcp://192.0.2.2:5577 is not a loopback address",
                          "set PSD_SECRET_FILE"))


@pytest.mark.parametrize("daemon", DAEMONS)
def test_insecure_and_a_secret(hand, daemon, secret_file):
    """If this fails, one of two contradicting wishes is granted, and nobody knows which."""
    for arguments, environment, text in (
            ((), {}, "PSD_SECRET_FILE"),
            (("--secret_file", secret_file), NO_SECRET, "--secret_file"),
            ((), {"PSD_SECRET_FILE": "", "PSD_SECRET_FD": "7"}, "PSD_SECRET_FD")):
        expect_refusal(hand, program(daemon), *DAEMONS[daemon], "--insecure", *arguments,
                       environment=environment,
                       texts=(f"--insecure and {text} contradict each other",))


@pytest.mark.parametrize("daemon", DAEMONS)
def test_insecure_is_told(hand, daemon):
    """If this fails, nobody sees in a log that the job was open to everybody."""
    process = hand.start("daemon", program(daemon), *DAEMONS[daemon], "--insecure",
                         environment=NO_SECRET)
    process.wait_for_output("HARDENED")
    assert len(re.findall(r" warn INSECURE .*every user of this machine", process.output())) == 1
    process.signal(signal.SIGTERM)
    assert process.wait(60) == 143


@pytest.mark.parametrize("value,text", [
    ("0", "no secret for the job"), ("", "no secret for the job"),
    ("yes", "PSD_INSECURE=yes: must be 1 (on) or 0 (off)"),
    ("off", "PSD_INSECURE=off: must be 1 (on) or 0 (off)")])
def test_insecure_is_on_with_1_alone(hand, value, text):
    """If this fails, PSD_INSECURE=0 turns authentication off."""
    worker = hand.worker(0, environment={**NO_SECRET, "PSD_INSECURE": value})
    assert worker.wait(60) == 1
    assert f"error PSD_ERR_INVALID: {text}" in worker.output()


def test_insecure_worker_with_a_secret(hand):
    """If this fails, a worker chooses by itself which of two contradicting variables counts."""
    worker = hand.worker(0, environment={"PSD_INSECURE": "1"})
    assert worker.wait(60) == 1
    assert "PSD_INSECURE=1 and PSD_SECRET_FILE contradict each other" in worker.output()


@pytest.mark.parametrize("name", ["ps_master", "ps_server", "worker"])
def test_force_tls_is_on_with_1_alone(hand, name):
    """If this fails, PSD_FORCE_TLS=0 seals, or a word that means "on" to somebody does not."""
    environment = {"PSD_FORCE_TLS": "on"}
    text = "PSD_FORCE_TLS=on: must be 1 (on) or 0 (off)"
    if name in DAEMONS:
        expect_refusal(hand, program(name), *DAEMONS[name], environment=environment, texts=(text,))
        return
    worker = hand.worker(0, environment=environment)
    assert worker.wait(60) == 1
    assert f"error PSD_ERR_INVALID: {text}" in worker.output()


@pytest.mark.parametrize("variable,meant", [
    ("PSD_SECRETFILE", "PSD_SECRET_FILE"), ("PSD_INSECRUE", "PSD_INSECURE")])
def test_misspelt_secret_of_a_worker(hand, variable, meant):
    """If this fails, a worker says "no secret" to somebody who has set one, by another name."""
    worker = hand.worker(0, environment={**NO_SECRET, variable: "1"})
    assert worker.wait(60) == 1
    assert f"{variable} is set: did you mean {meant}?" in worker.output()


def test_secret_files_are_made_safely(tmp_path):
    """If this fails, `psd_run secret` overwrites a secret, or makes one that others can read."""
    path = make_secret(tmp_path / "secret")
    assert path.stat().st_mode & 0o7777 == 0o600
    before = path.read_text()
    again = subprocess.run([program("psd_run"), "secret", str(path)], capture_output=True,
                           text=True, check=False)
    assert again.returncode != 0 and "File exists" in again.stderr
    assert path.read_text() == before
    assert before != make_secret(tmp_path / "another").read_text()


# ------------------------------------------------------------------- where the secret is not ---


def needles(secret):
    return [secret, secret.hex().encode(), secret.hex().upper().encode()]


def expect_absent(secret, data, where):
    for needle in needles(secret):
        assert needle not in data, f"the secret is in {where}"


def dumped_memory(pid):
    """What a core file of a process would hold: all that is not marked as left out."""
    maps = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", pathlib.Path(f"/proc/{pid}/smaps").read_text(),
                    flags=re.MULTILINE)[1:]
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for text in maps:
            first, last, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", text).groups()
            if "r" not in rights or re.search(r"^VmFlags:.* dd\b", text, re.MULTILINE):
                continue
            try:
                memory.seek(int(first, 16))
                yield text.splitlines()[0], memory.read(int(last, 16) - int(first, 16))
            except (OSError, ValueError, OverflowError):
                continue  # a page of the kernel's own


def descriptor_secret(pid):
    """The secret as a process of the job finds it: through PSD_SECRET_FD."""
    environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    (number,) = [int(word.partition(b"=")[2]) for word in environment
                 if word.startswith(b"PSD_SECRET_FD=")]
    with open(f"/proc/{pid}/fd/{number}", "rb") as file:
        return file.read()


@pytest.mark.parametrize("drawn", [True, False], ids=["drawn by psd_run", "from a file"])
def test_secret_is_nowhere_to_be_found(start, tmp_path, secret_file, drawn):
    """If this fails, `ps`, a log, a result or a core file gives the job away."""
    fortress = Fortress(start, tmp_path, environment=NO_SECRET if drawn else {})
    fortress.job.wait_for_output("holding")
    processes = marked_processes(fortress.job.mark)
    assert len(processes) >= 7
    secret = descriptor_secret(fortress.job.pid_of("server0"))
    assert len(secret) == 32
    assert drawn or secret == read_secret(secret_file)
    searched = 0
    for pid in processes:
        try:
            for name in ("cmdline", "environ"):
                expect_absent(secret, pathlib.Path(f"/proc/{pid}/{name}").read_bytes(),
                              f"{pid} {name}")
            if os.geteuid() == 0:
                for where, memory in dumped_memory(pid):
                    expect_absent(secret, memory, f"memory of {processes[pid]} at {where}")
            searched += 1
        except (FileNotFoundError, ProcessLookupError):
            pass  # a shell's child that has ended since it was listed
    assert searched >= 7
    fortress.finish()
    files = [path for path in fortress.job.directory.rglob("*") if path.is_file()]
    assert {"poseidon_run.log", "stdout", "stderr", "server0.log"} <= {path.name for path in files}
    for path in files:
        expect_absent(secret, path.read_bytes(), path)


def core_files(directory):
    """The core files of a process that ran there; skips where the kernel writes none to a file."""
    pattern = pathlib.Path("/proc/sys/kernel/core_pattern").read_text().strip()
    if SANITIZED:
        pytest.skip("sanitizers switch core files off")
    if pattern.startswith("|") or "/" in pattern:
        pytest.skip(f"this system sends core files elsewhere: {pattern}")
    return list(directory.glob(pattern.partition("%")[0] + "*"))


def crashing(directory, *command):
    """A command that runs in a directory of its own, where it may leave a core file."""
    directory.mkdir()
    return ("sh", "-c", f'ulimit -c unlimited && cd {directory} && exec "$0" "$@"', *command)


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
def test_core_file_without_the_secret(hand, secret_file, tmp_path, sealed):
    """If this fails, a crash leaves the secret on the disk."""
    core_files(tmp_path)
    secret = read_secret(secret_file)
    hand.environment = {"PSD_FORCE_TLS": "1"} if sealed else {}
    places = {name: tmp_path / name for name in ("master", "server", "worker")}
    master = hand.start("master", *crashing(
        places["master"], program("ps_master"), "--workers", 1, "--servers", 1, "--port", hand.port,
        "--harden=off"))
    server = hand.start("server", *crashing(
        places["server"], program("ps_server"), "--index", 0, "--master_address", hand.address,
        "--lanes=1", "--harden=off"))
    worker = hand.start("worker", *crashing(
        places["worker"], *python_worker("--steps", 9, "--hold", f"5:{tmp_path / 'gate'}")),
        environment={"PSD_MASTER_ADDRESS": hand.address, "PSD_RANK": "0"})
    worker.wait_for_output("holding")
    for process in (master, server, worker):  # before any of them learns of the others' death
        process.signal(signal.SIGSTOP)
    for process in (master, server, worker):
        process.signal(signal.SIGABRT)
        process.signal(signal.SIGCONT)
    assert [process.wait() for process in (master, server, worker)] == [134] * 3
    for name, directory in places.items():
        (core,) = core_files(directory)
        memory = core.read_bytes()
        assert b"table0" in memory, "not all of the memory"
        expect_absent(secret, memory, f"the core of the {name}")
        print(f"{name}: a core of {len(memory) >> 10} KiB")


def test_hardened_daemon_leaves_no_core(hand, tmp_path):
    """If this fails, hardening does not keep a daemon's memory off the disk."""
    core_files(tmp_path)
    place = tmp_path / "place"
    master = hand.start("master", *crashing(place, program("ps_master"), "--workers", 1,
                                            "--servers", 1, "--port", hand.port))
    master.wait_for_output("LISTENING")
    master.signal(signal.SIGABRT)
    assert master.wait() == 134
    assert core_files(place) == []


def test_environment_holds_numbers_only(start):
    """If this fails, PSD_SECRET_FD is more than the number of a descriptor."""
    job = start("--workers", 1, "--servers", 1, "--", "sh", "-c",
                'env; cat /proc/$$/cmdline; exec "$0" "$@"', *python_worker("--steps", 1),
                environment=NO_SECRET)
    assert job.wait() == 0
    said = re.sub("values [0-9a-f]{64}", "", job.stdout())  # the worker's own digest
    assert re.search(r"PSD_SECRET_FD=\d+$", said, re.MULTILINE)
    assert "PSD_SECRET_FILE=/" not in said
    assert not re.search(r"\b[0-9a-f]{64}\b", said)


def test_a_wrapper_that_closes_descriptors_is_named(start):
    """If this fails, somebody who starts workers by a script of his own is told of a memory file, and not what to do."""
    wrapper = "import subprocess, sys; sys.exit(subprocess.run(sys.argv[1:]).returncode)"
    job = start(*BRISK, "--workers", 1, "--servers", 1, "--", sys.executable, "-c", wrapper, *python_worker("--steps", 3))
    assert job.wait(60) != 0
    assert re.search(r"descriptor \d+ \(PSD_SECRET_FD\).* is not open: what started this process has closed it, or it was taken for something else\. "
                     r"Let it pass that on \(Python's subprocess: pass_fds=", job.stderr()), job.stderr()
    passing = wrapper.replace("argv[1:])", "argv[1:], pass_fds=[int(os.environ['PSD_SECRET_FD'])])").replace("import ", "import os, ")
    job = start(*BRISK, "--workers", 1, "--servers", 1, "--", sys.executable, "-c", passing, *python_worker("--steps", 3))
    assert job.wait(60) == 0, job.stderr()
