# SPDX-License-Identifier: Apache-2.0
"""What is raised when the workers change."""

from __future__ import annotations

from .._errors import Error, Status


class HostsUpdatedInterrupt(Exception):
    """Workers have come or gone: elastic.run catches it, deals everything out again, and calls the function again. Horovod's
    name."""


class Ended(Exception):
    """The others ended their training before this worker took part in it."""


class StateLost(Error):
    """Nobody is left who has the model."""

    status = Status.ERR_PEER_LOST
