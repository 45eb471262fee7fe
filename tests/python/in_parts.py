# SPDX-License-Identifier: Apache-2.0
"""Runs a script of PyTorch by itself, which takes several batches to a step, and adds their gradients up in the order in
which the workers of a job do, as rounding depends on it: after every backward the gradients of all workers become their
mean, and each adds its next batch to that.

    in_parts.py WORKERS BATCHES SCRIPT ...    BATCHES is how many each worker takes to a step"""

import runpy
import sys

import torch


class Parts:
    """Of the gradients of a step."""

    def __init__(self, workers, batches):
        self._workers, self._batches = workers, batches
        self._done = 0  # backwards
        self._parameters = []
        self._gradients = {}  # parameter: one of each worker
        self._means = {}  # parameter: of the batches before

    def add_parameters(self, group):
        self._parameters += group["params"]

    def after_backward(self):
        for each in self._parameters:
            if each.grad is not None:
                self._gradients.setdefault(each, []).append(each.grad * self._workers)  # the script has divided by all
                each.grad = None
        self._done += 1
        if self._done % self._workers == 0:
            self._average()
        if self._done % (self._workers * self._batches) == 0:
            for each, mean in self._means.items():
                each.grad = mean
            self._means = {}

    def _average(self):
        for each, found in self._gradients.items():
            if each in self._means:
                found = [self._means[each] + one for one in found]
            self._means[each] = sum(found[1:], found[0]) / self._workers
        self._gradients = {}


def add_in(parts):
    add_group, backward = torch.optim.Optimizer.add_param_group, torch.Tensor.backward

    def add_param_group(optimizer, group):
        add_group(optimizer, group)
        parts.add_parameters(group)

    def by_parts(loss, *args, **kwargs):
        backward(loss, *args, **kwargs)
        parts.after_backward()

    torch.optim.Optimizer.add_param_group, torch.Tensor.backward = add_param_group, by_parts


if __name__ == "__main__":
    add_in(Parts(int(sys.argv[1]), int(sys.argv[2])))
    sys.argv = sys.argv[3:]
    runpy.run_path(sys.argv[0], run_name="__main__")
