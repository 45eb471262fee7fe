# SPDX-License-Identifier: Apache-2.0
"""The modules that parameters belong to: an optimizer knows its parameters, not their model."""

from __future__ import annotations

import gc
import weakref
from typing import Sequence

import torch


class Owners:
    """Modules of this process that hold some of the parameters, themselves or in their parts."""

    def __init__(self, parameters: Sequence[torch.Tensor]):
        wanted = {id(parameter) for parameter in parameters}
        modules = [found for found in gc.get_objects()
                   if issubclass(type(found), torch.nn.Module) and "_modules" in found.__dict__]
        parts = {id(part) for module in modules for part in module._modules.values()}
        roots = [module for module in modules if id(module) not in parts
                 and any(id(parameter) in wanted for parameter in module.parameters())]
        order = {id(parameter): number for number, parameter in enumerate(parameters)}
        roots.sort(key=lambda root: (min(order.get(id(each), len(order))
                                         for each in root.parameters()),
                                     type(root).__name__))
        self.names: dict[int, str] = {}  # of parameters, by identity
        for root in roots:
            for name, parameter in root.named_parameters():
                self.names.setdefault(id(parameter), name)
        self.fixed = list({id(parameter): (name, parameter) for root in roots
                           for name, parameter in root.named_parameters()
                           if id(parameter) not in wanted}.values())  # no optimizer has them
        self.buffers = list({id(buffer): (name, buffer) for root in roots
                             for name, buffer in root.named_buffers()}.values())
        self.sparse = [f"{name}.weight" if name else "weight" for root in roots
                       for name, part in root.named_modules()
                       if isinstance(part, (torch.nn.Embedding, torch.nn.EmbeddingBag))
                       and part.sparse]
        self._parts = weakref.WeakSet(part for root in roots for part in root.modules())
        self._holders = weakref.WeakSet(
            module for module in modules
            if any(id(parameter) in wanted for parameter in module._parameters.values()))

    def has(self, kind: type) -> bool:
        """Whether one of them is, or has a part, of a kind."""
        return any(isinstance(part, kind) for part in self._parts)

    def named(self, parameters: Sequence[torch.Tensor]) -> list[tuple[str, torch.Tensor]]:
        """(name, parameter) pairs."""
        return [(self.names.get(id(parameter), f"parameter{number}"), parameter)
                for number, parameter in enumerate(parameters)]

    def training(self, parameters: Sequence[torch.Tensor]) -> bool:
        """Whether a module that holds one of these is in training mode. What has no modules is always."""
        wanted = {id(parameter) for parameter in parameters}
        holders = [module for module in self._holders
                   if any(id(parameter) in wanted for parameter in module._parameters.values())]
        return not holders or any(module.training for module in holders)

    def holds(self, module: torch.nn.Module) -> bool:
        """Whether some of the parameters are in a module, or in its parts."""
        return any(part in self._holders for part in module.modules())
