# SPDX-License-Identifier: Apache-2.0
"""A job on a Ray cluster, as the driver sees it."""

from __future__ import annotations

import re
import secrets
import time
from typing import Any, Callable, NamedTuple, Sequence

import ray
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from .._run import RunError
from .._version import __version__
from . import actors, causes
from .causes import Failure, Failures
from .seal import SECRET_BYTES, KeyPair

_LEAVE_S = 5.0  # for the daemons, when all workers are done
_PROBE_S = 1.0
# What ps_master tells of a member that is lost, and at the end of the job.
_LOSS = re.compile(r"(?:lost|end \d+) (worker|server) (\d+) \w+: (.*)")


class Place(NamedTuple):
    """A node of the cluster, by what people know of it."""

    node: str
    address: str

    def __str__(self) -> str:
        return f"node {self.node[:12]} ({self.address})"


class Member:
    """An actor of the job, seen from the driver."""

    def __init__(self, name: str, kind: type, **options: Any):
        self.name = name
        self.place: Place | None = None  # known when it has met us
        self.pid, self.public = 0, b""
        self.actor = ray.remote(kind).options(max_restarts=0, **options).remote(name)

    def __str__(self) -> str:
        return self.name if self.place is None else f"{self.name} (process {self.pid}) on {self.place}"

    def introduce(self, told: dict[str, Any]) -> None:
        """What it answers to meet()."""
        self.place = Place(told["node"], told["address"])
        self.pid, self.public = told["pid"], told["public"]
        if told["version"] != __version__:
            raise RunError(f"poseidon.ray: {self.place} has Poseidon {told['version']}, the driver has "
                           f"{__version__}: install the same on all nodes")

    def seal(self, secret: bytes) -> bytes:
        """For this member alone."""
        return KeyPair().seal(secret, self.public, self.name)


def run(function: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None,
        *, workers: int = 4, servers: int | None = None, resources: dict[str, float] | None = None,
        placement: str = "pack", timeout: float | None = None, start_timeout: float = 60.0,
        env: dict[str, str] | None = None) -> list[Any]:
    """Starts a job on the Ray cluster that this process is, or gets, connected to. Every worker is an actor that calls
    function(*args, **kwargs) after poseidon.init(). Returns what they returned, by rank.

    Functions, arguments and results travel as Ray has them: an argument that is an object of Ray's arrives as its
    value.

    servers        default: one on every node that has workers
    resources      what Ray reserves for each worker, such as {"CPU": 4, "GPU": 1}; default: one CPU
    placement      "pack": on as few nodes as possible; "spread": on as many
    timeout        seconds until the job is ended
    start_timeout  seconds for the cluster to have room, and for the members to gather
    env            variables of all members: settings of Poseidon (PSD_...) among them

    Raises RunError when a worker raises something, and when a member or its node is lost: it says which.
    """
    if not callable(function):
        raise TypeError(f"poseidon.ray.run: {function!r} is not a function")
    if workers < 1 or (servers is not None and servers < 1):
        raise ValueError("poseidon.ray.run: a job needs a worker and a server at least")
    if placement not in ("pack", "spread"):
        raise ValueError(f'poseidon.ray.run: placement is "pack" or "spread", not {placement!r}')
    if not ray.is_initialized():
        ray.init()
    job = _Job(start_timeout, {"PSD_LOG_LEVEL": "warn", **(env or {})})
    try:
        job.gather(workers, servers, resources or {"CPU": 1}, placement)
        job.start(function, tuple(args), dict(kwargs or {}))
        return job.attend(None if timeout is None else time.monotonic() + timeout)
    finally:
        job.end()


