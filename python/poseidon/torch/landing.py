# SPDX-License-Identifier: Apache-2.0
"""Where the means of a bucket lie in host memory before they go up to a CUDA device.

A server on this machine shows its values in the table's view (psd_view), and the device reads them there: nothing is
copied in host memory. Only pinned pages are read at the speed of the link.

Pages of the view are replaced when a server's values come into it, and when that server has died. What was pinned before are
the old pages, which the device would go on reading. So the library is asked each time whether they are the same
(psd_view_changes), and if not, they are pinned anew. This happens when the operation that brought the means has ended: only
an operation of the same chunks replaces pages, and pages of our own have been written by then."""

from __future__ import annotations

import ctypes

import torch

from .buckets import Bucket
from .pinned import Pages, pin, reads_views

_PAGE = 4096


class Landing:
    """Of one bucket. A part of it is named by its first element."""

    def __init__(self, bucket: Bucket):
        self.bucket = bucket
        self.view: torch.Tensor | None = None  # None: means come into the staging buffer
        self.pinned: dict[int, tuple[int, Pages]] = {}  # by part: since how many changes of the view
        self.read: dict[int, torch.cuda.Event] = {}  # by part: when the device has read the means of the last step
        self.is_new = True
        self.refused = False
        if reads_views(bucket.device):
            array = bucket.table.view()
            memory = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
            memory.keep = array
            self.view = torch.frombuffer(memory, dtype=bucket.wire)

    @property
    def in_view(self) -> bool:
        """Whether the means of this step come into the view."""
        return self.view is not None

    def begin_step(self) -> None:
        """Where no server shows anything in the view, or it cannot be pinned, the staging buffer is there already."""
        if self.in_view and (self.refused or (not self.is_new and self.bucket.table.view_changes() == 0)):
            self.view = None
            self._release()
        self.is_new = False

    @property
    def means(self) -> torch.Tensor:
        """Where the means of this step are when they have come."""
        return self.view if self.in_view else self.bucket.host

    def wait_until_read(self, first: int, stream: torch.cuda.Stream) -> None:
        """A server may write the next means of a part as soon as it has the next gradients."""
        if first in self.read:
            stream.wait_event(self.read[first])

    def open(self, first: int, end: int) -> torch.Tensor:
        """The means of a part, which have come, for the device to read now."""
        means = self.means[first:end]
        if self.in_view and not self.refused:
            self._pin(first, means)
        return means

    def _pin(self, first: int, means: torch.Tensor) -> None:
        changes = self.bucket.table.view_changes()
        since, pages = self.pinned.get(first, (-1, None))
        if since == changes:
            return
        if pages is not None:
            del self.pinned[first]
            pages.release()
        pages = pin(self.bucket.device, means.data_ptr(), -(-means.nbytes // _PAGE) * _PAGE, read_only=True)
        if pages is None:
            self.refused = True
        else:
            self.pinned[first] = changes, pages

    def _release(self) -> None:
        """Nothing of the view is pinned any more."""
        for event in self.read.values():
            event.synchronize()
        while self.pinned:
            self.pinned.popitem()[1][1].release()
