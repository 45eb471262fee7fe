# SPDX-License-Identifier: Apache-2.0
"""All ranks together: concatenations, and one rank's tensors for all.

Everything here is called by every rank, in the same order. Whatever must arrive bit for bit (weights,
states, names) goes as bytes: two of them make a number below 65,536, which a sum with zeros of all others leaves as it is."""

from __future__ import annotations

import json
import math
from typing import Any, Iterable, Iterator

import numpy as np
import torch

import poseidon

from .. import _elastic
from .._horovod import Sum
from . import codec
from .buckets import dense_strides
from .memory import FOREVER

TIMEOUT_S = 1800.0  # for the slowest rank to come to the same call
_LETTER = 1024  # words of a short message: length and the beginning of the text
_PARCEL = 1 << 20  # words of one piece of a long one
_HEADER = 4  # words that tell the length


class _Post:
    """The tables that bytes travel in, of one context."""

    def __init__(self) -> None:
        self.context = poseidon.context()
        self.tables: dict[int, poseidon.Table] = {}

    def exchange_words(self, words: np.ndarray, size: int) -> np.ndarray:
        """The sum over all ranks of `size` words."""
        if size not in self.tables:
            self.tables[size] = poseidon.Table(f"poseidon.torch/words/{size}", shape=(size,),
                                               dtype="float32", use="sum", reduce=Sum,
                                               nan_policy="allow")
        sent = np.zeros(size, np.float32)
        sent[:len(words)] = words
        out = np.empty(size, np.float32)
        self.tables[size].push_pull(sent, out=out, timeout_ms=FOREVER).result(TIMEOUT_S)
        return out.astype(np.uint16)


_post: _Post | None = None


def _office() -> _Post:
    global _post  # pylint: disable=global-statement
    if _post is None or _post.context is not poseidon.context():
        _post = _Post()
    return _post


