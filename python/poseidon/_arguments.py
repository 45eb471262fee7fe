# SPDX-License-Identifier: Apache-2.0
"""Arguments that become fields of C structures. ctypes itself takes -1 for the largest number, any text for a yes, and names
nobody whose argument it refuses."""

from __future__ import annotations

import operator
from ctypes import Structure, c_double, c_int32, c_uint32, c_uint64, sizeof
from typing import Any, TypeVar

from ._errors import InvalidError

_Kind = TypeVar("_Kind", bound=Structure)
_WHOLE: dict[Any, tuple[int, int]] = {c_uint32: (0, 2**32 - 1), c_uint64: (0, 2**64 - 1), c_int32: (-2**31, 2**31 - 1)}


def filled(kind: type[_Kind], what: str, **fields: Any) -> _Kind:
    """A structure with these fields. A number that does not fit is refused by its name."""
    types = dict(each[:2] for each in kind._fields_)
    made = kind(struct_size=sizeof(kind))
    for name, value in fields.items():
        if types[name] in _WHOLE:
            value = _whole(f"{what}: {name}", value, *_WHOLE[types[name]])
        elif types[name] is c_double:
            value = _real(f"{what}: {name}", value)
        setattr(made, name, value)
    return made


def yes_or_no(what: str, value: Any) -> bool:
    if value not in (False, True):  # NumPy's, 0 and 1, too
        raise InvalidError(f"{what} is {value!r}, expected True or False")
    return bool(value)


def _whole(what: str, value: Any, least: int, most: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is {value!r}, expected a whole number") from None
    if not least <= number <= most:
        raise InvalidError(f"{what} is {number}, expected {least} to {most}")
    return number


def _real(what: str, value: Any) -> float:
    try:
        if isinstance(value, (str, bytes)):  # float() reads text
            raise TypeError
        return float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{what} is {value!r}, expected a number") from None
