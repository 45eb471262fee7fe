# SPDX-License-Identifier: Apache-2.0
"""The points of a script at which its job can be saved, and from which it can go on: where it asks for the next batch of a
loader that it trains on, when at least one of the loader's batches was trained on.

There all workers give their part after the same batch (poseidon._due): worker 0 weights, buffers, and the state of
optimizers, each worker its random generators and its variables. How far the script was is told by how often it had come to such a point; a
digest tells which loaders it had read on its way."""

from __future__ import annotations

import json
import os
import weakref
import zlib
from typing import TYPE_CHECKING, Any

import torch

from ..common import notes, resumed, seeds
from .variables import Unknown, Variables

if TYPE_CHECKING:
    from .replay import Replay
    from .session import TorchSession
    from .shards import Shard

VERSION = 1
NOTE_BYTES = 1 << 16  # of each worker
TIMEOUT_S = 1800.0


class Points:
    """Of one script. Thread: that of the script which trains."""

    def __init__(self, session: TorchSession):
        self._session = session
        self.count = 0
        self._way = 0  # a digest of what was read so far
        self._readings = 0  # of loaders, to train
        self._begun = weakref.WeakKeyDictionary()  # of these that are not over: number, and generators when it began
        self._next: tuple[int, Any] | None = None
        self._due: Any = None
        self._told = False
        self.replay: Replay | None = None
        self.are_of_use = False  # to anybody
        self.zeroed = False  # gradients, by the script, at least once

    def join(self) -> None:
        """The worker is in the job."""
        from poseidon import _due as due

        growth = self._session.growth
        if resumed.is_resumed() and not growth.comes_late():
            from .replay import Replay

            self.replay = Replay(self._session, self)
        if due.wanted():
            self._due = growth.due(TIMEOUT_S) if growth.is_on else due.Due(TIMEOUT_S)
        self.are_of_use = self._due is not None or self.replay is not None or growth.is_on

    # ---- where it is

    def readings(self) -> int:
        """How often it has begun to read a loader, to train."""
        return self._readings

    def next_reading(self) -> int:
        """The number of the one that is about to begin."""
        return self._readings + 1

    def way(self) -> int:
        """A digest of what was read."""
        return self._way

    # ---- what the script reads

    def read(self, kind: str) -> None:
        """A loader is about to be read."""
        self._way = zlib.crc32(f"{kind}{self._readings}".encode(), self._way)

    def begin_epoch(self, found: Any) -> Any:
        """A loader is about to be read to train, with generators in these states: those that it has to be read with."""
        self._readings += 1
        self.read("train")
        if self.replay is not None:
            found = self.replay.generators(self._readings, found)
        self._next = self._readings, found
        return found

    def begun(self, shard: Shard) -> None:
        """That is what it is read by."""
        if self._next is not None:
            self._begun[shard], self._next = self._next, None

    def over(self, shard: Shard) -> None:
        """A loader was read to its end."""
        self._begun.pop(shard, None)

    def at_batch(self, shard: Shard) -> None:
        """The script asks for a batch."""
        session = self._session
        if shard.handed_out == 0 or session._stepped_after != session.rounds():
            return  # gradients are still adding up
        self.count += 1
        self._way = zlib.crc32(b"point", self._way)
        if self.replay is not None:
            self.replay.at_point(self.count, self._way)
        elif self._due is not None and self._due.after(self.count, epoch_ended=shard.is_over):
            self._give()
        self._session.growth.look_for_leave()

    def lead_nowhere(self, reason: str) -> None:
        """The script trains in a way in which there are no points."""
        if self.replay is not None:
            self._session.refuse(f"the job goes on from a checkpoint, but {reason}", ADVICE)

    # ---- saving

    def _give(self) -> None:
        from poseidon import LostError
        from poseidon.torch import collectives, parts

        mine, problem = b"", ""
        try:
            self._check()
            mine = parts.encode(self._of_this_worker())
            if len(mine) > NOTE_BYTES:
                raise Unknown(f"its variables and generators take {len(mine)} bytes on worker {self._session.rank}, more than {NOTE_BYTES}")
        except (Unknown, TypeError) as error:
            mine, problem = b"", str(error)
        try:
            all_notes = collectives.allgather_bytes(mine)
        except LostError:
            return  # the master asks again
        if self._session.rank != 0:
            return
        if not problem and not all(all_notes):
            problem = "a worker has variables that cannot be kept"
        if not problem:
            try:
                self._due.give(self.count, parts.encode(self._of_job(all_notes), plain=json.dumps(self._head())))
                return
            except (Unknown, TypeError, OSError) as error:
                problem = str(error)
        if not self._told:
            self._told = True
            notes.tell(f"no checkpoint of {notes.script_name()} is written: {problem}; {ADVICE}")

    def _check(self) -> None:
        if not self.zeroed:
            raise Unknown("it never calls zero_grad(), so that its gradients would have to be kept, too")
        if any(shard.loader.persistent_workers for shard in self._begun):
            raise Unknown(PERSISTENT)

    def of_newcomers(self) -> dict[str, Any]:
        """What a worker that comes is to have. A loader is about to be read."""
        from poseidon.torch import parts

        self._check()
        if self._begun:
            raise Unknown("it has not read another of its loaders to the end")
        if self._session.has_persistent_workers():
            raise Unknown(PERSISTENT)
        mine = parts.encode(self._of_this_worker())
        told = resumed.circumstances(self._session, torch=torch.__version__)
        told.pop("workers")
        return {**self._of_job([mine]), "circumstances": told, "files": self._session.private_files}

    def _head(self) -> dict[str, Any]:
        return {"framework": "torch", "version": VERSION, "seed": seeds.of_job(), "hash_seed": os.environ.get("PYTHONHASHSEED"), **resumed.circumstances(self._session, torch=torch.__version__)}

    def _of_this_worker(self) -> dict[str, Any]:
        found = Variables()
        return {"values": {name: list(value) if isinstance(value, list) else value for name, value in found.values.items()},
                "generators": self._session.streams.states()}

    def _of_job(self, all_notes: list[bytes]) -> dict[str, Any]:
        session, found = self._session, Variables()
        return {"count": self.count, "way": self._way, "readings": dict(self._begun.values()), "workers": all_notes,
                "tensors": [[name, tensor.detach()] for name, tensor in tensors_of(session, found)],
                "optimizers": [[type(each).__name__, each.state_dict()] for each in session.live_optimizers()],
                "stateful": {name: each.state_dict() for name, each in found.stateful.items()}, "steps": session._steps,
                "worlds": session.growth.worlds}


PERSISTENT = "its loader has persistent_workers, whose random numbers go on from epoch to epoch"
ADVICE = ("use poseidon.torch.Checkpoint in the script, or checkpoints of its own, and run it without --checkpoint "
          "and --resume (docs/checkpoints.md)")


def tensors_of(session: TorchSession, found: Variables) -> list[tuple[str, torch.Tensor]]:
    """Weights and buffers, each once: what optimizers train and the models around it, then models that variables hold."""
    owners = session._look_up_owners()
    named = owners.named(session._parameters()) + owners.fixed + owners.buffers
    for name, module in found.modules.items():
        named += [(f"{name}.{path}", tensor) for path, tensor in (*module.named_parameters(), *module.named_buffers())]
    return list({id(tensor): (name, tensor) for name, tensor in reversed(named)}.values())[::-1]
