# SPDX-License-Identifier: Apache-2.0
"""Buffers (running means of batch normalization and the like) follow rank 0, as in
DistributedDataParallel: every rank begins a forward with the buffers that rank 0's last forward left.

They travel with the gradients of each round, so nobody waits for them separately. Rank 0 sends
them, the others add zeros. When rank 0 has no more data (join), the others keep their own."""

from __future__ import annotations

from typing import Any, Iterable

import torch

import poseidon

from .memory import FOREVER


class Buffers:
    """Floating-point buffers go as float32, or float64 where that is their type; integers and
    booleans go as float64, exact below 2^53."""

    def __init__(self, name: str, named: Iterable[tuple[str, torch.Tensor]], timeout: float):
        self.timeout = timeout
        self.parcels: list[_Parcel] = []
        kinds: dict[str, list[torch.Tensor]] = {}
        for _, buffer in named:
            small = buffer.dtype in (torch.float32, torch.float16, torch.bfloat16)
            if buffer.numel() > 0:
                kinds.setdefault("float32" if small else "float64", []).append(buffer)
        self.parcels = [_Parcel(f"{name}/buffers/{kind}", kind, tensors)
                        for kind, tensors in sorted(kinds.items())]

    def begin(self, active: bool) -> None:
        """Sends them, as the forward left them."""
        for parcel in self.parcels:
            parcel.send(active)

    def leave(self) -> None:
        """Nothing to do: begin() has sent them, before a backward computes parts of the forward again."""

    def end(self, active: bool) -> None:
        """Takes rank 0's."""
        for parcel in self.parcels:
            parcel.receive(active, self.timeout)


class _Parcel:
    def __init__(self, name: str, kind: str, tensors: list[torch.Tensor]):
        self.tensors = tensors
        count = sum(tensor.numel() for tensor in tensors) + 1  # the last one: rank 0 has data
        self.flat = torch.zeros(count, dtype=getattr(torch, kind))
        self.table = poseidon.Table(name, shape=(count,), dtype=kind, use="sum", reduce="sum",
                                    nan_policy="allow")
        self.future: Any = None

    def send(self, active: bool) -> None:
        self.flat.zero_()
        if poseidon.rank() == 0 and active:
            torch.cat([tensor.detach().reshape(-1).to(self.flat) for tensor in self.tensors],
                      out=self.flat[:-1])
            self.flat[-1] = 1
        self.future = self.table.transfer(self.flat.data_ptr(), self.flat.data_ptr(),
                                          keep=(self.flat,), timeout_ms=FOREVER)

    def receive(self, active: bool, timeout: float) -> None:
        future, self.future = self.future, None
        future.result(timeout)
        if poseidon.rank() == 0 or not active or self.flat[-1] == 0:
            return
        at = 0
        for tensor in self.tensors:
            # Through .data, so that autograd does not complain: a forward of the same layers may still wait for its
            # backward (two losses, a GAN). Batch normalization itself writes its statistics in this way.
            tensor.data.copy_(self.flat[at:at + tensor.numel()].reshape(tensor.shape))
            at += tensor.numel()
