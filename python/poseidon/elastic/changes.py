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
    """Nobody is left who has the model. It was with the workers alone, and in psd_run's checkpoints, if there are any."""

    status = Status.ERR_PEER_LOST


BEGIN_AGAIN = ("start the job again. The model was with the workers alone: training goes on from the last checkpoint, if the job was "
               "started with --checkpoint DIR (--resume DIR), from a file that the script has written and reads before elastic.run, or "
               "else from the beginning (docs/elastic.md, \"What to know\")")
