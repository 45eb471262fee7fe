# SPDX-License-Identifier: Apache-2.0
"""The training loops of Ignite, skorch and Lightning.

Only the library can tell whether it reads a loader to train or to evaluate. The first two take the first batch of an
evaluation before the model is in eval() mode. Ignite takes as many batches as it was told there are. skorch trains on
loaders that do not shuffle. Lightning, as HuggingFace's Trainer, knows how many steps there will be."""

from __future__ import annotations

import functools
import math
import weakref
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from .session import TorchSession


def watch_ignite(session: TorchSession, engine: Any) -> None:
    """The module ignite.engine."""
    make = engine.create_supervised_evaluator

    @functools.wraps(make)
    def create_supervised_evaluator(*args, **kwargs):
        evaluator = make(*args, **kwargs)
        evaluator.run = _evaluating(session, evaluator.run)
        return evaluator

    engine.create_supervised_evaluator = create_supervised_evaluator


def _evaluating(session: TorchSession, run: Callable) -> Callable:
    @functools.wraps(run)
    def run_evaluator(*args, **kwargs):
        with session.evaluation():
            return run(*args, **kwargs)

    return run_evaluator


def watch_skorch(session: TorchSession, net: Any) -> None:
    """The module skorch.net."""
    make = net.NeuralNet.get_iterator

    @functools.wraps(make)
    def get_iterator(self, dataset, training=False):
        loader = make(self, dataset, training=training)
        if training:
            session.expect_training(loader)
        else:
            session.expect_evaluation(loader)
        return loader

    net.NeuralNet.get_iterator = get_iterator


def watch_lightning(session: TorchSession, trainer: Any) -> None:
    """The module lightning.pytorch.trainer.trainer, or pytorch_lightning's."""
    if "_poseidon_knows" not in vars(trainer.Trainer):  # both names may be imported, and one tells of both
        trainer.Trainer._poseidon_knows = True
        trainer.Trainer.fit = counting(session, trainer.Trainer.fit, _steps_left)


def _steps_left(trainer: Any) -> float:
    """After the step that is being made, which it has not counted yet. It would load its data to find out, if it had
    not yet; and it counts the steps of all optimizers, but expects those of one."""
    if trainer.train_dataloader is None or len(trainer.optimizers) != 1:
        return math.inf
    return trainer.estimated_stepping_batches - trainer.global_step - 1


def counting(session: TorchSession, train: Callable, steps_left: Callable[[Any], float]) -> Callable:
    """A method that trains, of an object that knows how many steps are left."""
    @functools.wraps(train)
    def train_counted(self, *args, **kwargs):
        trainer = weakref.ref(self)

        def remaining() -> float:
            known = trainer()
            return math.inf if known is None else steps_left(known)

        session.expect_steps(remaining)
        return train(self, *args, **kwargs)

    return train_counted
