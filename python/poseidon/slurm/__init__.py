# SPDX-License-Identifier: Apache-2.0
"""Which task of a Slurm step this is, and where all of them are, from Slurm's variables alone.

    from poseidon.slurm import server_dictionary

    cluster, task_type, task_index = server_dictionary(["ps", "worker", "worker", "worker"])
    # {"ps": ["10.0.0.1:12000"], "worker": ["10.0.0.1:12001", "10.0.0.2:12000", ...]}, "worker", 2

    done_queues               parameter servers of TensorFlow 1 that end with the workers
    ServerDictionary,         both by the names of tf_for_slurm
    DistributedTFQueueHook

Roles are given node by node: with M tasks on the first node, the first M are its. Nodes may have
different numbers of tasks, and tasks any distribution. Ports are those that `srun --resv-ports`
reserved, else a range that follows from the number of the job. `psd_run --print_cluster` prints the
same."""

import os
import re
import socket

NODES_MAX = 65536
FIRST_PORT, LAST_PORT, PORT_STRIDE = 20000, 32767, 997

_RANGE = re.compile(r"(\d+)(?:-(\d+))?$")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?$")


def _fail(text, column, why):
    raise ValueError(f"{text!r}: {why} (column {column + 1})")


def _items(text):
    """(column, item) of a list; commas in brackets do not separate."""
    begin, depth = 0, 0
    for at, letter in enumerate(text + ","):
        if letter == "," and (depth == 0 or at == len(text)):
            if at == begin:
                _fail(text, at, "has an empty name")
            yield begin, text[begin:at]
            begin = at + 1
        depth += {"[": 1, "]": -1}.get(letter, 0) if depth >= 0 else 0


def _numbers(text, begin, inside):
    """The numbers of a bracket, as text, padded to the width of each lower bound."""
    column = begin
    for piece in inside.split(","):
        match = _RANGE.match(piece)
        if match is None:
            _fail(text, column, "has brackets with something that is no number")
        low, high = match.group(1), match.group(2) or match.group(1)
        if int(high) < int(low):
            _fail(text, column, "has a range that runs backwards")
        if int(high) - int(low) >= NODES_MAX:
            _fail(text, column, f"means more than {NODES_MAX} names")
        for number in range(int(low), int(high) + 1):
            yield str(number).zfill(len(low))
        column += len(piece) + 1


def expand_hostlist(text):
    """["n01", "n02"] of "n[01-02]": order and repetitions are kept, the left bracket is slowest."""
    names = []
    for begin, item in _items(text):
        found, at = [""], 0
        for match in re.finditer(r"\[([^]]*)\]", item):
            before = item[at:match.start()]
            if "]" in before:
                _fail(text, begin + at + before.index("]"), "has a bracket that was not opened")
            numbers = list(_numbers(text, begin + match.start() + 1, match.group(1)))
            if len(found) * len(numbers) > NODES_MAX:
                _fail(text, begin, f"means more than {NODES_MAX} names")
            found = [name + before + number for name in found for number in numbers]
            at = match.end()
        rest = item[at:]
        for bracket, why in (("[", "is not closed"), ("]", "was not opened")):
            if bracket in rest:
                _fail(text, begin + at + rest.index(bracket), f"has a bracket that {why}")
        names += [name + rest for name in found]
        if len(names) > NODES_MAX:
            _fail(text, begin, f"means more than {NODES_MAX} names")
    return names


def expand_counts(text):
    """[3, 3, 2, 1] of "3(x2),2,1"."""
    counts = []
    for begin, item in _items(text):
        match = _COUNT.match(item)
        if match is None or int(match.group(1)) == 0:
            _fail(text, begin, "has something that is no number of tasks")
        times = int(match.group(2) or 1)
        if len(counts) + times > NODES_MAX:
            _fail(text, begin, f"means more than {NODES_MAX} nodes")
        counts += [int(match.group(1))] * times
    return counts


def expand_ports(text):
    """[12000, 12005, 12006] of "12000,12005-12006"."""
    ports = []
    for begin, item in _items(text):
        match = _RANGE.match(item)
        if match is None:
            _fail(text, begin, "has something that is no port")
        low, high = int(match.group(1)), int(match.group(2) or match.group(1))
        if not 0 < low <= high <= 65535:
            _fail(text, begin, "has ports that are out of range")
        ports += range(low, high + 1)
    return ports


