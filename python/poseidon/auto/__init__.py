# SPDX-License-Identifier: Apache-2.0
"""Distributes a PyTorch or Keras script that knows nothing of Poseidon. docs/automatic.md says what is done.

psd_run brings site/sitecustomize.py before the script; it loads this package, under the name
_poseidon_auto, when the script has imported torch. Nothing of poseidon itself is imported before the
first training loader is read: then the workers join the job.

    notes     the line to psd_run, and how a script is stopped
    session   what is known of the script: its optimizers, its models, whether it is distributed
    patches   where torch tells the session what the script does
    shards    which batches of a training loader are this worker's
    checks    what the workers compare in every round
    keras     the same for Model.fit
    seeds     random numbers that are the same on all workers of a job"""

from __future__ import annotations

from typing import Any

from .session import Session


def begin(watch: Any) -> Session | None:
    """torch was imported. Returns the session, or None when there is nothing to do."""
    from . import patches  # needs torch

    session = Session(watch)
    if watch.reason is not None:
        session.step_aside(watch.reason)
        return None
    patches.apply(session)
    return session


def begin_tensorflow(watch):
    """tensorflow was imported: what a script draws from now on, all workers draw alike."""
    from . import seeds

    if watch.reason is None:
        seeds.plant()


def begin_keras(watch):
    """keras was imported."""
    from . import keras  # needs keras

    session = keras.KerasSession(watch)
    if watch.reason is not None:
        session.step_aside(watch.reason)
        return None
    keras.apply(session)
    return session
