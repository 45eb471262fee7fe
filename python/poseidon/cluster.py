# SPDX-License-Identifier: Apache-2.0
"""Where the processes of this job are, for scripts that want a dictionary of them.

    from poseidon.cluster import cluster

    addresses, task_type, task_index = cluster()"""

import json
import os
from typing import NamedTuple

from . import slurm


class Cluster(NamedTuple):
    """addresses: {"ps": ["10.0.0.1:2222", ...], "worker": [...]}, and which of them this process
    is. No addresses: it is alone."""

    addresses: dict
    task_type: str
    task_index: int


def _listed(addresses):
    """A list, also of the sparse form {"1": "host:port"}."""
    if isinstance(addresses, dict):
        return [addresses.get(str(index), "") for index in range(1 + max(map(int, addresses)))]
    return list(addresses)


def _from_tf_config(text):
    try:
        config = json.loads(text)
        task = config.get("task", {})
        return Cluster({role: _listed(those) for role, those in config.get("cluster", {}).items()},
                       str(task.get("type", "worker")), int(task.get("index", 0)))
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"TF_CONFIG: {error}") from error


def _from_psd_run(environment):
    peers = [peer.removeprefix("tcp://") for peer in environment["PSD_PEERS"].split(",")]
    return Cluster({"worker": peers}, environment.get("PSD_ROLE", "worker"),
                   int(environment["PSD_RANK"]))


def cluster(tasks=None, environment=None):
    """The cluster of this process: from TF_CONFIG; from what psd_run gives its workers; or from
    Slurm, where `tasks` lists the roles (all are workers without it)."""
    environment = os.environ if environment is None else environment
    if environment.get("TF_CONFIG"):
        return _from_tf_config(environment["TF_CONFIG"])
    if environment.get("PSD_PEERS") and environment.get("PSD_RANK"):
        return _from_psd_run(environment)
    if "SLURM_STEP_NODELIST" in environment or (tasks is not None and
                                                "SLURM_JOB_NODELIST" in environment):
        if tasks is None:
            counts = environment.get("SLURM_STEP_TASKS_PER_NODE", "1")
            tasks = ["worker"] * sum(slurm.expand_counts(counts))
        return Cluster(*slurm.server_dictionary(tasks, environment))
    return Cluster({}, "worker", 0)
