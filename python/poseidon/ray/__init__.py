# SPDX-License-Identifier: Apache-2.0
"""Jobs on a Ray cluster.

    import poseidon.ray

    def train(epochs):
        ...                                   # as under psd_run: poseidon.rank(), poseidon.torch
        return accuracy

    accuracies = poseidon.ray.run(train, (3,), workers=4)

The workers, the servers and the master are actors on the nodes of the cluster. docs/ray.md says how they are placed,
what is told when one is lost, and how the job's secret reaches them.

job        the job as the driver sees it: actors are made, meet, start, and are watched
actors     what they do on their nodes
causes     which of several failures is the cause of the others
daemons    ps_master and ps_server as children of an actor
die_with_parent  how they are ended with it, and actors with their raylets
seal       the job's secret on its way through Ray"""

from .._run import RunError
from .job import run

__all__ = ["RunError", "run"]
