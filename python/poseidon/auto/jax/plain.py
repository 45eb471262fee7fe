# SPDX-License-Identifier: Apache-2.0
"""Loops of JAX that know nothing of other workers: each would train the same model on the same data.

A program of JAX is made of functions, and nothing tells which of its arrays are samples, so it is not
distributed but stopped, where it first computes a gradient or applies an update, also while jax.jit
traces it. Scripts that do something about it themselves are left alone: they use poseidon.jax or
jax.distributed, or ask which worker they are."""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable

import jax

from ..common.session import Session

# Whose gradients are no loop of the script's: another session looks after it.
_OTHERS = ("keras",)


class JaxSession(Session):
    """Thread: any; a script that is stopped is stopped for good."""

    package = "poseidon.jax"

    def refuse_alone(self, what: str) -> None:
        """The script trains by itself, as all others do."""
        if not self.active() or self._is_child() or _is_others():
            return
        if self._watch.script_asked_for_rank():
            self.step_aside("the script asked which worker it is")
            return
        self.refuse(f"it calls {what}, and nothing in it knows of the other {self.world - 1}: all "
                    "workers would train the same model on the same data",
                    "take each worker's part of the data (poseidon.rank(), poseidon.size()), begin with "
                    "params = psd.broadcast(params), and wrap the optimizer, psd.distributed(optimizer), "
                    "with poseidon.init() and import poseidon.jax as psd; or run it with --workers 1 "
                    "or --auto off")


def _is_others() -> bool:
    frame = sys._getframe(2)
    while frame is not None:
        if frame.f_globals.get("__name__", "").split(".")[0] in _OTHERS:
            return True
        frame = frame.f_back
    return False


def watch_gradients(session: JaxSession) -> None:
    """From now on what jax.grad and jax.value_and_grad make tells the session when it is called."""
    for name in ("grad", "value_and_grad"):
        setattr(jax, name, _telling(session, name, getattr(jax, name)))
    own = jax.distributed.initialize

    @functools.wraps(own)
    def initialize(*args: Any, **kwargs: Any) -> Any:
        session.step_aside("the script calls jax.distributed.initialize()")
        return own(*args, **kwargs)

    jax.distributed.initialize = initialize


def _telling(session: JaxSession, name: str, own: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(own)
    def make(*args: Any, **kwargs: Any) -> Any:
        compute = own(*args, **kwargs)

        @functools.wraps(compute)
        def computing(*values: Any, **named: Any) -> Any:
            session.refuse_alone(f"jax.{name}")
            return compute(*values, **named)

        return computing

    return make


def watch_updates(session: JaxSession) -> None:
    """The same for optax.apply_updates, whatever gradients came from."""
    import optax

    own = optax.apply_updates

    @functools.wraps(own)
    def apply_updates(*args: Any, **kwargs: Any) -> Any:
        session.refuse_alone("optax.apply_updates")
        return own(*args, **kwargs)

    optax.apply_updates = apply_updates
