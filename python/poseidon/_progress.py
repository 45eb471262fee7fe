# SPDX-License-Identifier: Apache-2.0
"""How training goes, told to the job: step, how many there will be, loss, samples a second, memory of the GPU. psd_run
shows it."""

from __future__ import annotations

import math
import sys
import time
from typing import Any, Callable

# Numbers are told twice a second by libpsd: to look more often would only cost time, and on a GPU
# reading a loss waits for it.
EVERY_S = 0.5


class Progress:
    """Of one training loop."""

    def __init__(self) -> None:
        self.loss: Any = None  # of the last step: a number, or a tensor of one
        self.remaining: Callable[[], float] | None = None  # steps after this one; infinite: the library does not know
        self.trained_on: Callable[[], float] | None = None  # samples of all steps and workers, where somebody counts them
        self._asked = self.remaining  # last
        self._total = 0.0
        self._samples = 0.0  # since they were told
        self._trained_on = 0.0  # when they were
        self._told_at: float | None = None  # nobody knows how long the first step took
        self._due_at = 0.0

    def step(self, step: int, samples: int = 0) -> None:
        """A step is over, of so many samples over all workers; 0: not known, or see trained_on."""
        import poseidon

        poseidon.report(step)
        self._samples += samples
        now = time.monotonic()
        if now >= self._due_at or self.remaining is not self._asked:
            self._due_at = now + EVERY_S
            self._tell(poseidon.report, step, now)

    def _tell(self, report: Any, step: int, now: float) -> None:
        self._asked = self.remaining
        left = _steps_left(self.remaining)
        total = step + left if left >= 0 and math.isfinite(left) else 0.0
        if total != self._total:
            self._total = total
            report(step, "steps_total", total)
        if self.loss is not None:
            report(step, "loss", float(self.loss))
            self.loss = None
        if self.trained_on is not None:
            before, self._trained_on = self._trained_on, self.trained_on()
            self._samples += self._trained_on - before
        if self._samples > 0 and self._told_at is not None and now > self._told_at:
            report(step, "samples_per_s", self._samples / (now - self._told_at))
        self._samples, self._told_at = 0.0, now
        used = _gpu_bytes()
        if used > 0:
            report(step, "gpu_bytes", used)


def _steps_left(remaining: Callable[[], float] | None) -> float:
    """What a library says; infinite: it does not know. Its answer is computed by code that is not ours, of any version:
    a training goes on whatever comes of it."""
    try:
        return math.inf if remaining is None else float(remaining())
    except Exception:  # pylint: disable=broad-exception-caught
        return math.inf


def _gpu_bytes() -> int:
    """What PyTorch has on this worker's GPU; 0: it uses none. TensorFlow takes all there is."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "cuda") or not torch.cuda.is_initialized():
        return 0
    return torch.cuda.memory_allocated()


def loss_of(tensors: Any) -> Any:
    """What backward() was called with, if it is one number: without its graph. Else None."""
    if hasattr(tensors, "numel") and tensors.numel() == 1:
        return tensors.detach()
    return None
