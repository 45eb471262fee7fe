# SPDX-License-Identifier: Apache-2.0
"""done_queues by the names that scripts for tf_for_slurm use. In them, change the line of the import:

    from poseidon.slurm import DistributedTFQueueHook"""
# pylint: disable=invalid-name

from .done_queues import DoneQueueHook
from .done_queues import done_queue as create_done_queue
from .done_queues import done_queues as create_done_queues

__all__ = ["QueueManagementHook", "create_done_queue", "create_done_queues"]


class QueueManagementHook(DoneQueueHook):
    """DoneQueueHook with the keywords of such scripts."""

    def __init__(self, NumberOfPS, NumberOfWorkers):
        super().__init__(NumberOfPS, NumberOfWorkers)
