# SPDX-License-Identifier: Apache-2.0
"""A run of examples/mnist: the training must end with the weights, to the bit, of one without deaths."""

import os
import pathlib
import re
import shutil

from helpers import Job, nodes_at, saved_digests

from run import SETTINGS, Run, Wrong

EPOCHS = 12
TABLES = 4
END_S = 240


def command(directory):
    program = pathlib.Path(os.environ["PSD_BIN"]) / "examples" / "mnist"
    return [program, "--epochs", EPOCHS, "--save", directory / "saved"]


class MnistRun(Run):
    seconds_to_end = END_S

    def start(self):
        plan = self.plan
        self.job = Job(self.directory / "job", *SETTINGS, "--workers", plan.workers, "--servers", plan.servers, "--replicas", 1,
                       *(["--transport=tcp"] if plan.way == "mnist tcp" else []), "-o", "logs", "--", *command(self.directory),
                       environment={"PSD_FAIL_BOARD": str(self.board.path)})

    def steps(self):
        """As the master knows them; what it told last, while it is away."""
        if self.job is not None and not self.has_ended():
            nodes = nodes_at(self.job.master_address())
            told = [node["step"] for node in nodes if node["role"] == "worker"]
            if told and None not in told:  # a master that has just returned knows no steps
                self.known = told
        return self.known

    def pushes(self):
        return TABLES * sum(self.steps())

    def recoveries(self, noted):
        return []  # its workers write no tape

    def stop(self):
        return None  # it ends by itself

    def count(self, said):
        if not re.search(r"MNIST accuracy: 0\.\d+", said):
            return 0, 0, "no accuracy was told"
        self.digest = " ".join(saved_digests(self.directory / "saved"))
        return 0, 0, ""

    known = [0]


def reference(directory, workers):
    """The weights of a training without deaths."""
    path = pathlib.Path(directory) / f"mnist-{workers}"
    if not path.exists():
        work = path.with_suffix(".part")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        job = Job(work / "job", "--workers", workers, "--servers", 1, "-o", "logs", "--", *command(work))
        if job.wait(END_S) != 0:
            raise Wrong(f"the calm training failed:\n{job.stderr()}")
        path.write_text(" ".join(saved_digests(work / "saved")))
        shutil.rmtree(work)
    return path.read_text()
