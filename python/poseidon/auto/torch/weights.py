# SPDX-License-Identifier: Apache-2.0
"""Weights as a few numbers that workers compare.

Nobody waits for a GPU: what is computed there is copied behind its back, and told one round later, when the
gradients of that round have long been back."""

from __future__ import annotations

import math
import operator
import zlib
from typing import Any, Iterable

import torch

SAMPLE = 8  # weights of one tensor a round
_PATTERN = 4096


def digest(tensors: Iterable[torch.Tensor]) -> int:
    """A checksum of their bits."""
    found = 0
    for tensor in tensors:
        raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        found = zlib.crc32(raw.numpy(), found)
    return found


def _signs(count: int, device: Any) -> torch.Tensor:
    """A direction that no weights follow by chance."""
    return torch.cos(torch.arange(count, dtype=torch.float32, device=device) * 2.399963)


def _measure(tensor: torch.Tensor) -> torch.Tensor:
    """The square of its length, and how far it reaches in one direction."""
    flat = tensor.detach().reshape(-1)
    flat = flat if flat.dtype == torch.float64 else flat.float()
    rows = flat.numel() // _PATTERN
    pattern = _signs(_PATTERN, flat.device).to(flat.dtype)
    rest = flat[rows * _PATTERN:]
    along = torch.dot(rest, pattern[:rest.numel()])
    if rows > 0:
        sums = torch.mv(flat[:rows * _PATTERN].view(rows, _PATTERN), pattern)
        along = along + torch.dot(sums, _signs(rows, flat.device).to(flat.dtype))
    return torch.stack((torch.linalg.vector_norm(flat, dtype=torch.float64) ** 2, along.to(torch.float64)))


class Later:
    """Numbers that are under way from where they were computed."""

    def __init__(self, numbers: torch.Tensor):
        self._event = None
        if numbers.device.type == "cuda":
            self._numbers = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
            self._numbers.copy_(numbers, non_blocking=True)
            self._event = torch.cuda.Event()
            self._event.record(torch.cuda.current_stream(numbers.device))
        else:
            self._numbers = numbers

    def take(self) -> list[float]:
        """They have arrived when the next round begins."""
        if self._event is not None:
            self._event.synchronize()
        return self._numbers.tolist()


class _Window:
    """The values of one parameter where they lie, as integers of the same bits."""

    def __init__(self, parameter: torch.Tensor):
        self.address = parameter.data_ptr()  # another one: the script has given the parameter other memory
        raw = memoryview(parameter.detach().reshape(-1).view(torch.uint8).numpy())
        self.bits = raw.cast({1: "B", 2: "H", 4: "I", 8: "Q"}[parameter.element_size()])


def _lies_here(parameter: torch.Tensor) -> bool:
    return parameter.device.type == "cpu" and parameter.layout == torch.strided and parameter.is_contiguous()


class Weights:
    """Of all parameters that are trained."""

    def __init__(self, parameters: list[torch.Tensor]):
        self._parameters = parameters
        self._windows: list[_Window] = []  # by the number of a parameter
        self._signs = _signs(SAMPLE, "cpu").tolist()
        # On the processor they are read where they lie: an operation of torch for eight numbers takes longer than all
        # the rest that is done with them.
        self.lie_here = False
        self.look_where_they_lie()
        self._begins = [max(1, each.numel() - SAMPLE + 1) for each in parameters]  # where a sample may begin

    def look_where_they_lie(self) -> None:
        """The script may have given parameters other memory."""
        self.lie_here = all(map(_lies_here, self._parameters))
        if self.lie_here and [each.address for each in self._windows] != [each.data_ptr() for each in self._parameters]:
            self._windows = [_Window(each) for each in self._parameters]

    def samples(self, number: int, count: int) -> list[memoryview]:
        """The bits of a few of them, of another parameter for every number from this one on, as they are whenever these
        are looked at; empty: they do not lie here. That for the last number comes first."""
        return [self._some(each) if self.lie_here else memoryview(b"") for each in reversed(range(number, number + count))]

    def _some(self, number: int) -> memoryview:
        turn, index = divmod(number, len(self._parameters))
        begin = turn * SAMPLE % self._begins[index]
        return self._windows[index].bits[begin:begin + SAMPLE]

    def sample(self, number: int) -> Later:
        """Those for a number, to be looked at themselves."""
        turn, index = divmod(number, len(self._parameters))
        begin = turn * SAMPLE % self._begins[index]
        return Later(self._parameters[index].detach().reshape(-1)[begin:begin + SAMPLE].clone())

    def as_one(self, sampled: Later) -> tuple[float, float]:
        """A sample as one number, and what that is measured by."""
        terms = list(map(operator.mul, self._signs, sampled.take()))
        return sum(terms), sum(map(abs, terms))

    def measure(self) -> Later:
        """Length and direction of all of them; see as_vector."""
        found = [_measure(parameter) for parameter in self._parameters]
        return Later(torch.stack([each.to(found[0].device, non_blocking=True) for each in found]).sum(0))

    @staticmethod
    def as_vector(measured: Later) -> tuple[float, float]:
        """The length of all of them as one vector, and how far it reaches in one direction."""
        square, along = measured.take()
        return math.sqrt(square) if square >= 0 else math.nan, along

    def digest(self) -> int:
        """Of their bits. Waits for a GPU: before the first step, and in the end."""
        return digest(self._parameters)
