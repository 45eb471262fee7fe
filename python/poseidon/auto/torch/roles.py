# SPDX-License-Identifier: Apache-2.0
"""What the loaders of a script of PyTorch are read for: whether their batches are dealt out, because they are trained on, or
everybody gets all of them. That is known for certain when something was differentiated; until then it is what the mode of
the models, a sampler, or a library says."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any, Iterator

from ..common import notes
from ..common.session import Session
from . import samplers
from .in_use import parameters_of

if TYPE_CHECKING:
    from .in_use import InUse
    from .lineage import Lineage
    from .loose import Loose
    from .models import Owners
    from .shards import Shard


class Roles(Session):
    """A part of TorchSession. Thread: that of the script which trains."""

    _ahead: bool  # the script takes batches before it has trained on those before
    _in_use: InUse
    lineage: Lineage | None
    loose: Loose | None

    def __init__(self, watch: Any):
        super().__init__(watch)
        self._roles = weakref.WeakKeyDictionary()  # loader: whether it was dealt out when it was last read
        self._began_dealt = weakref.WeakKeyDictionary()  # also when it was an evaluation after all
        # Loaders that something was trained on: how many batches were taken before the first round.
        self._trainers = weakref.WeakKeyDictionary()
        self._expected = weakref.WeakSet()  # loaders of which a library says that they are for training
        self._lengths = weakref.WeakKeyDictionary()  # loader: what it was told, and whether that are steps of the job
        self._told_lengths = weakref.WeakKeyDictionary()
        self._evaluating = weakref.WeakSet()  # loaders of which a library says that they are not for training
        self._told_order = False
        self._evaluations = 0  # that a library has begun and not ended

    def live_optimizers(self) -> list:
        """Those that still exist, in the order of their making."""
        raise NotImplementedError

    def rounds(self) -> int:
        """How often gradients were averaged."""
        raise NotImplementedError

    def _look_up_owners(self) -> Owners:
        raise NotImplementedError

    # ---- as far as it is known

    def _can_train(self) -> bool:
        import torch

        return torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and \
            not self._evaluations and bool(self.live_optimizers())

    def _is_training_now(self) -> bool:
        return self._can_train() and self._in_training_mode()

    def _in_training_mode(self) -> bool:
        """Whether models that are trained now are, in part at least."""
        parameters = [each for optimizer in self._in_use.among(self.live_optimizers())
                      for each in parameters_of(optimizer)]
        return self._look_up_owners().training(parameters)

    def may_train(self, loader: Any) -> bool:
        """A loader is about to be read: whether its batches are dealt out. What has trained before is, in
        whatever mode the models are: some loops call train() later. Should nothing come of it but an evaluation,
        that sees everything (before_next)."""
        import torch

        if not self.active() or self._is_child() or self._is_evaluation(loader):
            return False
        if not self.joined and torch.distributed.is_available() and \
                torch.distributed.is_initialized():
            self.step_aside("the script begins torch.distributed itself")
            return False
        if not self._ahead:
            self.lineage.rest()
        training = self._can_train() and (self.likely_trains(loader) or self._in_training_mode())
        self._roles[loader] = self._began_dealt[loader] = training
        if training:
            self._check_loader(loader)
        elif torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
            self.loose.undealt = True
        return training

    def has_persistent_workers(self) -> bool:
        """Whether processes that prepare what is trained on live longer than an epoch."""
        return any(loader.persistent_workers for loader in self._trainers)

    def began_dealt(self, loader: Any) -> bool:
        """Whether a loader was dealt out when it was read last, if only at first."""
        return loader is not None and self._began_dealt.get(loader, False)

    @contextlib.contextmanager
    def evaluation(self) -> Iterator[None]:
        """What is read inside is read to evaluate, says a library."""
        self._evaluations += 1
        try:
            yield
        finally:
            self._evaluations -= 1

    def expect_training(self, loader: Any) -> None:
        """A library has made a loader to train on, in whatever mode the models are when it is read."""
        self._expected.add(loader)

    def expect_evaluation(self, loader: Any) -> None:
        """A library has made a loader to evaluate with."""
        self._evaluating.add(loader)

    def _is_evaluation(self, loader: Any) -> bool:
        """Whether a library says so."""
        return self._evaluations > 0 or loader in self._evaluating

    def expects_training(self, loader: Any) -> bool:
        """Whether that was said."""
        return loader in self._expected

    def likely_trains(self, loader: Any) -> bool:
        """Whether it is for training by all that is known, but for the mode that the models are in."""
        return loader in self._trainers or loader in self._expected or samplers.shuffles(loader)

    def before_next(self, shard: Shard) -> None:
        """The script asks for a batch: by what it has done with those before, is it training?"""
        if shard.trains or shard.handed_out == 0:
            return
        if self.rounds() != shard.rounds_before:
            if shard.evaluates:
                self.refuse("it reads a loader in eval() mode as if to evaluate, and trains on it then",
                            "call model.train() before the loader is read")
            shard.be_training()
            self._trainers.setdefault(shard.loader, shard.handed_out)
        elif not self._can_train() or (shard.handed_out >= self._trainers.get(shard.loader, 1) and
                                       not self._in_training_mode()):
            self._be_evaluation(shard)

    def is_evaluation_after_all(self, shard: Shard) -> bool:
        """A loader that was dealt out has come to its end. Says whether it goes on, as an evaluation."""
        return not shard.trains and self.rounds() == shard.rounds_before and self._be_evaluation(shard)

    def _be_evaluation(self, shard: Shard) -> bool:
        if not self._told_order and not samplers.shuffles(shard.loader) and self.rank == 0:
            self._told_order = True
            notes.tell("a loader was read in training mode to evaluate: all workers see everything, but its first "
                       "batches come in another order; where that matters, call eval() on the model before it is read")
        told, dealt = self._lengths.get(shard.loader, (None, False))
        self._roles[shard.loader] = dealt
        return shard.be_evaluation(told)

    def tell_length(self, loader: Any, count: int, dealt: bool) -> int:
        """The script asks for it."""
        self._lengths[loader] = count, dealt
        return count

    def _check_loader(self, loader: Any) -> None:
        import torch

        data = torch.utils.data
        if any(isinstance(each, data.distributed.DistributedSampler) for each in samplers.samplers_of(loader)):
            self.refuse("it deals its data out itself (DistributedSampler)",
                        "use a plain loader, or torch.distributed or poseidon.torch all the way")
        if not getattr(loader, "in_order", True):
            self.refuse("its loader hands batches out in any order (in_order=False)",
                        "leave that out")

    def length_is_dealt(self, loader: Any) -> bool:
        """Whether len(loader) is to tell the steps of the job, or the loader's own batches."""
        if not self.active() or self._is_child() or self._is_evaluation(loader):
            return False
        if loader in self._roles:  # as it was read last, also when asked for after an evaluation
            return self._roles[loader]
        if loader in self._expected:
            return True
        if self.live_optimizers() and not self._is_training_now():
            return False
        dealt = samplers.shuffles(loader)
        self._told_lengths[loader] = dealt
        return dealt
