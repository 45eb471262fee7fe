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
_READ = (torch.float32, torch.float64)  # of which Python reads single elements


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


class _Places:
    """Which weights of one parameter are looked at. On the processor they are read where they lie: an operation of
    torch for eight numbers takes longer than all the rest that is done with them."""

    def __init__(self, parameter: torch.Tensor, number: int):
        step = max(1, parameter.numel() // SAMPLE)
        self.address = parameter.data_ptr()  # another one: the script has given the parameter other memory
        self._places = torch.arange(number % step, parameter.numel(), step, device=parameter.device)[:SAMPLE]
        self._numbers: list[int] = []
        self._memory: memoryview | None = None
        if parameter.device.type == "cpu" and parameter.dtype in _READ and parameter.is_contiguous():
            self._numbers = self._places.tolist()
            self._memory = memoryview(parameter.detach().reshape(-1).numpy())

    def read(self, parameter: torch.Tensor) -> Later | list[float]:
        """Their values."""
        memory = self._memory
        if memory is None:
            return Later(torch.take(parameter.detach(), self._places))
        return [memory[number] for number in self._numbers]


class Weights:
    """Of all parameters that are trained."""

    def __init__(self, parameters: list[torch.Tensor]):
        self._parameters = parameters
        self._places: dict[int, _Places] = {}  # by the number of a parameter
        self._signs = _signs(SAMPLE, "cpu").tolist()

    def sample(self, number: int) -> Later | list[float]:
        """A few of them, of another parameter for every number."""
        number %= len(self._parameters)
        parameter = self._parameters[number]
        places = self._places.get(number)
        if places is None or places.address != parameter.data_ptr():
            places = self._places[number] = _Places(parameter, number)
        return places.read(parameter)

    def as_one(self, sampled: Later | list[float]) -> tuple[float, float]:
        """A sample as one number, and what that is measured by."""
        values = sampled if isinstance(sampled, list) else sampled.take()
        terms = list(map(operator.mul, self._signs, values))
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
