# SPDX-License-Identifier: Apache-2.0
"""Values that belong to objects, also to those that cannot be hashed or compare by what they hold.

The identity of an object alone is no key: when it is gone, Python gives its identity to the next one, on one worker and
not on another."""

from __future__ import annotations

import weakref
from typing import Any, Callable


class ByIdentity:
    """Thread: any that makes no value of the same object at the same time."""

    def __init__(self) -> None:
        self._values: dict[int, tuple[Any, Any]] = {}  # identity: what keeps it from being given away, and the value

    def of(self, thing: Any, make: Callable[[Any], Any]) -> Any:
        """The value of an object: made when it is asked for first, and forgotten with the object."""
        key = id(thing)
        if key not in self._values:
            self._values[key] = (self._follow(thing, key), make(thing))
        return self._values[key][1]

    def _follow(self, thing: Any, key: int) -> Any:
        try:
            return weakref.ref(thing, lambda _: self._values.pop(key, None))
        except TypeError:  # a list, say: it is held, and so keeps its identity
            return thing
