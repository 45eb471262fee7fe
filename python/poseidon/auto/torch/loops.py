# SPDX-License-Identifier: Apache-2.0
"""The training loops of Ignite and skorch. Only the library can tell whether it reads a loader to train or to evaluate.
Both take the first batch of an evaluation before the model is in eval() mode. Ignite takes as many batches as it was
told there are. skorch trains on loaders that do not shuffle."""

from __future__ import annotations

import functools
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
