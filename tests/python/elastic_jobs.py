# SPDX-License-Identifier: Apache-2.0
"""Jobs whose workers come and go, for tests."""

import os
import re
import signal
import sys

from conftest import PACKAGE_PATH
from helpers import BRISK, Hand


class Job(Hand):
    """A job whose workers run a script, and come and go."""

    def __init__(self, directory, secret, workers, *rules, servers=2, python=sys.executable):
        super().__init__(directory)
        self.environment = {"PSD_SECRET_FILE": str(secret)}
        self.python = python
        self.count = workers
        self.daemons = [self.master(workers, servers, *BRISK, "--max_workers=64", "--on_worker_death=continue", *rules),
                        *(self.server(index) for index in range(servers))]

    def begin(self, script, *arguments, rank="", name=None, **variables):
        """A worker; without a rank it joins."""
        name = name or (f"worker{rank}" if rank != "" else f"newcomer{len(self.processes)}")
        return self.start(name, self.python, script, *arguments, environment={
            "PSD_MASTER_ADDRESS": self.address, "PSD_RANK": str(rank), "PYTHONPATH": str(PACKAGE_PATH),
            "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", **variables})

    def begin_all(self, script, *arguments):
        """Those that the job begins with."""
        return [self.begin(script, *arguments, rank=rank) for rank in range(self.count)]

    def kill(self, process):
        """Without warning; also one that a warm server has forked, whose client does not pass that on."""
        found = re.search(r"^pid (\d+)", process.output(), re.MULTILINE)
        os.kill(int(found.group(1)) if found else process.pid, signal.SIGKILL)


def ended(processes, seconds=90):
    """Their last lines but what is each one's own."""
    for process in processes:
        assert process.wait(seconds) == 0, f"{process.name}\n{process.output()[-3000:]}"
    return [re.findall(r"^DONE .*", process.output(), re.MULTILINE)[-1] for process in processes]
