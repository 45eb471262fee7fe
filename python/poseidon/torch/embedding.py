# SPDX-License-Identifier: Apache-2.0
"""Embedding and EmbeddingBag whose rows are with the servers, by 64-bit id (docs/sparse.md)."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import torch
from torch.nn import functional

import poseidon

from . import rows


# Arguments of torch.nn's layers that have no meaning here, unless they say that nothing of this kind is wanted.
_REFUSED = {
    "max_norm": "a forward would change the rows that it reads, and only pushes change rows",
    "scale_grad_by_freq": "weigh the loss instead: libpsd adds the gradients of an id that comes several times",
    "_weight": "rows begin with init, init_value and seed",
    "_freeze": "call eval() of the layer: it pushes nothing then",
    "device": "rows are with the servers, and come to the device of the ids",
}


def _refuse(name: str, options: dict[str, Any]) -> None:
    for each, why in _REFUSED.items():
        given = options.pop(each, None)
        if given is not None and given is not False:
            raise poseidon.InvalidError(f"sparse table {name}: {each} is not for rows on servers: {why}")
    for harmless in ("norm_type", "sparse"):  # of max_norm; and gradients of rows are never dense
        options.pop(harmless, None)


class _OnServers(torch.nn.Module):
    """A layer without parameters of its own."""

    def __init__(self, name: str, width: int, *, padding_idx: int | None = None, **options: Any):
        super().__init__()
        _refuse(name, options)
        self.padding_idx = padding_idx
        self._rows = rows.open_table(name, width, padding_idx, **options)

    @property
    def table(self) -> poseidon.SparseTable:
        """Where the rows are."""
        return self._rows.table

    def next(self, ids: torch.Tensor) -> None:
        """Names the ids of a forward behind the next step: then their rows come with the answer to its push, which saves a round
        trip. A forward with other ids looks them up."""
        self._rows.announce(self._checked(ids))

    def prefetch(self, ids: torch.Tensor) -> None:
        """Names the ids of a forward to come, as early as a loader knows them, from any thread, and in the order of the forwards.
        Their rows come with the answer to the push of the step before it: earlier they would be old ones."""
        self._rows.prefetch(self._checked(ids))

    def export(self, path: Any, ids: torch.Tensor) -> int:
        """Writes these ids, each once and sorted, and their rows to a file: tensors `ids` and `values` as safetensors, or arrays
        as npz, by the end of its name. Returns how many they are. Any worker, at any time between steps."""
        return self._rows.export(path, self._checked(ids))

    def step(self) -> None:
        """Pushes what backwards have left, in programs in which no optimizer makes steps."""
        self._rows.step()

    def steps_with(self, optimizer: torch.optim.Optimizer | None) -> None:
        """Where several optimizers make steps: with whose the rows are pushed. None: only by step()."""
        self._rows.steps_with(optimizer)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Throws away what backwards have left since the last step."""
        del set_to_none
        self._rows.forget()

    def _of(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int | None]:
        return self._rows.of(self._checked(ids), learns=self.training and torch.is_grad_enabled())

    def _checked(self, ids: torch.Tensor) -> torch.Tensor:
        if not isinstance(ids, torch.Tensor) or ids.dtype not in (torch.int64, torch.int32):
            what = str(ids.dtype) if isinstance(ids, torch.Tensor) else type(ids).__name__
            raise TypeError(f"sparse table {self.table.name}: ids are a tensor of int64 or int32, not {what}")
        return ids.long()

    def extra_repr(self) -> str:
        """As torch.nn.Module."""
        return f"{self.table.name!r}, {self.table.width}, dtype={self.table.dtype}"

    # ---- what a state_dict has: where the rows are

    def get_extra_state(self) -> torch.Tensor:
        """As torch.nn.Module: text in a tensor, which every format for weights can hold."""
        text = json.dumps({"sparse_table": self.table.name, "width": self.table.width, "dtype": self.table.dtype})
        return torch.tensor(list(text.encode()), dtype=torch.uint8)

    def set_extra_state(self, state: torch.Tensor) -> None:
        """As torch.nn.Module: the rows must be those that the state_dict was made with."""
        if not torch.equal(state.cpu(), self.get_extra_state()):
            raise poseidon.StateError(f"this state_dict belongs to {bytes(state.tolist()).decode(errors='replace')}, and the "
                                      f"layer to {bytes(self.get_extra_state().tolist()).decode()}: the rows are with the servers")

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise poseidon.StateError(f"the layer of sparse table {self.table.name} cannot be copied or pickled: its rows are with the "
                                  "servers. Save state_dict() of the model, which says where")


class Embedding(_OnServers):
    """As torch.nn.Embedding, for any 64-bit ids.

    name, width   of the sparse table; every worker makes the layer with the same arguments
    padding_idx   an id that has no row: zeros, which nothing changes; bags leave it out
    options       of poseidon.SparseTable: rule, learning_rate, init, capacity_rows, dtype ...

    The rows are pushed when the optimizer of the rest of the model has made its step; step() and steps_with() are for programs
    without one, or with several."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Shape ids.shape + (width,)."""
        values, places, _ = self._of(ids)
        return functional.embedding(places, values)


class EmbeddingBag(_OnServers):
    """As torch.nn.EmbeddingBag: the sum or the mean of the rows of each bag.

    mode   "mean" or "sum"; the other arguments are those of Embedding"""

    def __init__(self, name: str, width: int, *, mode: str = "mean", include_last_offset: bool = False, **options: Any):
        if mode not in ("mean", "sum"):
            why = ", as torch.nn.EmbeddingBag with sparse=True" if mode == "max" else ""
            raise poseidon.InvalidError(f"sparse table {name}: mode is {mode!r}, expected mean or sum{why}")
        super().__init__(name, width, **options)
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, ids: torch.Tensor, offsets: torch.Tensor | None = None,
                per_sample_weights: torch.Tensor | None = None) -> torch.Tensor:
        """Bags are the rows of ids, or begin at offsets. Shape (bags, width)."""
        values, places, padding = self._of(ids)
        if offsets is not None:
            offsets = offsets.long()
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.to(values.dtype)
        return functional.embedding_bag(places, values, offsets, mode=self.mode, per_sample_weights=per_sample_weights,
                                        include_last_offset=self.include_last_offset, padding_idx=padding)
