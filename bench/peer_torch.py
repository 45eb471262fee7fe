#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A process of a PyTorch peer that follows psd_bench's orders.

    peer_torch.py gloo|rpc|rpc_tcp RANK WORKERS CONTROL STORE LIBRARY

gloo: dist.all_reduce of the gradients among WORKERS ranks. It adds in place, so without touching
between calls the sum of sums grows; the gradient is written anew every few rounds, and the check
knows. What ranks would do with the sum, apply it, is not part of the time.

rpc: rank 0 is a parameter server in the way of PyTorch's own tutorial: workers call it with their
gradients, it adds them, applies the sum when the last has come, and answers all with the values.
Ranks 1..WORKERS are the workers. On one host it moves tensors through shared memory; rpc_tcp: not.

Orders and answers are those of team.h; LIBRARY is peer_tensor.c, so that gradients are written, read
and checked by the same code on all sides.
"""
import ctypes
import os
import socket
import struct
import sys
import threading
import time

os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
os.environ.setdefault("TP_SOCKET_IFNAME", "lo")

import torch
import torch.distributed as dist
from torch.distributed import rpc

ORDER = struct.Struct("=7Q")
ANSWER = struct.Struct("=9Qi508s")
TOUCH, BACKWARD = 1 << 0, 1 << 10
PARTS_MAX = 192
PHASES = 8
REWRITE = 32  # rounds of all_reduce after which the gradient is written anew
RATE = 2.0**-10
CORRUPT = -26


class Part(ctypes.Structure):
    """struct model_part of models.h: gradients that travel together."""

    _fields_ = [("first", ctypes.c_size_t), ("count", ctypes.c_size_t), ("ready", ctypes.c_double)]


class Library:
    """peer_tensor.c, for tensors of float32."""

    def __init__(self, path):
        library = ctypes.CDLL(path)
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
        library.peer_write.argtypes = [pointer, size, number, number]
        library.peer_read.argtypes = [pointer, size]
        library.peer_read.restype = number
        library.peer_model_create.argtypes = [ctypes.c_int, number, size]
        library.peer_model_create.restype = pointer
        library.peer_model_destroy.argtypes = [pointer]
        library.peer_model_round.argtypes = [pointer, number, ctypes.c_float]
        library.peer_model_read.argtypes = [pointer]
        library.peer_model_read.restype = number
        library.peer_check.argtypes = [pointer, pointer, ctypes.c_char_p]
        library.peer_buckets.argtypes = [ctypes.c_uint64, pointer]
        library.peer_buckets.restype = size
        library.peer_await.argtypes = [ctypes.c_uint64, ctypes.c_double]
        library.peer_backward_ns.restype = ctypes.c_uint64
        self.library = library

    def buckets(self, count):
        parts = (Part * PARTS_MAX)()
        return list(parts)[:self.library.peer_buckets(4 * count, parts)]

    def write(self, tensor, rank, phase):
        self.library.peer_write(tensor.data_ptr(), tensor.numel(), rank, phase)

    def read(self, tensor):
        return self.library.peer_read(tensor.data_ptr(), tensor.numel())


class Model:
    """What the values must be."""

    def __init__(self, library, rule, workers, count):
        self.library = library.library
        self.handle = self.library.peer_model_create(rule, workers, count)

    def close(self):
        self.library.peer_model_destroy(self.handle)

    def round(self, phase, factor):
        self.library.peer_model_round(self.handle, phase, factor)

    def read(self):
        return self.library.peer_model_read(self.handle)

    def check(self, tensor):
        text = ctypes.create_string_buffer(508)
        if self.library.peer_check(self.handle, tensor.data_ptr(), text) != 0:
            raise ValueError(text.value.decode())


class Gloo:
    rule = 1  # the sum

    def __init__(self, rank, workers, store):
        self.rank, self.workers = rank, workers
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank,
                                world_size=workers)

    def prepare(self, count):
        self.tensor = torch.zeros(count, dtype=torch.float32)

    def barrier(self):
        dist.barrier()

    def writes(self, round_, touch):
        return touch or (round_ > 0 and round_ % REWRITE == 0)

    def factor(self, round_, touch):
        return 1.0 if touch else float(self.workers) ** (round_ % REWRITE)

    def gradient(self):
        return self.tensor

    def exchange(self):
        dist.all_reduce(self.tensor)
        return self.tensor

    def exchange_buckets(self, library):
        """As DistributedDataParallel does, when backward has made them."""
        began, works = time.monotonic_ns(), []
        for part in library.buckets(self.tensor.numel()):
            library.library.peer_await(began, part.ready)
            works.append(dist.all_reduce(self.tensor[part.first:part.first + part.count], async_op=True))
        for work in works:
            work.wait()
        return self.tensor

    def close(self):
        dist.destroy_process_group()


class ParameterServer:
    """Lives in rank 0 of rpc; tables by their number of elements."""

    def __init__(self, workers, count):
        self.workers = workers
        self.values = torch.zeros(count, dtype=torch.float32)
        self.sum = None
        self.arrived = 0
        self.future = torch.futures.Future()
        self.lock = threading.Lock()

    def update(self, gradient):
        with self.lock:
            self.sum = gradient if self.sum is None else self.sum.add_(gradient)
            self.arrived += 1
            future = self.future
            if self.arrived == self.workers:
                self.values.sub_(self.sum, alpha=RATE)
                self.sum, self.arrived, self.future = None, 0, torch.futures.Future()
                future.set_result(self.values)
            return future


servers = {}


def create_table(workers, count):
    servers.setdefault(count, ParameterServer(workers, count))


@rpc.functions.async_execution
def push_pull(gradient):
    return servers[gradient.numel()].update(gradient)


def start_rpc(name, rank, workers, store, tcp):
    only_tcp = {"_transports": ["uv"], "_channels": ["basic"]} if tcp else {}
    options = rpc.TensorPipeRpcBackendOptions(init_method=f"file://{store}", rpc_timeout=120,
                                              **only_tcp)
    rpc.init_rpc(name, rank=rank, world_size=workers + 1, rpc_backend_options=options)


class Rpc:
    rule = 0  # gradient descent

    def __init__(self, rank, workers, store, tcp):
        self.rank, self.workers = rank, workers
        start_rpc(f"worker{rank}", rank + 1, workers, store, tcp)

    def prepare(self, count):
        rpc.rpc_sync("server", create_table, args=(self.workers, count))
        rpc.rpc_sync("server", create_table, args=(self.workers, 0))
        self.tensor = torch.zeros(count, dtype=torch.float32)

    def barrier(self):
        rpc.rpc_sync("server", push_pull, args=(torch.zeros(0),))

    def writes(self, round_, touch):
        return touch

    def factor(self, round_, touch):
        return 1.0

    def gradient(self):
        return self.tensor

    def exchange(self):
        return rpc.rpc_sync("server", push_pull, args=(self.tensor,))

    def close(self):
        rpc.shutdown()


def percentile(ordered, percent):
    return ordered[max((len(ordered) * percent + 99) // 100 - 1, 0)]


class Follower:
    """Follows orders until it is dismissed."""

    def __init__(self, peer, library, control):
        self.peer, self.library = peer, library
        self.models = {}
        self.count = 0
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.control.connect(control)

    def run(self, count, rounds, touch, backward):
        peer, library, rank = self.peer, self.library, self.peer.rank
        if count not in self.models:
            self.models[count] = Model(library, peer.rule, peer.workers, count)
        if count != self.count:
            peer.prepare(count)
            self.count = count
        times, reads = [], []
        phase_of = (lambda i: i % PHASES) if touch else (lambda i: 0)
        library.write(peer.gradient(), rank, 0)
        peer.barrier()
        cpu = time.process_time_ns()
        beside = library.library.peer_backward_ns() if backward else 0
        last = time.monotonic_ns()
        for i in range(rounds):
            if peer.writes(i, touch):
                library.write(peer.gradient(), rank, phase_of(i))
            values = peer.exchange_buckets(library) if backward else peer.exchange()
            if touch:
                reads.append(library.read(values))
            now = time.monotonic_ns()
            times.append(max(now - last - beside, 1))
            last = now
        cpu = time.process_time_ns() - cpu
        self.check(self.models[count], values, rounds, reads, touch)
        times.sort()
        return (sum(times), *(percentile(times, p) for p in (50, 90, 99)), times[-1], cpu)

    def check(self, model, values, rounds, reads, touch):
        for i in range(rounds):
            model.round(i % PHASES if touch else 0, self.peer.factor(i, touch))
            if touch and reads[i] != model.read():
                raise ValueError(f"round {i} of {rounds} gave wrong values")
        model.check(values)

    def follow(self):
        while message := self.control.recv(ORDER.size):
            _, flags, size, rounds, *_ = ORDER.unpack(message)
            status, text, times = 0, b"", (0,) * 6
            try:
                times = self.run(size // 4, rounds, bool(flags & TOUCH), bool(flags & BACKWARD))
            except ValueError as error:
                status, text = CORRUPT, str(error).encode()[:507]
            self.control.send(ANSWER.pack(*times, 0, 0, 0, status, text))


def main():
    kind, rank, workers, control, store, library = sys.argv[1:]
    rank, workers = int(rank), int(workers)
    torch.set_num_threads(1)  # as torchrun does for several processes on a host
    tcp = kind == "rpc_tcp"
    if kind != "gloo" and rank == 0:
        start_rpc("server", 0, workers, store, tcp)
        rpc.shutdown()  # serves until all workers want to end
        return
    peer = Gloo(rank, workers, store) if kind == "gloo" else Rpc(rank - 1, workers, store, tcp)
    Follower(peer, Library(library), control).follow()
    peer.close()


if __name__ == "__main__":
    main()
