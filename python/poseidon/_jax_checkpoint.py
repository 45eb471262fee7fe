# SPDX-License-Identifier: Apache-2.0
"""The state of a JAX program in the checkpoints of psd_run --checkpoint, and where it goes on from (--resume).

    state = psd.Checkpoint(params=psd.broadcast(params), opt_state=optimizer.init(params))
    for step in state.steps(10_000):
        gradients = jax.grad(loss)(state.params, batch_of(step))
        updates, state.opt_state = optimizer.update(gradients, state.opt_state, state.params)
        state.params = optax.apply_updates(state.params, updates)

The program takes its data and its random numbers from the step (jax.random.fold_in(key, step)), so they are what they were."""

from __future__ import annotations

from typing import Any, Iterator

import jax
import numpy as np

import poseidon

from . import _alike, _due, _parts

_TIMEOUT_S = 1800.0
_KIND = "poseidon.jax.Checkpoint"


class Checkpoint:
    """What is given by name are pytrees of arrays and numbers: attributes. All workers make one, with the same names and kinds. In a
    job that goes on they have what was saved."""

    def __init__(self, **given: Any):
        self.step = 0  # steps that were made
        self.resumed = False
        self._names = list(given)
        taken = [name for name in given if hasattr(type(self), name) or name in vars(self)]
        if taken:
            raise poseidon.InvalidError(f"Checkpoint({taken[0]}=...): that name means something else here; choose another")
        vars(self).update(given)
        found = poseidon.context().checkpoint_resumed()
        if found is not None:
            self._load(_parts.decode(found[1]))
        self._due = _due.Due(_TIMEOUT_S) if _due.wanted() else None

    def steps(self, count: int, epoch: int | None = None) -> Iterator[int]:
        """The numbers of those that are left, of count. epoch: as many make one, for --checkpoint_every epoch."""
        while self.step < count:
            yield self.step
            self.step += 1
            if self._due is not None and self._due.after(self.step, lambda: self._ends_epoch(epoch)):
                self._give()

    def _ends_epoch(self, epoch: int | None) -> bool:
        if epoch is None:
            raise poseidon.InvalidError("--checkpoint_every epoch: say how many steps one has, Checkpoint.steps(count, epoch=N)")
        return self.step % epoch == 0

    # ---- saving and loading

    def _leaves(self) -> tuple[list[Any], Any]:
        return jax.tree.flatten([getattr(self, name) for name in self._names])

    def _give(self) -> None:
        leaves = [_as_array(each) for each in self._leaves()[0]]
        own = _alike.different(leaves)
        notes = _alike.texts(_parts.encode([leaves[number] for number in own]))
        if poseidon.rank() == 0:
            self._due.give(self.step, _parts.encode({  # type: ignore[union-attr]
                "kind": _KIND, "step": self.step, "names": self._names, "described": _describe(leaves), "leaves": leaves,
                "own": own, "workers": notes}))

    def _load(self, kept: Any) -> None:
        if not isinstance(kept, dict) or kept.get("kind") != _KIND:
            raise poseidon.MismatchError("the checkpoint that the job goes on from is not of poseidon.jax.Checkpoint")
        if len(kept["workers"]) != poseidon.size():
            raise poseidon.MismatchError(f"the checkpoint is of {len(kept['workers'])} workers, the job has {poseidon.size()}: go on "
                                         "with as many, or begin anew")
        leaves, structure = self._leaves()
        described = _describe([_as_array(each) for each in leaves])
        for told, there, here in (("names", kept["names"], self._names), ("arrays", kept["described"], described)):
            if there != here:
                wrong = [pair for pair in zip(there, here) if pair[0] != pair[1]] or [(f"{len(there)} {told}", f"{len(here)}")]
                raise poseidon.MismatchError(f"the checkpoint has {wrong[0][0]}, the program {wrong[0][1]}")
        values = dict(enumerate(kept["leaves"])) | dict(zip(kept["own"], _parts.decode(kept["workers"][poseidon.rank()])))
        found = structure.unflatten([_as_it_was(values[number], leaf) for number, leaf in enumerate(leaves)])
        vars(self).update(zip(self._names, found))
        self.step, self.resumed = kept["step"], True


def _is_key(leaf: Any) -> bool:
    return hasattr(leaf, "dtype") and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _as_array(leaf: Any) -> np.ndarray:
    return np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)


def _as_it_was(value: np.ndarray, leaf: Any) -> Any:
    """Of the kind that the program has."""
    if _is_key(leaf):
        return jax.random.wrap_key_data(jax.numpy.asarray(value), impl=jax.random.key_impl(leaf))
    if isinstance(leaf, (bool, int, float)):
        return type(leaf)(value.item())
    return value if isinstance(leaf, (np.ndarray, np.generic)) else jax.numpy.asarray(value)


def _describe(leaves: list[np.ndarray]) -> list[list[Any]]:
    return [[list(each.shape), each.dtype.name] for each in leaves]
