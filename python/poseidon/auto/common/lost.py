# SPDX-License-Identifier: Apache-2.0
"""Workers that were lost while the others went on (--on_worker_death=continue), and what may still be said of the job.

From then on nobody trains on their part of each epoch, so nothing is claimed of later epochs; and one worker that is
left alone has no other to compare its weights with.

Thread: that of the script which trains."""

from __future__ import annotations

from typing import Iterable


class Lost:
    """As this worker has seen it: everybody sees the same."""

    __slots__ = ("world", "_after", "_samples", "_each_once")

    def __init__(self, world: int):
        self.world = world
        self._after: dict[int, int] = {}  # worker: the steps that were complete
        # Of the epochs that everybody was compared in: their samples, and whether each was drawn once.
        self._samples: frozenset[int] = frozenset()
        self._each_once = True

    def __bool__(self) -> bool:
        return bool(self._after)

    def look(self, here: Iterable[bool], steps: int) -> None:
        """Who takes part, by rank, after so many complete steps."""
        for rank, is_here in enumerate(here):
            if not is_here:
                self._after.setdefault(rank, steps)

    def compared_epochs(self, samples: set[int], each_once: bool) -> None:
        """The epochs up to now make up the whole. Of those after a loss nothing is known."""
        if not self:
            self._samples, self._each_once = frozenset(samples), each_once

    def here(self) -> list[int]:
        """The workers that are left."""
        return [rank for rank in range(self.world) if rank not in self._after]

    def claims(self, samples: set[int], each_once: bool) -> list[str]:
        """Of the samples, for people. samples, each_once: of all epochs, where nobody was lost."""
        samples, each_once = self.compared(samples, each_once)
        found = self._losses()
        if samples:
            number = f"{next(iter(samples))} samples" if len(samples) == 1 else "all samples"
            often = "each once per epoch" if each_once else "each as often as one process draws it"
            found.append(f"{self.until_then()}{number}, {often}")
        return found

    def compared(self, samples: set[int], each_once: bool) -> tuple[set[int], bool]:
        """Of what can be said: that of all epochs, or of those before the first loss."""
        return (set(self._samples), self._each_once) if self else (samples, each_once)

    def until_then(self) -> str:
        """Before what held as long as everybody was there."""
        return "until then " if self else ""

    def is_alone(self) -> bool:
        """Whether there are no others to compare with any more."""
        return len(self.here()) <= 1

    def weights(self, bits: str, steps: int) -> str:
        """Of the weights in the end."""
        if self.is_alone():
            return f"weights after {steps} steps are those of one worker, with no other to compare them with"
        return f"weights {bits} on {len(self.here())} workers after {steps} steps"

    def _losses(self) -> list[str]:
        found = []
        for after in sorted(set(self._after.values())):
            ranks = [rank for rank, steps in sorted(self._after.items()) if steps == after]
            who, were, their = ("worker", "was", "its") if len(ranks) == 1 else ("workers", "were", "their")
            found.append(f"{who} {' and '.join(map(str, ranks))} {were} lost after step {after}: from then on {their} part "
                         "of each epoch was not trained on")
        return found
