# SPDX-License-Identifier: Apache-2.0
"""An engine in a job with one worker: the mean of one gradient is that gradient, and it stays where it is.

It is not rounded either where gradients travel as another type. Where workers may join later (docs/elastic.md), gradients go
through servers from the start."""

from __future__ import annotations

from typing import Any

from .buckets import Bucket
from .engine import Engine


class AloneEngine(Engine):
    """Nothing travels, and no gradient is looked at. An engine becomes one when it plans its buckets; rounds are those of
    steps from then on."""

    def _push(self, bucket: Bucket) -> None:
        """It is back at once."""
        bucket.missing = len(bucket.slots)
        for slot in bucket.slots:
            slot.ready = False
        self.share_active = float(not self._joined)

    def _hand_over(self) -> None:
        """Nothing is under way."""

    def _has_others(self, optimizer: Any) -> bool:
        """Whatever made a gradient, it is the mean."""
        return False
