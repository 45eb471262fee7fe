# SPDX-License-Identifier: Apache-2.0
"""SyncBatchNorm: normalizes by the samples of all workers, as one process with W times the batch would.

Each worker sends its count, mean and sum of squared deviations of every channel, in one exchange, and combines
everybody's. Going back there is one more: what the samples of all workers do to the loss by way of the mean and the
variance.

The gradient of a job is the mean of the workers' gradients, each weighed by its share of the samples, and that is done
where parameters get them. So what goes back from here is such that the same holds behind it. A worker that computes
with somebody else's samples for want of its own adds nothing.

Thread: that of the script, and autograd's in backward."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import torch
from torch.autograd.function import once_differentiable

if TYPE_CHECKING:
    from .session import TorchSession


def apply(session: TorchSession) -> None:
    """From now on layers of this kind follow the session."""
    own = torch.nn.SyncBatchNorm.forward

    @functools.wraps(own)
    @torch.compiler.disable
    def forward(layer, values):
        together = layer.training and torch.is_grad_enabled() and session.joined and session.active()
        return _forward(session, layer, values) if together else own(layer, values)

    torch.nn.SyncBatchNorm.forward = forward


def _forward(session: TorchSession, layer: Any, values: torch.Tensor) -> torch.Tensor:
    layer._check_input_dim(values)
    layer._check_non_zero_input_channels(values)
    mean, variance, count = _statistics(session, values)
    if layer.track_running_stats:
        _follow(layer, mean, variance, count)
    return _Normalize.apply(session, values, layer.weight, layer.bias, mean, variance, count, layer.eps)


def _flat(values: torch.Tensor) -> torch.Tensor:
    """One row for each channel, in a type that adds up well."""
    rows = values.detach().transpose(0, 1).reshape(values.shape[1], -1)
    return rows if rows.dtype == torch.float64 else rows.float()


def _statistics(session: TorchSession, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean and variance of each channel over the samples of all workers, and how many values they are of."""
    from poseidon.torch import reductions

    rows = _flat(values)
    mine = torch.zeros(session.world, 2, len(rows), dtype=torch.float64)
    counts = torch.zeros(session.world, dtype=torch.float64)
    if not session.has_borrowed(values) and rows.shape[1] > 0:
        mean = rows.mean(1, keepdim=True)
        mine[session.rank, 0] = mean[:, 0]
        mine[session.rank, 1] = (rows - mean).square().sum(1)
        counts[session.rank] = rows.shape[1]
    told = reductions.allreduce(torch.cat([mine.flatten(), counts]), op="sum")
    means, deviations = told[:mine.numel()].reshape(mine.shape).unbind(1)
    counts = told[mine.numel():, None]
    count = counts.sum().item()
    mean = (means * counts).sum(0) / count
    variance = (deviations + counts * (means - mean).square()).sum(0) / count
    return mean.to(rows), variance.to(rows), count


def _follow(layer: Any, mean: torch.Tensor, variance: torch.Tensor, count: float) -> None:
    """Running statistics, as BatchNorm keeps them."""
    with torch.no_grad():
        layer.num_batches_tracked.add_(1)
        part = layer.momentum if layer.momentum is not None else 1.0 / layer.num_batches_tracked.item()
        # By their data, as batch normalization writes them: a forward before may wait for its backward.
        layer.running_mean.data.lerp_(mean.to(layer.running_mean), part)
        unbiased = variance * (count / max(count - 1, 1))
        layer.running_var.data.lerp_(unbiased.to(layer.running_var), part)


class _Normalize(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, session: TorchSession, values: torch.Tensor, weight: Any, bias: Any, mean: torch.Tensor,
                variance: torch.Tensor, count: float, eps: float) -> torch.Tensor:
        """Each channel with mean 0 and variance 1, then as weight and bias say."""
        shape = (1, -1, *(1 for _ in values.shape[2:]))
        scale = torch.rsqrt(variance + eps)
        normalized = (values.to(mean) - mean.view(shape)) * scale.view(shape)
        ctx.session, ctx.count, ctx.shape, ctx.dtype = session, count, shape, values.dtype
        ctx.kind = None if weight is None else weight.dtype
        ctx.save_for_backward(normalized, scale if weight is None else scale * weight)
        if weight is not None:
            normalized = torch.addcmul(bias.to(mean).view(shape), normalized, weight.to(mean).view(shape))
        return normalized.to(values.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple:
        """Every worker comes here: all have computed a loss from it."""
        from poseidon.torch import reductions

        normalized, scale = ctx.saved_tensors
        gradient = gradient.to(normalized)
        along = torch.stack([_flat(gradient).sum(1), _flat(gradient * normalized).sum(1)])
        weight = ctx.session.gradient_weight()
        told = reductions.allreduce((along * weight).double(), op="sum") / ctx.count
        by_mean, by_variance = told.to(along) / weight if weight != 0 else torch.zeros_like(along)
        back = gradient - by_mean.view(ctx.shape) - normalized * by_variance.view(ctx.shape)
        back = back * scale.view(ctx.shape)
        to_bias, to_weight = (None, None) if ctx.kind is None else along.to(ctx.kind)
        return None, back.to(ctx.dtype), to_weight, to_bias, None, None, None, None
