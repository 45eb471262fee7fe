# SPDX-License-Identifier: Apache-2.0
"""Scripts that were written for torchrun: they ask the environment which worker they are, and begin torch.distributed.

psd_run --personality torch tells them. Without it they are told here, at the moment when they would fail: when the
script takes a variable that is not there (sitecustomize.py), or begins torch.distributed without. One that asks whether
there is such a variable hears that there is none, and trains like one process: it is distributed as any other."""

from __future__ import annotations

import os

from ..common import notes


def variables() -> dict[str, str]:
    """What --personality torch sets; rank 0's own port is for the store."""
    address, _, port = os.environ["PSD_PEERS"].split(",")[0].removeprefix("tcp://").rpartition(":")
    rank, world = os.environ["PSD_RANK"], os.environ["PSD_WORLD_SIZE"]
    return {"MASTER_ADDR": address.strip("[]"), "MASTER_PORT": port, "RANK": rank, "WORLD_SIZE": world,
            "LOCAL_RANK": os.environ["PSD_LOCAL_RANK"], "LOCAL_WORLD_SIZE": os.environ["PSD_LOCAL_SIZE"],
            "ROLE_RANK": rank, "ROLE_WORLD_SIZE": world, "ROLE_NAME": "default",
            "GROUP_RANK": os.environ.get("PSD_NODE_RANK", "0"), "NODE_RANK": os.environ.get("PSD_NODE_RANK", "0"),
            "GROUP_WORLD_SIZE": os.environ.get("PSD_NUM_NODES", "1"),
            "TORCHELASTIC_RUN_ID": os.environ.get("PSD_JOB_ID", ""), "TORCHELASTIC_USE_AGENT_STORE": "False"}


def tell_script() -> bool:
    """Sets them, where the script has not. Says whether that could be done."""
    try:
        missing = {name: value for name, value in variables().items() if name not in os.environ}
    except KeyError:  # no worker of psd_run
        return False
    if "RANK" in missing or "WORLD_SIZE" in missing or "MASTER_ADDR" in missing:
        if os.environ["PSD_RANK"] == "0":
            notes.tell(f"{notes.script_name()} was written for torchrun: it is told RANK, WORLD_SIZE, MASTER_ADDR and "
                       "what else that sets, as with --personality torch; --auto off leaves it alone")
    os.environ.update(missing)
    return True


def needs_variables(init_method: str | None, store: object) -> bool:
    """Whether torch.distributed will ask the environment."""
    return store is None and (init_method is None or init_method.startswith("env://"))
