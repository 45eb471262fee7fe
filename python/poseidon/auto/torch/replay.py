# SPDX-License-Identifier: Apache-2.0
"""A script goes on from a checkpoint: it runs as it did, but without computing, until it has come as often to a point
(points.py) as it had when it was saved.

Until then models compute once for each shape of what they get, and give that again; nothing is differentiated, so optimizers
find no gradients, and nothing is exchanged. Loaders are read as ever. What the script prints was printed before; and it may write no files, which would be
written with what is not true. At the point everything is put back that depends on what was computed. What does not fit is
named, and the job does not go on."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch.utils import _pytree

from ..common import notes
from .variables import Unknown, Variables

if TYPE_CHECKING:
    from .points import Points
    from .session import TorchSession

_HARMLESS = ("/dev/", "/proc/", "/sys/")
_OF_PROCESSES = "/pymp-"  # multiprocessing's


class Replay:
    """Until the point is reached. Thread: that of the script which trains."""

    def __init__(self, session: TorchSession, points: Points):
        self._session, self._points = session, points
        self._rank = session.rank
        self._kept = self._read()
        self._outputs: dict[Any, Any] = {}
        self._inside, self._process = False, os.getpid()
        self._own_call = torch.nn.Module.__call__
        self._own_outputs = sys.stdout, sys.stderr
        self._own_level = logging.root.manager.disable
        self._begun = False

    def _read(self) -> dict[str, Any]:
        import poseidon
        from poseidon.torch import parts

        from ..common import resumed
        from .points import ADVICE, VERSION

        found, head = poseidon.context().checkpoint_resumed(), resumed.head()
        if found is None or head.get("framework") != "torch":
            self._session.refuse("the checkpoint that the job goes on from has nothing of a plain script of PyTorch", ADVICE)
        if head.get("version") != VERSION:
            self._session.refuse(f"the checkpoint is of version {head.get('version')}, expected {VERSION}", ADVICE)
        resumed.check_circumstances(self._session, torch=torch.__version__)
        kept = parts.decode(found[1])
        self._session.growth.worlds = kept.get("worlds") or self._session.growth.worlds
        return kept

    # ---- on the way

    def begin(self) -> None:
        """Training begins: from here on nothing is computed."""
        if self._begun:
            return
        self._begun = True
        self._tell_begin()
        torch.nn.Module.__call__ = self._calling(self._own_call)
        self._null = open(os.devnull, "w", encoding="utf-8")  # pylint: disable=consider-using-with
        sys.stdout = sys.stderr = self._null
        logging.disable(logging.CRITICAL)
        sys.addaudithook(self._look_at_files)

    def _tell_begin(self) -> None:
        if self._session.rank == 0:
            notes.tell(f"{notes.script_name()} goes on from its checkpoint: {self._kept['count']} batches are passed over")

    def generators(self, reading: int, found: Any) -> Any:
        """With which a loader was read, the n-th time; what is over was read with any."""
        self.begin()
        self._look_back(reading)
        return self._kept["readings"].get(reading, found)

    def _look_back(self, reading: int) -> None:
        """It is read as it was, by as many workers."""
        session = self._session
        session.world = session.growth.world_at(reading)
        session.rank = min(self._rank, session.world - 1)

    def _calling(self, own: Callable) -> Callable:
        def call(module, *args, **kwargs):
            if self._inside or os.getpid() != self._process:  # those that prepare data prepare what comes then
                return own(module, *args, **kwargs)
            key = id(module), module.training, _shapes((args, kwargs))
            if key not in self._outputs:
                self._inside = True
                try:
                    with torch.no_grad():
                        self._outputs[key] = module, own(module, *args, **kwargs)
                finally:
                    self._inside = False
            return _pytree.tree_map_only(torch.Tensor, _as_new, self._outputs[key][1])

        return call

    def before_step(self, optimizer: Any) -> None:
        """It is to find nothing to do."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def _look_at_files(self, event: str, arguments: tuple) -> None:
        if self._points.replay is not self or os.getpid() != self._process:
            return
        if event == "open" and _writes(*arguments[1:3]):
            self._refuse_file(arguments[0])
        elif event in ("os.rename", "os.remove", "os.rmdir", "os.truncate", "os.link", "os.symlink"):
            self._refuse_file(arguments[0])

    def _refuse_file(self, path: Any) -> None:
        try:
            name = os.path.abspath(os.fsdecode(path))
        except TypeError:
            return  # a number
        if name.startswith(_HARMLESS) or "__pycache__" in name or _OF_PROCESSES in name:
            return
        self.refuse(f"it writes {name} while it trains, and would write it again with what is not true")

    def refuse(self, reason: str) -> None:
        """It cannot go on."""
        from .points import ADVICE

        self._end()
        self._session.refuse(f"the job goes on from a checkpoint, but the way of {notes.script_name()} there cannot be repeated "
                             f"without computing: {reason}", ADVICE)

    def script_failed(self) -> None:
        """The script is over, or has failed, before it came to the point."""
        if self._points.replay is self:
            error = getattr(sys, "last_value", None)
            self._end()
            notes.explain_refusal(
                "the job goes on from a checkpoint, but " +
                (f"without computing it fails ({type(error).__name__}: {error})" if error is not None else
                 f"it ended after {self._points.count} of {self._kept['count']} batches"), "begin anew, or " + _advice())
            os._exit(2)

    # ---- the point

    def at_point(self, count: int, way: int) -> None:
        """The script has come to one."""
        if count < self._kept["count"]:
            return
        if way != self._kept["way"]:
            self.refuse("it reads its loaders in another order than it did")
        try:
            self._put_back()
        except (Unknown, ValueError, RuntimeError, KeyError) as error:
            self.refuse(str(error))
        self._end()

    def _put_back(self) -> None:
        from .points import tensors_of

        session, kept = self._session, self._kept
        session.rank = self._rank
        found = Variables()
        now = tensors_of(session, found)
        if [name for name, _ in now] != [name for name, _ in kept["tensors"]]:
            raise Unknown("its models are not those of the checkpoint")
        with torch.no_grad():
            for (name, tensor), (_, value) in zip(now, kept["tensors"]):
                if tensor.shape != value.shape or tensor.dtype != value.dtype:
                    raise Unknown(f"{name} is {tuple(tensor.shape)} of {tensor.dtype}, in the checkpoint {tuple(value.shape)} of {value.dtype}")
                tensor.copy_(value)
        optimizers = session.live_optimizers()
        if [type(each).__name__ for each in optimizers] != [name for name, _ in kept["optimizers"]]:
            raise Unknown("its optimizers are not those of the checkpoint")
        for optimizer, (_, state) in zip(optimizers, kept["optimizers"]):
            optimizer.load_state_dict(state)
            optimizer.zero_grad()
        if set(found.stateful) != set(kept["stateful"]):
            raise Unknown("its schedulers are not those of the checkpoint")
        for name, each in found.stateful.items():
            each.load_state_dict(kept["stateful"][name])
        self._put_back_own(found)
        session._steps = kept["steps"]

    def _put_back_own(self, found: Variables) -> None:
        """What is each worker's own."""
        from poseidon.torch import parts

        mine = parts.decode(self._kept["workers"][self._session.rank])
        found.put_back(mine["values"])
        self._session.streams.put_states(mine["generators"])

    def _end(self) -> None:
        self._points.replay = None
        if self._begun:
            torch.nn.Module.__call__ = self._own_call
            sys.stdout, sys.stderr = self._own_outputs
            logging.disable(self._own_level)
            self._null.close()
        self._outputs.clear()


def _advice() -> str:
    from .points import ADVICE

    return ADVICE


def _writes(mode: Any, flags: Any) -> bool:
    if isinstance(mode, str):
        return any(letter in mode for letter in "wax+")
    return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))


def _shapes(value: Any) -> Any:
    leaves, structure = _pytree.tree_flatten(value)
    return str(structure), tuple((each.shape, each.dtype) if isinstance(each, torch.Tensor) else
                                 each if isinstance(each, (int, float, str, bool, type(None))) else type(each) for each in leaves)


def _as_new(tensor: torch.Tensor) -> torch.Tensor:
    new = tensor.detach().clone()
    if torch.is_grad_enabled() and (new.is_floating_point() or new.is_complex()):
        new.requires_grad_()
        return new * 1  # no leaf: scripts may change it in place
    return new
