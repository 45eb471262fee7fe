# SPDX-License-Identifier: Apache-2.0
"""What HuggingFace's Trainer and accelerate do that torch alone does not show.

Its loss is a sum over all words of a step, divided by their number, which it counts in its own batches. Workers
whose texts differ in length would count differently, so the count becomes that of all workers, and a batch with
fewer samples than the others needs no weight of its own any more.

It also asks for the length of its training loader, and takes batches of it, before the model is in training mode.

accelerate's gather_for_metrics cuts the last batch of a loader to the size that the last one of its data has in one
process."""

from __future__ import annotations

import functools
import sys
from typing import TYPE_CHECKING, Any, Callable

import torch

from . import loops
from .lineage import tensors_of
from .shards import COUNTED

if TYPE_CHECKING:
    from .session import TorchSession


def apply(session: TorchSession) -> None:
    """When one of them has been imported. Does nothing the second time."""
    trainer = _class_of("transformers.trainer", "Trainer")
    if trainer is not None:
        trainer.get_train_dataloader = _expecting(session, trainer.get_train_dataloader)
        trainer.train = loops.counting(session, trainer.train, _steps_left)
        module = sys.modules["transformers.trainer"]
        if hasattr(module, "skip_first_batches"):  # makes another one of it, to go on in the middle of an epoch
            module.skip_first_batches = _expecting(session, module.skip_first_batches)
        if hasattr(trainer, "get_batch_samples"):  # since version 4.46; before, each batch had a mean of its own
            trainer.get_batch_samples = _counting(session, trainer.get_batch_samples)
    accelerator = _class_of("accelerate.accelerator", "Accelerator")
    if accelerator is not None:
        accelerator.gather_for_metrics = _keeping_whole(session, accelerator.gather_for_metrics)


def _class_of(module: str, name: str) -> Any:
    """One that is there, and was not seen before."""
    found = getattr(sys.modules.get(module), name, None)
    if found is None or "_poseidon_knows" in vars(found):
        return None
    found._poseidon_knows = True
    return found


def _steps_left(trainer: Any) -> float:
    """After the step that is being made, which it has not counted yet."""
    return trainer.state.max_steps - trainer.state.global_step - 1


def _keeping_whole(session: TorchSession, gather: Callable) -> Callable:
    @functools.wraps(gather)
    def gather_for_metrics(accelerator, *args, **kwargs):
        loader = accelerator.gradient_state.active_dataloader
        if session.active() and session.began_dealt(getattr(loader, "base_dataloader", loader)):
            loader.remainder = 0  # the last batch is this worker's part of the last step: nothing is too much
        return gather(accelerator, *args, **kwargs)

    return gather_for_metrics


def _expecting(session: TorchSession, make: Callable) -> Callable:
    @functools.wraps(make)
    def make_train_dataloader(*args, **kwargs):
        loader = make(*args, **kwargs)
        session.expect_training(getattr(loader, "base_dataloader", loader))  # accelerate's holds the real one
        return loader

    return make_train_dataloader


def _counting(session: TorchSession, take: Callable) -> Callable:
    @functools.wraps(take)
    def get_batch_samples(trainer, batches, *args, **kwargs):
        taken, count = take(trainer, batches, *args, **kwargs)
        if count is None or not session.joined or not session.active():
            return taken, count
        own = [batch for batch in taken if not _is_borrowed(session, batch)]
        if len(own) < len(taken):
            _, own_count = take(trainer, iter(own), *args, **kwargs)
            count = torch.zeros_like(torch.as_tensor(count)) if own_count is None else own_count
        return taken, _mean_count(session, torch.as_tensor(count))

    return get_batch_samples


def _is_borrowed(session: TorchSession, batch: Any) -> bool:
    return any(each.weight == 0.0 for each in session.lineage.sources(tensors_of(batch)))


def _mean_count(session: TorchSession, count: torch.Tensor) -> torch.Tensor:
    """What each worker would have counted if all had the same."""
    from poseidon.torch import reductions

    mean = reductions.allreduce(count.double(), name="words of a step")
    session.lineage.mark([mean], COUNTED)
    session.losses.counted = True
    return mean