def broadcast_bytes(data: bytes | None, root: int = 0) -> bytes:
    """The root's bytes, on every rank."""
    group = _elastic.current()
    if group is not None:
        return group.broadcast(data, root)
    office = _office()
    mine = poseidon.rank() == root
    words = np.zeros(0, np.uint16)
    if mine:
        assert data is not None
        length = np.array([len(data)], np.uint64).view(np.uint16)
        padded = data + b"\0" if len(data) % 2 else data
        words = np.concatenate([length, np.frombuffer(padded, np.uint16)])
    letter = office.exchange_words(words[:_LETTER], _LETTER)
    count = int(letter[:_HEADER].view(np.uint64)[0])
    total = _HEADER + -(-count // 2)
    pieces = [letter]
    for begin in range(_LETTER, total, _PARCEL):
        pieces.append(office.exchange_words(words[begin:begin + _PARCEL], _PARCEL))
    received = np.concatenate(pieces)[_HEADER:total]
    return data if mine and data is not None else received.tobytes()[:count]


def allgather_bytes(data: bytes) -> list[bytes]:
    """Every rank's bytes, by rank."""
    group = _elastic.current()
    if group is not None:
        return group.gather(data)
    return [broadcast_bytes(data, root) for root in range(poseidon.size())]


def broadcast_tensors_(tensors: Iterable[torch.Tensor], root: int = 0) -> None:
    """Overwrites tensors with those of the root: same number, types and shapes everywhere."""
    for batch in _batches(tensors):
        raw = None
        if _elastic.rank() == root:
            raw = b"".join(codec.tensor_bytes(tensor) for tensor in batch)
        received = memoryview(broadcast_bytes(raw, root))
        if _elastic.rank() == root:
            continue
        at = 0
        for tensor in batch:
            size = tensor.numel() * tensor.element_size()
            with torch.no_grad():
                tensor.copy_(codec.tensor_from(received[at:at + size], tensor.dtype, tensor.shape))
            at += size


def _batches(tensors: Iterable[torch.Tensor]) -> Iterator[list[torch.Tensor]]:
    """Many small ones together, so that each does not take a round trip; bounded memory."""
    batch: list[torch.Tensor] = []
    size = 0
    for tensor in tensors:
        batch.append(tensor)
        size += tensor.numel() * tensor.element_size()
        if size >= 2 * _PARCEL:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# ---- the names that Horovod's users know


def _check_constant(tensor: torch.Tensor, what: str) -> None:
    if tensor.requires_grad and tensor.grad_fn is not None and torch.is_grad_enabled():
        raise poseidon.InvalidError(f"{what}: no gradient goes back through it to other ranks: give it "
                                    "tensor.detach(), or compute the loss from what allreduce returns")


def allgather(tensor: torch.Tensor, name: str | None = None) -> torch.Tensor:
    """All ranks' tensors, one after the other along their first dimension, which may differ."""
    _check_constant(tensor, "allgather")
    if tensor.dim() == 0:
        raise ValueError("allgather: a tensor without dimensions cannot be concatenated; "
                         "use tensor.reshape(1)")
    header = json.dumps([str(tensor.dtype), list(tensor.shape)]).encode()
    headers = [json.loads(text) for text in allgather_bytes(header)]
    mine = headers[_elastic.rank()]
    for rank, (dtype, shape) in enumerate(headers):
        if dtype != mine[0] or shape[1:] != mine[1][1:]:
            raise poseidon.MismatchError(
                f"allgather{f' of {name}' if name else ''}: rank {_elastic.rank()} gave {mine[0]} "
                f"{mine[1]}, rank {rank} gave {dtype} {shape}: type and all dimensions but the "
                "first must agree")
    parts = [codec.tensor_from(raw, tensor.dtype, tuple(shape)) for raw, (_, shape)
             in zip(allgather_bytes(codec.tensor_bytes(tensor)), headers)]
    return torch.cat(parts).to(tensor.device)


def broadcast(tensor: torch.Tensor, root_rank: int = 0, name: str | None = None) -> torch.Tensor:
    """The root's tensor on every rank, as a new tensor."""
    _check_constant(tensor, "broadcast")
    out = tensor.detach().clone()
    check_same([(name or "tensor", out)], "broadcast")
    broadcast_tensors_([out], root_rank)
    return out


def broadcast_(tensor: torch.Tensor, root_rank: int = 0, name: str | None = None) -> torch.Tensor:
    """Overwrites a tensor with the root's."""
    check_same([(name or "tensor", tensor)], "broadcast_")
    broadcast_tensors_([tensor.data], root_rank)
    return tensor


def allgather_object(value: Any, name: str | None = None) -> list[Any]:
    """Every rank's value, by rank: of the kinds that broadcast_object takes."""
    del name
    return [codec.decode(text) for text in allgather_bytes(codec.encode(value))]


def broadcast_object(value: Any, root_rank: int = 0, name: str | None = None) -> Any:
    """The root's value on every rank: numbers, text, lists, tuples, dictionaries, tensors."""
    del name
    text = codec.encode(value) if _elastic.rank() == root_rank else None
    return codec.decode(broadcast_bytes(text, root_rank))


def broadcast_parameters(params: Any, root_rank: int = 0) -> None:
    """Overwrites parameters (a state_dict, named_parameters() or parameters()) with those of the
    root."""
    items = params.items() if isinstance(params, dict) else \
        (item if isinstance(item, tuple) else (f"parameter{number}", item)
         for number, item in enumerate(params))
    named = [(name, value.data if isinstance(value, torch.nn.Parameter) else value)
             for name, value in items if isinstance(value, torch.Tensor)]
    check_same(named, "broadcast_parameters")
    broadcast_tensors_([tensor for _, tensor in named], root_rank)


def broadcast_optimizer_state(optimizer: torch.optim.Optimizer, root_rank: int = 0) -> None:
    """Gives an optimizer the state of the root's: moments, steps, learning rates."""
    state = broadcast_object(optimizer.state_dict(), root_rank)
    if _elastic.rank() != root_rank:
        optimizer.load_state_dict(state)


# ---- before anything is sent: do all ranks mean the same?


def _signature(named: Iterable[tuple[str, torch.Tensor]]) -> list[list]:
    return [[name, [str(tensor.dtype).removeprefix("torch."), list(tensor.shape), _order(tensor)]]
            for name, tensor in named]


def _order(tensor: torch.Tensor) -> list[int]:
    """The strides of its gradient, when they are not the usual ones (channels_last)."""
    strides = dense_strides(tensor)
    usual = torch.empty(tensor.shape, device="meta").stride()
    same = all(has == would_have or size <= 1  # one element is in any order
               for has, would_have, size in zip(strides, usual, tensor.shape))
    return [] if same else list(strides)


def check_same(named: Iterable[tuple[str, torch.Tensor]], what: str) -> None:
    """Raises on every rank when one has other names, types or shapes than rank 0, naming the first
    difference and both sides."""
    mine = _signature(named)
    if _elastic.size() == 1:
        return
    everybody = [json.loads(text) for text in allgather_bytes(json.dumps(mine).encode())]
    for rank, theirs in enumerate(everybody):
        if theirs != everybody[0]:
            raise poseidon.MismatchError(f"{what}: {_difference(everybody[0], theirs, rank)}; "
                                         "every rank must build the same model")


def _difference(first: list[list], theirs: list[list], rank: int) -> str:
    by_name, their_names = dict(first), dict(theirs)
    for name, spec in by_name.items():
        if name not in their_names:
            return f"rank 0 has {name} ({_words(spec)}), rank {rank} does not have it"
        if their_names[name] != spec:
            return (f"{name} is {_words(spec)} on rank 0 and {_words(their_names[name])} on rank "
                    f"{rank}")
    for name, spec in their_names.items():
        if name not in by_name:
            return f"rank {rank} has {name} ({_words(spec)}), rank 0 does not have it"
    for one, other in zip(first, theirs):
        if one != other:
            return f"where rank 0 has {one[0]}, rank {rank} has {other[0]}: another order"
    return f"rank 0 has {len(first)} tensors, rank {rank} has {len(theirs)}"


def _words(spec: list) -> str:
    dtype, shape, strides = spec
    order = f", strides {strides}" if strides else ""
    return f"{dtype} {'x'.join(map(str, shape)) or 'scalar'}, {math.prod(shape)} elements{order}"