class _Step:
    """What Slurm says about the step, or about the job where there is none."""

    def __init__(self, environment):
        self.environment = environment
        nodes = self.first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")
        if nodes is None:
            raise LookupError("no SLURM_STEP_NODELIST and no SLURM_JOB_NODELIST: this process was "
                              "not started by Slurm")
        self.nodes = expand_hostlist(nodes) if nodes not in ("", "(null)") else ["localhost"]
        counts = self.first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
        if counts is None:
            raise LookupError("SLURM_TASKS_PER_NODE is not set: give srun --ntasks-per-node")
        self.counts = expand_counts(counts)
        if len(self.counts) != len(self.nodes):
            raise ValueError(f"tasks of {len(self.counts)} nodes ({counts}), but there are "
                             f"{len(self.nodes)} ({nodes})")
        self.node = int(environment.get("SLURM_NODEID", 0))
        self.local = int(environment.get("SLURM_LOCALID", 0))

    def first(self, *names):
        return next((self.environment[name] for name in names if name in self.environment), None)

    def addresses(self):
        """One for each node, by the number of the node."""
        given = self.environment.get("TFSERVER")
        if given is not None:
            addresses = given.replace(",", " ").split()
            if len(addresses) != len(self.nodes):
                raise ValueError(f"TFSERVER has {len(addresses)} addresses, but there are "
                                 f"{len(self.nodes)} nodes")
            return addresses
        found = [_resolve(name) for name in self.nodes]
        if found[self.node] is None:
            found[self.node] = self.own_address(found)
        for name, address in zip(self.nodes, found):
            if address is None:
                raise OSError(f"no address of node {name} is known here; give all of them in "
                              "TFSERVER")
        return found

    def own_address(self, others):
        """The own name may mean loopback: then the way to another node tells the address."""
        towards = [address for address in others if address is not None]
        towards.append(self.environment.get("SLURM_LAUNCH_NODE_IPADDR"))
        return _source(towards[0]) if towards[0] is not None else None

    def ports(self):
        """One for each task of a node, the same on all nodes."""
        reserved = self.environment.get("SLURM_STEP_RESV_PORTS")
        if reserved not in (None, "", "(null)"):
            ports = expand_ports(reserved)
            if len(ports) < max(self.counts):
                raise ValueError(f"{len(ports)} ports are reserved on every node, but one has "
                                 f"{max(self.counts)} tasks: srun --resv-ports={max(self.counts)}")
            return ports
        job = int(self.first("SLURM_JOB_ID", "SLURM_JOBID") or 0)
        size = LAST_PORT - FIRST_PORT + 1
        return [FIRST_PORT + (job * PORT_STRIDE + local) % size for local in range(max(self.counts))]


def _resolve(name):
    try:
        found = socket.getaddrinfo(name, 9, type=socket.SOCK_STREAM)
    except OSError:
        return None
    address = found[0][4][0] if found else None
    return None if address is None or address.startswith("127.") or address == "::1" else address


def _source(address):
    """The address this machine would use to talk to another. No packet is sent."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
            return probe.getsockname()[0]
        except OSError:
            return None


def server_dictionary(tasks, environment=None):
    """(cluster, task_type, task_index) of this task: where all are, by role, and which it is.

    tasks: "ps" or "worker" for each, node by node. ValueError, with both numbers, when they are not
    as many as the step has."""
    step = _Step(os.environ if environment is None else environment)
    if len(tasks) != sum(step.counts):
        raise ValueError(f"the list of roles has {len(tasks)} entries, but there are "
                         f"{sum(step.counts)} tasks (SLURM_NTASKS)")
    for task in tasks:
        if task not in ("ps", "worker"):
            raise ValueError(f"{task!r} is no role; \"ps\" and \"worker\" are")
    addresses, ports = step.addresses(), step.ports()
    cluster = {"ps": [], "worker": []}
    own = None
    roles = iter(tasks)
    for node, count in enumerate(step.counts):
        host = f"[{addresses[node]}]" if ":" in addresses[node] else addresses[node]
        for local in range(count):
            role = next(roles)
            if (node, local) == (step.node, step.local):
                own = role, len(cluster[role])
            cluster[role].append(f"{host}:{ports[local]}")
    if own is None:
        raise ValueError(f"SLURM_NODEID={step.node} and SLURM_LOCALID={step.local} name no task of "
                         "this step")
    return cluster, *own


from .ServerDictionary import GetServerDictionary  # noqa: E402  needs server_dictionary

__all__ = ["GetServerDictionary", "expand_counts", "expand_hostlist", "expand_ports",
           "server_dictionary"]
