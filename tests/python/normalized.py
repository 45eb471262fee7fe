# SPDX-License-Identifier: Apache-2.0
"""Runs a plain script of PyTorch in one process that normalizes as the workers of a job do: normalized.py PARTS SCRIPT ...

Each worker normalizes by its own samples (BatchNorm), and worker 0 has the statistics. One process with the whole batch does
the same here when it is told how many parts that has."""

import runpy
import sys

import torch


def normalize_in_parts(parts):
    """BatchNorm as the workers of a job do it."""
    whole = torch.nn.functional.batch_norm

    def by_parts(inputs, mean, variance, weight=None, bias=None, training=False, momentum=0.1, eps=1e-5):
        if not training:
            return whole(inputs, mean, variance, weight, bias, training, momentum, eps)
        first, *others = inputs.chunk(parts)
        return torch.cat([whole(first, mean, variance, weight, bias, True, momentum, eps),
                          *(whole(part, None, None, weight, bias, True, momentum, eps) for part in others)])

    torch.nn.functional.batch_norm = by_parts


if __name__ == "__main__":
    if int(sys.argv[1]) > 1:
        normalize_in_parts(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_path(sys.argv[0], run_name="__main__")
