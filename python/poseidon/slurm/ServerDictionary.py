# SPDX-License-Identifier: Apache-2.0
"""server_dictionary by the name that scripts for tf_for_slurm use. In them, change the line of the
import:

    from poseidon.slurm import ServerDictionary"""
# pylint: disable=invalid-name

import os
import warnings

from . import server_dictionary

__all__ = ["GetServerDictionary"]


def GetServerDictionary(ListOfTFTasks, InfinyBand=False):
    """(ServerDictionary, task_type, task_index). Which address of a node is that of its InfiniBand
    nobody can know: TFSERVER has one for each node, in their order."""
    if InfinyBand and "TFSERVER" not in os.environ:
        warnings.warn("InfinyBand=True: the addresses are those that the nodes' names have; give those "
                      "of the other network in TFSERVER, one for each node", stacklevel=2)
    return server_dictionary(ListOfTFTasks)