class _Job:
    def __init__(self, start_timeout: float, env: dict[str, str]):
        self._deadline = time.monotonic() + start_timeout
        self._env = env
        self._room: Any = None
        self._workers: list[Member] = []
        self._servers: list[Member] = []
        self._master: Member | None = None
        self._raylets: dict[str, tuple[str, int]] = {}  # where they listen, by node
        self._pending: dict[Any, Member] = {}  # calls under way
        self._results: dict[Member, Any] = {}
        self._failures = Failures()

    def _left_s(self) -> float:
        return max(0.1, self._deadline - time.monotonic())

    # ---- the members, and where they are

    def gather(self, workers: int, servers: int | None, resources: dict[str, float], placement: str
               ) -> None:
        """Makes the actors."""
        self._room = placement_group([resources] * workers, strategy=placement.upper())
        if not self._room.wait(self._left_s()):
            raise RunError(f"poseidon.ray: the cluster has no room for {workers} workers with {resources} each: of "
                           f"{ray.cluster_resources()} it has {ray.available_resources()} left")
        for rank in range(workers):
            where = PlacementGroupSchedulingStrategy(self._room, placement_group_bundle_index=rank)
            self._workers.append(Member(
                f"worker {rank}", actors.Worker, num_cpus=resources.get("CPU", 0),
                num_gpus=resources.get("GPU", 0), scheduling_strategy=where,
                resources={name: amount for name, amount in resources.items()
                           if name not in ("CPU", "GPU")}))
        # A member that the driver's node loses is lost with the driver: somebody is always there to tell.
        self._master = Member("the master", actors.Master, num_cpus=0, max_concurrency=2,
                              scheduling_strategy=NodeAffinitySchedulingStrategy(
                                  ray.get_runtime_context().get_node_id(), soft=False))
        self._meet([self._master, *self._workers])
        nodes = self._nodes()
        for index in range(len(nodes) if servers is None else servers):
            where = NodeAffinitySchedulingStrategy(nodes[index % len(nodes)], soft=False)
            self._servers.append(Member(f"server {index}", actors.Server, num_cpus=0,
                                        scheduling_strategy=where))
        self._meet(self._servers)
        self._raylets = {node["NodeID"]: (node["NodeManagerAddress"], node["NodeManagerPort"])
                         for node in ray.nodes()}

    def _members(self) -> list[Member]:
        return [*self._workers, *self._servers, *([self._master] if self._master else [])]

    def _nodes(self) -> list[str]:
        """Those that have workers, in the order of ranks."""
        return list(dict.fromkeys(worker.place.node for worker in self._workers if worker.place))

    def _meet(self, members: list[Member]) -> None:
        told = {member: member.actor.meet.remote() for member in members}
        for member, answer in told.items():
            member.introduce(self._get(answer, member, "to start"))

    def _get(self, answer: Any, member: Member, what: str) -> Any:
        """What a member answers while the job begins."""
        try:
            return ray.get(answer, timeout=self._left_s())
        except GetTimeoutError:
            raise RunError(f"poseidon.ray: {member} takes too long {what}") from None
        except (RayActorError, RayTaskError) as error:
            raise RunError(f"poseidon.ray: {member} failed {what}: {_words(error)}") from error

    # ---- the job begins

    def start(self, function: Callable[..., Any], args: tuple, kwargs: dict[str, Any]) -> None:
        """The daemons first. What the workers are told is what psd_run tells its own."""
        assert self._master is not None
        secret = secrets.token_bytes(SECRET_BYTES)
        seconds = self._left_s()
        address = self._get(self._master.actor.start.remote(
            self._master.seal(secret), self._env, len(self._workers), len(self._servers), seconds),
            self._master, "to start ps_master")
        started = {server: server.actor.start.remote(server.seal(secret), self._env, index, address,
                                                     seconds)
                   for index, server in enumerate(self._servers)}
        for server, answer in started.items():
            self._get(answer, server, "to start ps_server")
            self._pending[server.actor.wait.remote()] = server
        self._pending[self._master.actor.tiding.remote()] = self._master
        what = ray.put(function)  # once for all
        for rank, worker in enumerate(self._workers):
            variables = {**self._env, **self._variables(rank, address)}
            call = worker.actor.call.remote(worker.seal(secret), variables, seconds, what, *args, **kwargs)
            self._pending[call] = worker

    def _variables(self, rank: int, master: str) -> dict[str, str]:
        place, nodes = self._workers[rank].place, self._nodes()
        assert place is not None
        near = [number for number, worker in enumerate(self._workers)
                if worker.place and worker.place.node == place.node]
        told = {"PSD_MASTER_ADDRESS": master, "PSD_ROLE": "worker", "PSD_RANK": rank,
                "PSD_WORLD": len(self._workers), "PSD_WORLD_SIZE": len(self._workers),
                "PSD_NUM_WORKERS": len(self._workers), "PSD_NUM_SERVERS": len(self._servers),
                "PSD_LOCAL_RANK": near.index(rank), "PSD_LOCAL_SIZE": len(near),
                "PSD_NODE_RANK": nodes.index(place.node), "PSD_NUM_NODES": len(nodes),
                "PSD_ADDR": place.address, "PSD_RESTART_COUNT": 0}
        return {name: str(value) for name, value in told.items()}

    # ---- the job runs

    def attend(self, deadline: float | None) -> list[Any]:
        """Waits for the results, or for what went wrong."""
        while len(self._results) < len(self._workers):
            due = self._failures.due_s()
            if due == 0.0:
                raise self._error(self._failures.cause())
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                late = [worker.name for worker in self._workers if worker not in self._results]
                raise RunError(f"poseidon.ray: the time is up, and not done: {', '.join(late)}")
            waits = [wait for wait in (due, left) if wait is not None]
            done, _ = ray.wait(list(self._pending), timeout=min(waits, default=None))
            for answer in done:
                self._hear(answer, self._pending.pop(answer))
        ray.wait(list(self._pending), num_returns=len(self._pending), timeout=_LEAVE_S)
        return [self._results[worker] for worker in self._workers]

    def _hear(self, answer: Any, member: Member) -> None:
        try:
            told = ray.get(answer)
        except RayActorError as error:
            self._failures.add(Failure(causes.DIED, member, f"died: {_words(error)}"))
        except Exception as error:  # pylint: disable=broad-exception-caught
            self._failures.add(Failure(causes.RAISED, member, f"failed: {_words(error)}"))
        else:
            if member in self._workers:
                self._hear_worker(member, *told)
            elif isinstance(told, int):
                self._hear_end(member, told)
            else:
                self._hear_tiding(member, told)

    def _hear_worker(self, worker: Member, kind: str, value: Any) -> None:
        if kind == "returned":
            self._results[worker] = value
            return
        weight = causes.RAISED if kind == "raised" else causes.FOLLOWED
        last = value.rstrip().splitlines()[-1]
        self._failures.add(Failure(weight, worker, f"raised {last}", value))

    def _hear_end(self, member: Member, code: int) -> None:
        name = "ps_server" if member in self._servers else "ps_master"
        if code < 0:
            self._failures.add(Failure(causes.DIED, member, f"died: {name} was ended by signal {-code}"))
        elif code > 0:
            self._failures.add(Failure(causes.FOLLOWED, member, f"failed: {name} ended with code {code}"))

    def _hear_tiding(self, master: Member, line: str) -> None:
        self._pending[master.actor.tiding.remote()] = master
        loss = _LOSS.fullmatch(line)
        if loss is not None:
            role, number, reason = loss.groups()
            member = (self._workers if role == "worker" else self._servers)[int(number)]
            self._failures.add(Failure(causes.LOST, member, f"was lost: {reason}"))

    # ---- what went wrong

    def _error(self, cause: Failure) -> RunError:
        place = cause.member.place
        if cause.weight != causes.RAISED or not cause.traceback:
            if place is not None and self._is_lost(place):
                there = [member.name for member in self._members() if member.place == place]
                return RunError(f"poseidon.ray: {place} was lost: its raylet does not answer. "
                                f"There ran {', '.join(there)}; {cause.member.name} {cause.text}")
        error = RunError(f"poseidon.ray: {cause.member} {cause.text}\n{cause.traceback}".rstrip())
        if cause.member in self._workers:
            error.rank, error.traceback = self._workers.index(cause.member), cause.traceback
        return error

    def _is_lost(self, place: Place) -> bool:
        """Whether nobody answers for the node any more. The master is asked to look: it is inside the cluster, the
        driver need not be."""
        assert self._master is not None
        if place.node not in self._raylets:
            return False
        try:
            return not ray.get(self._master.actor.reaches.remote(*self._raylets[place.node], _PROBE_S),
                               timeout=2 * _PROBE_S)
        except (RayActorError, RayTaskError, GetTimeoutError):
            return False

    # ---- the end

    def end(self) -> None:
        """Nothing of the job stays on the cluster, however it ended."""
        for member in self._members():
            ray.kill(member.actor)
        if self._room is not None:
            remove_placement_group(self._room)


def _words(error: BaseException) -> str:
    """What Ray says, without its tables and its advice."""
    lines = str(getattr(error, "cause", None) or error).strip().splitlines()
    said = [line for line in lines if not line.startswith("\t") and "before finishing this task" not in line]
    return " ".join(said or lines).split(" Some common causes")[0]
