# SPDX-License-Identifier: Apache-2.0
"""Which variables of a function that is being executed are still read before they are set anew. The others need not be
known to go on from there: the batch of the last step, and what was computed of it."""

from __future__ import annotations

import dis
from types import CodeType, FrameType
from typing import Any, Iterator

_LEAVES = ("RETURN_VALUE", "RETURN_CONST", "RAISE_VARARGS", "RERAISE", "JUMP_FORWARD", "JUMP_BACKWARD",
           "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_ABSOLUTE")  # nothing goes on behind them
_READS, _SETS = ("LOAD_FAST", "LOAD_NAME", "LOAD_GLOBAL"), ("STORE_FAST", "STORE_NAME", "DELETE_FAST", "DELETE_NAME")


def _names(instruction: dis.Instruction) -> tuple[str, ...]:
    value = instruction.argval
    return value if isinstance(value, tuple) else (value,)


def _effect(instruction: dis.Instruction) -> tuple[set[str], set[str]]:
    """Names that are read, and names that are set before."""
    name = instruction.opname
    if name.startswith("STORE_FAST_LOAD_FAST"):
        stored, loaded = _names(instruction)
        return ({loaded} - {stored}), {stored}
    if name.startswith(_READS):
        return set(_names(instruction)), set()
    if name.startswith(_SETS):
        return set(), set(_names(instruction))
    return set(), set()


def _handlers(code: CodeType) -> Iterator[Any]:
    if code.co_exceptiontable:
        yield from dis._parse_exception_table(code)  # type: ignore[attr-defined]


def _successors(code: CodeType, instructions: list[dis.Instruction]) -> list[list[int]]:
    """By the index of each instruction: of those that may be next."""
    place = {each.offset: number for number, each in enumerate(instructions)}
    handlers = [(each.start, each.end, place[each.target]) for each in _handlers(code)]
    found = []
    for number, each in enumerate(instructions):
        then = [number + 1] if each.opname not in _LEAVES and number + 1 < len(instructions) else []
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            then.append(place[each.argval])
        then += [target for begin, end, target in handlers if begin <= each.offset < end]
        found.append(then)
    return found


def live(frame: FrameType) -> set[str]:
    """Names of variables that are read when the call which the frame is in has returned. Of a module: also what its functions
    read is not among them."""
    code = frame.f_code
    instructions = list(dis.get_instructions(code))
    successors = _successors(code, instructions)
    before: list[set[str]] = [set() for _ in instructions]
    changed = True
    while changed:
        changed = False
        for number in range(len(instructions) - 1, -1, -1):
            reads, sets = _effect(instructions[number])
            after = set().union(*(before[each] for each in successors[number]))
            now = reads | (after - sets)
            if now != before[number]:
                before[number], changed = now, True
    here = max(number for number, each in enumerate(instructions) if each.offset <= frame.f_lasti)
    return set().union(set(code.co_cellvars), set(code.co_freevars), *(before[each] for each in successors[here]))


def read_by(code: CodeType) -> set[str]:
    """Names that a function, or one inside of it, may take from its module."""
    found = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= read_by(constant)
    return found
