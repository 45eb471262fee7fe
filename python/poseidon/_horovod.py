# SPDX-License-Identifier: Apache-2.0
"""What scripts written for Horovod ask of every framework: names of reductions, questions about how it
was built, and an answer for each name that is not here.

A script changes its import alone (`import poseidon.torch as hvd`), so what is missing must say so by the
name that the script uses, and where it uses it."""

from __future__ import annotations

from typing import Any

from ._errors import InvalidError

Average, Sum, Min, Max, Product, Adasum = "mean", "sum", "min", "max", "product", "adasum"

_ALL_WORKERS = "every operation is one of all workers; start a job for each group"
_EQUAL_MACHINES = "where machines have equally many workers"

# What Horovod has and this has not: what to do instead.
_MISSING = {
    "ProcessSet": _ALL_WORKERS, "add_process_set": _ALL_WORKERS, "remove_process_set": _ALL_WORKERS,
    "process_set_included_op": _ALL_WORKERS,
    "PartialDistributedOptimizer": "use DistributedOptimizer",
    "PartialDistributedGradientTape": "use DistributedGradientTape",
    "SyncBatchNorm": "BatchNorm sees the samples of its worker; use GroupNorm or a larger batch",
    "alltoall": "use allgather and take your part", "alltoall_async": "use allgather",
    "reducescatter": "use allreduce and take your part", "reducescatter_async": "use allreduce",
    "grouped_reducescatter": "use grouped_allreduce and take your part",
    "grouped_reducescatter_async": "use grouped_allreduce", "grouped_allgather": "use allgather for each",
    "grouped_allgather_async": "use allgather for each",
    "sparse_allreduce_async": "give allreduce the dense tensor (tensor.to_dense())",
    "join": "every worker takes the same number of steps: repeat or cut the data (PyTorch has join)",
    "start_timeline": "psd_run show tells how a job is doing; of PyTorch PSD_TORCH_TRACE=trace-{rank}.json "
                      "writes a trace",
    "stop_timeline": "traces end with the process",
    "cross_rank": f"rank() // local_size() {_EQUAL_MACHINES}",
    "cross_size": f"size() // local_size() {_EQUAL_MACHINES}",
    "is_homogeneous": "poseidon.nodes() lists the job's nodes",
    "size_op": "use size()", "rank_op": "use rank()", "local_size_op": "use local_size()",
    "local_rank_op": "use local_rank()", "run": "use poseidon.run(function, workers=4)",
}


def absent(module: str, name: str) -> AttributeError:
    """What a module raises for a name that it has not."""
    if name not in _MISSING:
        return AttributeError(f"module {module!r} has no attribute {name!r}")
    return AttributeError(f"{module}: Horovod's {name} is not offered: {_MISSING[name]}")


def reduction(what: str, op: Any, average: bool | None = None,
              offered: tuple[str, ...] = (Average, Sum)) -> str:
    """Which one is meant, of those that are offered here."""
    if average is not None and not isinstance(average, bool):
        raise TypeError(f"{what}: average={average!r}: True or False; a name is given as name=")
    if average is not None and op is not None:
        raise InvalidError(f"{what}: average= and op= both say what to do: give op= alone")
    found = op if op is not None else Sum if average is False else Average
    if found == Adasum:
        raise InvalidError(f"{what}: op=Adasum is not offered: use op=Average, with a learning rate "
                           "that is scaled by size()")
    if found not in offered:
        raise InvalidError(f"{what}: op={op!r}: offered are {', '.join(map(_title, offered))}")
    return found


def _title(op: str) -> str:
    return {Average: "Average"}.get(op, op.capitalize())


def check_predivide(what: str, factor: float, op: str) -> None:
    """A mean is divided by the number of workers in float32 or better, where nothing overflows: before
    the sum or after it is the same."""
    if not factor > 0:
        raise InvalidError(f"{what}: gradient_predivide_factor={factor}: above 0")
    if factor != 1.0 and op != Average:
        raise InvalidError(f"{what}: gradient_predivide_factor is for op=Average")


class _AllWorkers:
    """The process set that there is."""

    process_set_id = 0

    def __repr__(self) -> str:
        return "global_process_set"


global_process_set = _AllWorkers()


def check_process_set(what: str, given: Any) -> None:
    if given is not None and given is not global_process_set:
        raise InvalidError(f"{what}: process_set={given!r}: {_ALL_WORKERS}")


class Compression:
    """How gradients travel: as they are, or as float16; PyTorch's also as bfloat16."""

    class none:  # pylint: disable=invalid-name
        """As they are."""

    class fp16:  # pylint: disable=invalid-name
        """float32 and float64 travel as float16; servers add them in float32."""

    class bf16:  # pylint: disable=invalid-name
        """float32 and float64 travel as bfloat16, which has the range of float32; servers add them in float32."""

    @staticmethod
    def is_half(what: str, given: Any) -> bool:
        """Whether it is that of float16."""
        if given not in (None, Compression.none, Compression.fp16):  # a class of the script's own
            raise InvalidError(f"{what}: compression={getattr(given, '__name__', given)!r}: offered "
                               "are Compression.none and Compression.fp16")
        return given is Compression.fp16


# ---- how it was built: nothing of what Horovod is made of is in here


def mpi_threads_supported() -> bool:
    """Whether MPI may be used beside it: this uses no MPI."""
    return False


def nccl_built() -> bool:
    """Reductions on the device: none. Servers add."""
    return False


mpi_built = mpi_enabled = gloo_built = gloo_enabled = ccl_built = cuda_built = rocm_built = \
    ddl_built = nccl_built

QUESTIONS = ("ccl_built", "cuda_built", "ddl_built", "gloo_built", "gloo_enabled", "mpi_built",
             "mpi_enabled", "mpi_threads_supported", "nccl_built", "rocm_built")
