# SPDX-License-Identifier: Apache-2.0
"""What a training is made of, kept in memory and given to workers that come: model, optimizer, epoch, position."""

from __future__ import annotations

import copy
from typing import Any, Callable, Iterable

from .. import _codec, _elastic, _parts
from .sampler import ElasticSampler


class Part:
    """One thing of a state that has a state of its own."""

    def __init__(self, thing: Any):
        self.thing = thing
        self._kept: Any = None

    def pack(self) -> Any:
        """What travels: plain values and arrays."""
        return self.thing.state_dict()

    def load(self, state: Any) -> None:
        """It becomes what came."""
        self.thing.load_state_dict(state)

    def keep(self) -> None:
        """Remembers it as it is."""
        self._kept = copy.deepcopy(self.pack())

    def go_back(self) -> None:
        """It becomes what was remembered."""
        self.load(copy.deepcopy(self._kept))


class State:
    """Attributes that all workers have alike. What is given by name becomes an attribute: epoch=0 is state.epoch.

    commit() is where a program may change its workers: between two steps. It remembers the state (restore() goes back to it),
    and lets those in who have come, and those go who were asked to. A worker that dies takes nothing with it: the others go on
    from the step that they are at, not from the last commit."""

    codec: Any = _codec  # how it travels
    parts: Any = _parts  # ... and is saved

    def __init__(self, **attributes: Any):
        self._reset_callbacks: list[Callable[[], Any]] = []
        self._parts: dict[str, Part] = {}
        self._names: list[str] = []  # of plain values
        self._kept: dict[str, Any] = {}
        for name, value in attributes.items():
            setattr(self, name, value)
            part = self.part_of(value)
            if part is not None:
                self._parts[name] = part
            else:
                self._names.append(name)
        self.save()

    def part_of(self, value: Any) -> Part | None:
        """How to keep a thing that has a state of its own; None: it is a plain value."""
        if isinstance(value, ElasticSampler) or (hasattr(value, "state_dict") and hasattr(value, "load_state_dict")):
            return Part(value)
        return None

    def register_reset_callbacks(self, callbacks: Iterable[Callable[[], Any]]) -> None:
        """They are called, in order, whenever workers have come or gone, on all workers, the new ones too."""
        self._reset_callbacks.extend(callbacks)

    def on_reset(self) -> None:
        """Workers have come or gone."""
        self.reset()
        for callback in self._reset_callbacks:
            callback()

    def reset(self) -> None:
        """For classes derived from it: what depends on the number of workers."""

    # ---- in memory

    def commit(self) -> None:
        """Remembers the state, saves it where psd_run --checkpoint wants it now, then check_host_updates()."""
        self.save()
        group = _elastic.current()
        if group is not None and group.running and group.saver is not None:
            group.saver.look(self)
        self.check_host_updates()

    def check_host_updates(self) -> None:
        """If workers have come or gone, elastic.run is told, which begins the function again. It costs nothing if not. Call
        it, or commit(), between steps, on all workers after the same steps."""
        group = _elastic.current()
        if group is not None:
            group.interrupt_if_changed()

    def save(self) -> None:
        """Remembers the state."""
        self._kept = {name: copy.deepcopy(getattr(self, name)) for name in self._names}
        for part in self._parts.values():
            part.keep()

    def restore(self) -> None:
        """Goes back to what was remembered last."""
        for name in self._names:
            setattr(self, name, copy.deepcopy(self._kept[name]))
        for part in self._parts.values():
            part.go_back()

    # ---- to others

    def sync(self) -> bool:
        """Counts the workers, and gives those that have come the state of one that has it. True: some had it before."""
        group = _elastic.current()
        had = group.sync(self.pack, self.unpack) if group is not None else False
        for part in self._parts.values():
            if isinstance(part.thing, ElasticSampler):
                part.thing.reset()
        return had

    def pack(self) -> bytes:
        """All of it."""
        return self.codec.encode(self.content())

    def unpack(self, data: bytes) -> None:
        """Becomes what another worker has packed."""
        self.become(self.codec.decode(data))

    # ---- what it is made of

    def names(self) -> list[str]:
        """Of all that it was given."""
        return [*self._names, *self._parts]

    def things(self) -> list[Any]:
        """Those that have a state of their own."""
        return [part.thing for part in self._parts.values()]

    def content(self) -> dict[str, Any]:
        """All of it, as plain values and arrays."""
        return {"values": {name: getattr(self, name) for name in self._names},
                "parts": {name: part.pack() for name, part in self._parts.items()}}

    def become(self, came: dict[str, Any]) -> None:
        """It becomes what content() was elsewhere."""
        for name, value in came["values"].items():
            setattr(self, name, value)
        for name, part in self._parts.items():
            part.load(came["parts"][name])


ObjectState = State  # Horovod's name
