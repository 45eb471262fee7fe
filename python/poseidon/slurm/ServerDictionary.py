# SPDX-License-Identifier: Apache-2.0
"""server_dictionary under the name that scripts for tf_for_slurm use. In such a script, change only
the import:

    from poseidon.slurm import ServerDictionary"""
# pylint: disable=invalid-name

import os
import warnings

from . import server_dictionary

__all__ = ["GetServerDictionary"]


def GetServerDictionary(ListOfTFTasks, InfinyBand=False):
    """(ServerDictionary, task_type, task_index). We cannot tell which address of a node is on its
    InfiniBand: TFSERVER gives one address for each node, in the order of the nodes."""
    if InfinyBand and "TFSERVER" not in os.environ:
        warnings.warn("InfinyBand=True: the addresses are those that the nodes' names have; give those "
                      "of the other network in TFSERVER, one for each node", stacklevel=2)
    return server_dictionary(ListOfTFTasks)
