# SPDX-License-Identifier: Apache-2.0
"""Random generators that all workers set as worker 0 has them, so that samplers draw alike.

After torch.manual_seed() in the script this changes nothing; without it, workers would shuffle
differently and see some samples twice and others never."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from .samplers import samplers_of


def _generators(loader: Any) -> list[torch.Generator]:
    """Those that belong to the loader and its samplers, each once."""
    found = {}
    for owner in (loader, *samplers_of(loader)) if loader is not None else ():
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator):
            found[id(generator)] = generator
    return list(found.values())


def state(loader: Any) -> dict[str, Any]:
    """As plain values and tensors."""
    version, words, gauss = random.getstate()
    found = {"torch": torch.get_rng_state(),
             "generators": [each.get_state() for each in _generators(loader)],
             "random": [version, list(words), gauss], "numpy": None}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        if kind == "MT19937":
            found["numpy"] = [keys.tolist(), *rest]
    return found


def restore(loader: Any, found: dict[str, Any]) -> None:
    """Takes over what state() told on another worker."""
    torch.set_rng_state(found["torch"])
    for generator, told in zip(_generators(loader), found["generators"]):
        generator.set_state(told)
    version, words, gauss = found["random"]
    random.setstate((version, tuple(words), gauss))
    if found["numpy"] is not None and "numpy" in sys.modules:
        keys, *rest = found["numpy"]
        numpy = sys.modules["numpy"]
        numpy.random.set_state(("MT19937", numpy.array(keys, "uint32"), *rest))
