# SPDX-License-Identifier: Apache-2.0
"""A job from a function: poseidon.run."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, Callable, Sequence

from ._carry import pack, unpack
from ._errors import Error, StateError, Status
from ._library import PACKAGE, program
from ._plain import trains_by_itself


class RunError(Error):
    """A job of poseidon.run failed. rank: the first worker that raised an exception, or None;
    traceback: that exception, as text."""

    status = Status.ERR_JOB_FAILED
    rank: int | None = None
    traceback: str = ""


def run(function: Callable[..., Any], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None,
        *, workers: int = 4, servers: int = 1, timeout: float | None = None,
        options: Sequence[str] = (), env: dict[str, str] | None = None, logs: str | None = None,
        quiet: bool = False) -> list[Any]:
    """Starts a job on this machine in which every worker calls function(*args, **kwargs) after
    poseidon.init(), and returns what they returned, by rank.

    The function may come from a module, a notebook or a script. From a notebook or script, workers get its code and
    what the code refers to: modules, other functions, plain values and arrays of numbers, but no classes of the
    notebook, objects or open files. What it returns must be plain, too. No pickle is involved, and
    nothing leaves this machine.

    timeout  seconds after which the job is ended
    options  further arguments of psd_run, such as "--on_worker_death=wait"
    env      environment variables of the workers, in addition to those of this process
    logs     directory for the logs; without one they are kept only when the job fails
    quiet    print nothing of what the workers print
    """
    if not callable(function):
        raise TypeError(f"poseidon.run: {function!r} is not a function")
    _refuse_plain(function, workers)
    call = pack((function, tuple(args), dict(kwargs or {})), "poseidon.run")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="poseidon_run."))  # only this user can read it
    ended_well = False
    try:
        (directory / "call").write_bytes(call)
        command = [program("psd_run"), "--workers", str(workers), "--servers", str(servers),
                   "--out", os.path.abspath(logs) if logs else str(directory / "logs"),
                   "--workdir", os.getcwd(), "--pass", "env", *options]
        if timeout is not None:
            command += ["--timeout", str(max(1, round(timeout)))]
        command += ["--", sys.executable, "-m", "poseidon._run_worker", str(directory)]
        code = _attend(command, directory, _environment(env), quiet)
        results = _results(directory, code, workers)
        ended_well = True
        return results
    finally:
        if ended_well or not (directory / "logs").exists():
            shutil.rmtree(directory, ignore_errors=True)


def _refuse_plain(function: Callable[..., Any], workers: int) -> None:
    """Refuses a function that does not use poseidon: each worker would train on all of the data, and nobody would
    notice."""
    framework = trains_by_itself(function) if workers > 1 else None
    if framework is not None:
        raise StateError(
            f"poseidon.run: {function.__name__} uses {framework} and nothing of poseidon, so each of {workers} workers "
            "would train by itself, on all of the data. Functions are not distributed as they are, scripts are: use "
            f"poseidon.{framework if framework in ('torch', 'tensorflow') else 'rank() and poseidon.Table'} in it, or "
            f"write it into a script and run psd_run --workers {workers} \"python SCRIPT\" (docs/automatic.md)")


def _environment(more: dict[str, str] | None) -> dict[str, str]:
    """The workers find what this process finds: the same modules, the same libpsd."""
    path = [str(PACKAGE.parent)] + [entry or os.getcwd() for entry in sys.path]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)), **(more or {})}


def _attend(command: list[str], directory: pathlib.Path, environment: dict[str, str], quiet: bool
            ) -> int:
    """Runs psd_run and shows what it prints, also in a notebook. Ctrl-C ends the job first."""
    with subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace") as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if not quiet:
                    print(line, end="", flush=True)
            return process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            process.wait()
            raise


def _results(directory: pathlib.Path, code: int, workers: int) -> list[Any]:
    raised = sorted(directory.glob("error.*"), key=lambda path: path.stat().st_mtime_ns)
    if code != 0 or raised:
        raise _failure(directory, code, raised)
    missing = [rank for rank in range(workers) if not (directory / f"result.{rank}").exists()]
    if missing:
        raise RunError(f"poseidon.run: the job ended well, but worker {missing[0]} left no result")
    return [unpack((directory / f"result.{rank}").read_bytes()) for rank in range(workers)]


def _failure(directory: pathlib.Path, code: int, raised: list[pathlib.Path]) -> RunError:
    if not raised:
        return RunError(f"poseidon.run: psd_run ended with code {code}; see {directory}/logs and "
                        f"{directory}/poseidon_run.log")
    text = raised[0].read_text(errors="replace")
    rank = int(raised[0].suffix[1:])
    error = RunError(f"poseidon.run: worker {rank} raised {text.rstrip().splitlines()[-1]}\n{text}"
                     f"logs are in {directory}/logs")
    error.rank, error.traceback = rank, text
    return error
