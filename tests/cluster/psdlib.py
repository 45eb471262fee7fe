# SPDX-License-Identifier: Apache-2.0
"""libpsd for test workers: the calls of psd.h through ctypes, errors as exceptions.

Nothing here decides anything. PSD_LIB names the library. The structures are those of the package."""

import array
import ctypes
import importlib.util
import os
import pathlib
from ctypes import POINTER, Structure, byref, c_char_p, c_double, c_int, c_int32, c_size_t
from ctypes import c_uint32, c_uint64, c_void_p

FOREVER = 2**32 - 1
UNBOUNDED = 2**32 - 1
NOW = 2**64 - 1  # a step: PSD_STEP_NOW
F32, F64, F16, BF16 = 1, 2, 3, 4
SGD, ADD, MOMENTUM, NESTEROV, ADAGRAD, RMSPROP, ADAM, ADAMW, FTRL = range(9)
UPDATE, SUM = 0, 1
REDUCE_MEAN, REDUCE_SUM = 0, 1
ZERO, RANK0, CONSTANT, UNIFORM, NORMAL = range(5)
OK, PENDING = 0, 1
VIEW = 2  # psd_transfer.flags
ELEMENTS = {F32: ("f", 4), F64: ("d", 8), F16: ("e", 2)}  # letter of struct, bytes

ROLES = {1: "master", 2: "server", 3: "worker"}
STATES = {0: "missing", 1: "joined", 2: "running", 3: "done", 4: "lost"}


