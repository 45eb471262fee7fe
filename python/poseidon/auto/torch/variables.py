# SPDX-License-Identifier: Apache-2.0
"""The variables of a script of PyTorch, as common/variables.py has them: with tensors, models, schedulers and generators of torch."""

from __future__ import annotations

import functools
import zlib
from typing import Any, Iterator

import torch

from ..common import variables
from ..common.variables import SMALL, Unknown

__all__ = ["Unknown", "Variables"]

# What does not change, or is right when the script has run as far as it had. Data are compared by the witness's fingerprint.
_RIGHT = (torch.device, torch.dtype, torch.Size, torch.utils.data.Sampler, torch.utils.data.DataLoader,
          torch.utils.data.dataloader._BaseDataLoaderIter, torch.autograd.graph.Node, torch.optim.Optimizer)


class Variables(variables.Variables):
    """Of a script, now."""

    libraries = ("torchvision", "torch.utils.data", "torch._C", "torch.optim", "torch.nn.modules.loss")

    def __init__(self) -> None:
        self.modules: dict[str, torch.nn.Module] = {}
        self.stateful: dict[str, Any] = {}  # have state_dict() and load_state_dict()
        super().__init__()

    def _walks_of_framework(self) -> Iterator[tuple[Any, Any]]:
        yield torch.Tensor, self._walk_tensor
        yield torch.nn.Module, self._walk_network
        yield (torch.optim.lr_scheduler.LRScheduler, torch.optim.lr_scheduler.ReduceLROnPlateau, torch.amp.GradScaler), self._walk_stateful
        yield torch.Generator, lambda name, value, *_: self._keep(name, value.get_state(), value.set_state)
        yield _RIGHT, lambda *_: None

    def _walk_tensor(self, name: str, value: torch.Tensor, put: Any, _depth: int) -> None:
        if isinstance(value, torch.nn.Parameter):
            return  # of a module, or of an optimizer
        if value.layout != torch.strided:
            raise Unknown(f"its variable {name} is a sparse tensor")
        if value.numel() * value.element_size() <= SMALL:
            self._keep(name, value.detach().cpu().clone(), functools.partial(_put_tensor, value, put))
        else:
            self._keep(name, ("large", zlib.crc32(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())), None)

    def _walk_network(self, name: str, value: torch.nn.Module, _put: Any, depth: int) -> None:
        self.modules[name] = value
        for path, module in value.named_modules():
            self._seen[id(module)] = name
            for attribute, held in sorted(module.__dict__.items()):
                if not attribute.startswith("_") and attribute != "training":
                    self._walk(f"{name}.{path}.{attribute}", held, functools.partial(setattr, module, attribute), depth + 1)

    def _walk_stateful(self, name: str, value: Any, _put: Any, _depth: int) -> None:
        self.stateful[name] = value

    def _walk_other(self, name: str, value: Any, depth: int) -> None:
        if not isinstance(value, torch.utils.data.Dataset):
            super()._walk_other(name, value, depth)

    def _arrays_are_same(self, now: Any, kept: Any) -> bool | None:
        if not isinstance(now, torch.Tensor) and not isinstance(kept, torch.Tensor):
            return None
        return isinstance(now, torch.Tensor) and isinstance(kept, torch.Tensor) and now.dtype == kept.dtype and \
            now.shape == kept.shape and torch.equal(now, kept)


def _put_tensor(now: torch.Tensor, put: Any, value: torch.Tensor) -> None:
    if now.is_leaf and not now.requires_grad and now.dtype == value.dtype and now.shape == value.shape:
        now.copy_(value)
    elif put is not None:
        put(value.to(now.device))
    else:
        raise Unknown("a tensor inside of a tuple has changed")
