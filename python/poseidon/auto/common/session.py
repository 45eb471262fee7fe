# SPDX-License-Identifier: Apache-2.0
"""What is common to scripts of all frameworks: how one is left alone, stopped, or made a worker of the job.

The script goes through three states. *Watched*: the framework is here, what the script makes is noted, nothing
else is done. *Distributed*: it began to train; the worker has joined the job. *Aside*: the script distributes
itself, and is left alone. A script that cannot be distributed right is stopped (refuse)."""

from __future__ import annotations

import atexit
import importlib
import multiprocessing
import os
import sys
from typing import Any, Callable, NoReturn

from . import files, notes, resumed, seeds

TIMEOUT_S = 1800.0  # for the slowest worker to come to the same step
EXIT_REFUSED = 2
_FROM_CHECKPOINT = "from its last checkpoint (--checkpoint DIR --restart=on-failure --restart_scope=group)"
FOR_NEWCOMERS = ("use poseidon.elastic in the script, or let the number of workers be; one that is lost comes back with the whole job, "
                 f"{_FROM_CHECKPOINT}")


def _be_brief_when_the_job_is_over(lost: type[Exception]) -> None:
    """Another worker has failed, and says why. Where in the exchange this one was then is of no interest, and its
    traceback would hide the cause."""
    others = sys.excepthook

    def tell(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        _, over, reason = str(error).partition("the job is over: ")
        if isinstance(error, lost) and over:
            sys.stderr.write(f"this worker ends, because {over}{reason}\n")
        else:
            others(kind, error, trace)

    sys.excepthook = tell


class Session:
    """One for each framework that a script uses. Thread: that of the script which trains."""

    package = ""  # what distributes, and what a script can use itself
    writes_privately = False  # whether it knows of private views of files
    goes_on = False  # whether a script of it goes on from psd_run's checkpoints

    def __init__(self, watch: Any):
        self._watch = watch
        self.world = int(os.environ["PSD_WORLD_SIZE"])
        self.rank = int(os.environ["PSD_RANK"])
        self.aside = False
        self.refused = False
        self.joined = False
        self._saved: set[str] = set()  # files that worker 0 alone writes
        self.private_files = False  # all workers have agreed that each has its own files
        self._steps = 0
        self._trainings = 0  # that a library has begun which knows how long they are
        self.remaining: Callable[[], float] | None = None  # steps of the one that runs, after this step

    def expect_steps(self, remaining: Callable[[], float]) -> None:
        """A library begins to train, and knows how many steps are left. Of a script that trains twice nobody knows how
        often it will."""
        self._trainings += 1
        self.remaining = remaining if self._trainings == 1 else None

    # ---- how it ends

    def active(self) -> bool:
        """Whether something is to be done in this process."""
        if self.refused:  # the script has caught the exit
            os._exit(EXIT_REFUSED)
        return not self.aside

    def step_aside(self, reason: str) -> None:
        """The script distributes itself."""
        if self.joined:
            self.refuse(f"{reason}, after its training had been distributed automatically",
                        "let it do so before it reads its training data, or run it with --auto off")
        if not self.aside and self.rank == 0:
            notes.tell(f"automatic distribution steps aside: {reason}")
        self.aside = True
        files.leave(reason)
        seeds.withdraw()
        self.stop_watching()

    def stop_watching(self) -> None:
        """Imports are of no interest any more."""
        if self._watch in sys.meta_path:
            sys.meta_path.remove(self._watch)

    def refuse(self, reason: str, advice: str) -> NoReturn:
        """Stops the script: it would be trained wrong."""
        self.refused = True
        notes.explain_refusal(reason, advice)
        raise SystemExit(EXIT_REFUSED)

    def breach(self, kind: str, reason: str, advice: str) -> None:
        """Something does not hold that must (witness.py). With --auto warn the script goes on; all workers see it,
        and one tells."""
        del kind
        if os.environ.get("PSD_AUTO") != "warn":
            self.refuse(reason, advice)
        if self.rank == 0:
            notes.tell(f"{notes.script_name()} is trained wrong: {reason}; {advice}")

    def at_exit(self) -> None:
        """The script is over. One that was refused leaves without a farewell to the job, also when
        it has caught the exit."""
        failed = hasattr(sys, "last_value")
        if self.refused and not failed:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(EXIT_REFUSED)

    def has_optimizers(self) -> bool:
        """Whether the script has made one that this session looks after."""
        return False

    @staticmethod
    def _is_child() -> bool:
        return multiprocessing.parent_process() is not None

    # ---- how it begins

    def _declare(self) -> None:
        """The worker is about to join the job."""

    def _is_joinable(self) -> bool:
        """Whether others may come while it trains."""
        return False

    def _why_not_joinable(self) -> str:
        """For people."""
        return ("the script knows nothing of workers that come: which samples and random numbers are whose follows from how many "
                "workers began")

    def _join(self) -> None:
        """Becomes a worker of the job."""
        if self.joined:
            return
        self.stop_watching()
        folder = os.path.dirname(os.path.abspath(__file__))
        root = os.path.dirname(os.path.dirname(os.path.dirname(folder)))
        sys.path.insert(0, root)
        try:
            import poseidon

            importlib.import_module(self.package)
        finally:
            sys.path.remove(root)
        # Workers prepare their data before they come here, and need not be done together. Another
        # framework of the script may have joined before.
        told = "PSD_OPEN_TIMEOUT_MS" in os.environ or poseidon.is_initialized()
        self._declare()
        try:
            context = poseidon.init() if told else poseidon.init(open_timeout_ms=int(TIMEOUT_S * 1000))
        except poseidon.RefusedError as error:
            if "(setting join)" not in str(error):
                raise
            self.refuse(f"this worker comes while others train, and {self._why_not_joinable()}", FOR_NEWCOMERS)
        self.joined = True
        if resumed.is_resumed() and not self.goes_on:
            self.refuse("the job goes on from a checkpoint of psd_run, which has nothing of plain scripts of this framework",
                        "let the script save and load itself, and run it without --resume")
        _be_brief_when_the_job_is_over(poseidon.LostError)
        if not self.writes_privately:
            files.leave(f"{self.package} has its own way with them")
        atexit.register(self.at_exit)  # before poseidon's own, which says farewell
        if context.incarnation > 1 and not self._is_joinable():
            self.refuse("this worker was started again in the middle of a job, and the script knows "
                        "nothing of where the others are",
                        f"begin the whole job anew instead, {_FROM_CHECKPOINT}, or use poseidon.elastic in the script")

    # ---- files

    def has_for_itself(self, path: str | os.PathLike) -> bool:
        """Whether this worker writes a file, and reads what it has written: each has its own, or it is worker 0."""
        agreed = self.private_files if self.joined else files.can_be_private()
        return agreed and files.is_private(path)

    def before_load(self, source: Any) -> bool:
        """What worker 0 has saved is there when the others load it. Says whether it is of that
        kind."""
        if not self.active() or not self.joined or not isinstance(source, (str, os.PathLike)) or \
                self._is_child() or os.path.abspath(os.fspath(source)) not in self._saved or \
                self.has_for_itself(source):
            return False
        from poseidon import _elastic

        _elastic.barrier(int(TIMEOUT_S * 1000))
        return True