def load_structs():
    """The package's own file, without the package: a test worker starts without NumPy."""
    path = pathlib.Path(__file__).resolve().parents[2] / "python" / "poseidon" / "_structs.py"
    spec = importlib.util.spec_from_file_location("psd_structs", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


structs = load_structs()
STRUCTS = structs.STRUCTS
OpenArgs, RuleArgs, TableArgs = structs.OpenArgs, structs.RuleArgs, structs.TableArgs
Transfer, ErrorText, NodeInfo = structs.Transfer, structs.ErrorText, structs.NodeInfo
MembersInfo = structs.MembersInfo


def load():
    lib = ctypes.CDLL(os.environ["PSD_LIB"])
    lib.psd_last_error.restype = POINTER(ErrorText)
    lib.psd_op_error.restype = POINTER(ErrorText)
    lib.psd_status_name.restype = c_char_p
    lib.psd_version.restype = c_char_p
    lib.psd_table_step.restype = c_uint64
    lib.psd_table_count.restype = c_uint64
    lib.psd_table_element_bytes.restype = c_size_t
    for name in ("rank", "size", "servers", "incarnation"):
        getattr(lib, f"psd_{name}").argtypes = [c_void_p]
        getattr(lib, f"psd_{name}").restype = c_uint32
    for name in ("table_step", "table_count", "table_element_bytes", "close", "abandon",
                 "op_release", "op_outcome", "op_error", "test"):
        getattr(lib, f"psd_{name}").argtypes = [c_void_p]
    for name in ("push", "pull", "push_pull"):
        getattr(lib, f"psd_{name}").argtypes = [c_void_p, POINTER(Transfer), POINTER(c_void_p)]
    lib.psd_table_open.argtypes = [c_void_p, POINTER(TableArgs), POINTER(c_void_p)]
    lib.psd_wait.argtypes = [c_void_p, c_uint32]
    lib.psd_barrier.argtypes = [c_void_p, c_uint32]
    lib.psd_global_step.argtypes = [c_void_p, c_uint64, POINTER(c_uint64)]
    lib.psd_report.argtypes = [c_void_p, c_uint64, c_char_p, c_double]
    lib.psd_mark.argtypes = [c_void_p, c_uint64, c_char_p, c_uint64, c_uint64]
    lib.psd_alloc.argtypes = [c_void_p, c_size_t, POINTER(c_void_p)]
    lib.psd_free.argtypes = [c_void_p, c_void_p]
    lib.psd_view.argtypes = [c_void_p, POINTER(c_void_p)]
    lib.psd_save.argtypes = [c_void_p, c_char_p, c_uint64]
    lib.psd_members.argtypes = [c_void_p, c_uint64, POINTER(MembersInfo), POINTER(c_uint32), c_size_t]
    lib.psd_leave.argtypes = [c_void_p]
    lib.psd_load.argtypes = [c_void_p, c_char_p, POINTER(c_uint64)]
    lib.psd_nodes_at.argtypes = [c_char_p, c_uint32, POINTER(NodeInfo), c_size_t, c_size_t,
                                 POINTER(c_size_t)]
    return lib


LIB = load()


class PsdError(Exception):
    """A failed call: .name is the status, such as PSD_ERR_TIMEOUT, .text its message."""

    def __init__(self, status, text):
        self.name = LIB.psd_status_name(status).decode()
        self.text = text
        super().__init__(f"{self.name}: {text}")


def check(status):
    if status != OK:
        raise PsdError(status, LIB.psd_last_error().contents.text.decode(errors="replace"))


def floats(count, value=0.0):
    """A writable buffer of f32."""
    return array.array("f", [value]) * count


def address_of(buffer):
    return None if buffer is None else (ctypes.c_char * 0).from_buffer(buffer)


def region(memory, count):
    """Memory of the library as bytes."""
    return memoryview((ctypes.c_char * count).from_address(memory.value)).cast("B")


class Op:
    def __init__(self, handle, keep):
        self.handle = handle
        self.keep = keep  # buffers live at least as long as the operation

    def wait(self, timeout_ms=FOREVER):
        """True: done. False: not within timeout_ms. Raises what the operation ended with."""
        status = LIB.psd_wait(self.handle, timeout_ms)
        if status == PENDING:
            return False
        text = LIB.psd_op_error(self.handle).contents.text.decode(errors="replace")
        outcome = LIB.psd_op_outcome(self.handle)
        LIB.psd_op_release(self.handle)
        self.handle = None
        if status != OK:
            error = PsdError(status, text)
            error.outcome = outcome
            raise error
        return True


class Table:
    def __init__(self, handle):
        self.handle = handle

    def step(self):
        return LIB.psd_table_step(self.handle)

    def start(self, verb, step, gradient=None, values=None, **options):
        transfer = Transfer(struct_size=ctypes.sizeof(Transfer), step=step, **options)
        keep = (address_of(gradient), address_of(values))
        transfer.gradient = None if gradient is None else ctypes.addressof(keep[0])
        transfer.values = None if values is None else ctypes.addressof(keep[1])
        handle = c_void_p()
        check(getattr(LIB, f"psd_{verb}")(self.handle, byref(transfer), byref(handle)))
        return Op(handle, keep)

    def view(self):
        """psd_view: the table's values where they are, to read."""
        memory = c_void_p()
        check(LIB.psd_view(self.handle, byref(memory)))
        return region(memory, LIB.psd_table_count(self.handle) *
                      LIB.psd_table_element_bytes(self.handle))

    def push(self, step, gradient, **options):
        return self.start("push", step, gradient, None, **options)

    def pull(self, step, values, **options):
        return self.start("pull", step, None, values, **options)

    def push_pull(self, step, gradient, values, **options):
        return self.start("push_pull", step, gradient, values, **options)


class Context:
    """psd_open. Everything not given comes from the environment that psd_run prepares."""

    def __init__(self, master_address=None, rank=None, open_timeout_ms=0, op_timeout_ms=0):
        args = OpenArgs(ctypes.sizeof(OpenArgs),
                        None if master_address is None else master_address.encode(),
                        None if rank is None else str(rank).encode(),
                        open_timeout_ms, op_timeout_ms, None)
        self.handle = c_void_p()
        check(LIB.psd_open(byref(args), byref(self.handle)))

    rank = property(lambda self: LIB.psd_rank(self.handle))
    size = property(lambda self: LIB.psd_size(self.handle))
    servers = property(lambda self: LIB.psd_servers(self.handle))
    incarnation = property(lambda self: LIB.psd_incarnation(self.handle))

    def table(self, name, shape, dtype=F32, rule=SGD, rule_args=None, **options):
        args = TableArgs(struct_size=ctypes.sizeof(TableArgs), name=name.encode(), dtype=dtype,
                         dims=len(shape), **options)
        args.shape[: len(shape)] = shape
        args.rule = ctypes.pointer(RuleArgs(struct_size=ctypes.sizeof(RuleArgs), rule=rule, **(rule_args or {})))
        handle = c_void_p()
        check(LIB.psd_table_open(self.handle, byref(args), byref(handle)))
        return Table(handle)

    def alloc(self, count):
        """psd_alloc: memory for gradients, to write."""
        memory = c_void_p()
        check(LIB.psd_alloc(self.handle, count, byref(memory)))
        return region(memory, count)

    def free(self, memory):
        check(LIB.psd_free(self.handle, ctypes.addressof(address_of(memory))))

    def barrier(self, timeout_ms=FOREVER):
        check(LIB.psd_barrier(self.handle, timeout_ms))

    def global_step(self, add=0):
        step = c_uint64()
        check(LIB.psd_global_step(self.handle, add, byref(step)))
        return step.value

    def report(self, step, name="", value=0.0):
        check(LIB.psd_report(self.handle, step, name.encode(), value))

    def mark(self, step, name, begin_ns, end_ns):
        check(LIB.psd_mark(self.handle, step, name.encode(), begin_ns, end_ns))

    def save(self, directory, step):
        check(LIB.psd_save(self.handle, str(directory).encode(), step))

    def load(self, directory):
        step = c_uint64()
        check(LIB.psd_load(self.handle, str(directory).encode(), byref(step)))
        return step.value

    def members(self, step, most=64):
        """The ranks that count in the step, and the version of the set."""
        found = MembersInfo(ctypes.sizeof(MembersInfo))
        ranks = (c_uint32 * most)()
        check(LIB.psd_members(self.handle, step, byref(found), ranks, most))
        return set(ranks[: found.count]), found.version

    def leave(self):
        check(LIB.psd_leave(self.handle))

    def close(self):
        handle, self.handle = self.handle, None  # it is gone either way
        check(LIB.psd_close(handle))

    def abandon(self):
        LIB.psd_abandon(self.handle)


def nodes_at(master_address, timeout_ms=3000):
    """The master's table of nodes, as dictionaries."""
    capacity = 2048
    nodes = (NodeInfo * capacity)()
    count = c_size_t()
    check(LIB.psd_nodes_at(master_address.encode(), timeout_ms, nodes, ctypes.sizeof(NodeInfo), capacity,
                           byref(count)))
    return [{"role": ROLES[node.role], "rank": node.rank, "state": STATES[node.state],
             "incarnation": node.incarnation, "step": node.step,
             "value": node.value, "value_name": node.value_name.decode(),
             "address": node.address.decode()} for node in nodes[: count.value]]
