# SPDX-License-Identifier: Apache-2.0
"""Distributes a script of PyTorch, Keras or TensorFlow 1 that knows nothing of Poseidon.
docs/automatic.md and docs/tensorflow.md say what is done.

psd_run brings site/sitecustomize.py before the script; it loads this package, under the name
_poseidon_auto, when the script has imported one of them. Nothing of poseidon itself is imported before the
first training loader is read: then the workers join the job.

common/  for all frameworks
    session        how a script is left alone, stopped, or made a worker of the job
    notes          the line to psd_run
    resumed        what has to be known of a checkpoint before the script runs
    variables      what of a script has to be kept to go on from a checkpoint; liveness, which of its variables are read again
    seeds          random numbers that are the same on all workers of a job
    children       processes of the script that were stopped
    witness        what must hold in every step, whoever deals the data out; positions, digests of which samples
    lost           workers that were lost on the way, and what may still be said of the job then
    by_identity    values that belong to objects, as long as those live
    places         which files are the script's own
    files          a view of files of its own for every worker but 0; file_hooks tells it what the script is about
                   to use, mounts has what the kernel does
    layers         the same by mapped paths, where the kernel permits no namespaces; layer_hooks maps them

torch/   scripts of PyTorch
    session        their optimizers, their models, whether they are distributed
    roles          what their loaders are read for
    growth         workers that come and go while one trains; newcomer, the way of one to the others; rounds, gradients and
                   words where that may be
    patches        where torch tells the session what the script does
    points         where a script's job can be saved, and gone on from; replay goes there, variables has what only
                   torch's scripts have
    streams        random numbers that all workers draw alike, and those that are each worker's own
    shards         which batches of a training loader are this worker's
    samplers       those of a loader, also those that others wrap
    loops          loops of Ignite, skorch and Lightning
    in_use         which optimizers train now
    huggingface    what HuggingFace's Trainer and accelerate do that torch alone does not show
    iterables      the same of a stream (IterableDataset)
    loose          training whose batches no loader hands out; drawn_evaluation, its evaluation
    tails          how an epoch will end
    walks          slices of a permutation, without a loader
    by_hand        training without an optimizer
    sync_norm      batch normalization over the samples of all workers
    torchrun       what scripts are told that were written for it
    lineage        which batches a loss was computed from
    losses         what a loss is made of, and how its parts count
    checks         what the workers compare in every round: carries the words of the witness
    seen           what the witness sees: loaders, what models get, random generators
    weights        weights as a few numbers
    datasets       what the workers compare before every epoch
    digests        checksums of tensors
    models         the modules that parameters belong to
    randomness     generators that all workers set as worker 0 has them
    native_files   native code that takes paths, where paths are mapped
    saved          what worker 0 alone has saved, where there is no private view

keras/   Model.fit of Keras, and loops with tapes
    fit            what happens in it; patches tells of it, callbacks has what is done after steps and
                   epochs, checks what the workers compare then
    pieces         which part of the data is this worker's; digests, a number for what is in it
    steps          gradients of all optimizers averaged, words exchanged
    means          whether optimizers get what they must
    trial          whether the parts of a batch make the whole
    tape_loops     loops of the script's own, with tapes: readings deals their batches out, tape_steps averages
                   their gradients, tape_trial tries their functions
    noise          random numbers that are each worker's own
    points         where a script's job can be saved, and gone on from; variables has what only Keras's scripts have
    metrics        results over the samples of all workers
    everyone       a few numbers of all workers
    foreign        other backends and Keras 2, which are refused

jax/     scripts of JAX
    plain          loops that know nothing of other workers are stopped

tf1/     graphs and sessions of TensorFlow 1
    graphs         what is known of them; graph_patches tells it, with graph_files: checkpoints and
                   summaries, and proto: tf.ConfigProto
    shares         what the gradients of an optimizer are computed from, and whether it is dealt out:
                   feeds, what sessions are fed; data_reads, what graphs read by themselves; orders,
                   what is random in that; batch_split, whether a batch can be cut
    surface        tensorflow as it was in version 1, with layers, contrib and mnist_data, for --auto tf1
                   and for scripts of which written_for finds that they need it (versions)
    by_hand        gradients that go to no optimizer
    meta_graphs    graphs in files, which are those of one process
    own_gradients  gradients that a script computes and changes before an optimizer gets them"""

from __future__ import annotations

import sys
from typing import Any

from .common import files
from .common.session import Session


def begin_files(script: bytes) -> None:
    """A script that has to do with PyTorch is about to begin."""
    files.begin(script)


def leave_files(reason: str) -> None:
    """It knows of other workers: files are its own business."""
    files.leave(reason)


def begin(watch: Any) -> Session | None:
    """torch was imported. Returns the session, or None when there is nothing to do."""
    from .common import children, seeds
    from .torch import patches  # needs torch
    from .torch.session import TorchSession

    session = TorchSession(watch)
    if watch.reason is not None:
        session.step_aside(watch.reason)
        return None
    files.begin(watch.script)
    children.watch()
    seeds.plant_in_torch()
    seeds.plant_in_python()
    patches.apply(session)
    return session


def begin_huggingface(watch: Any) -> None:
    """HuggingFace's Trainer or accelerate was imported."""
    from .torch import huggingface

    for session in _torch_sessions(watch):
        huggingface.apply(session)


def begin_ignite(watch: Any) -> None:
    """Engines of Ignite were imported."""
    from .torch import loops

    for session in _torch_sessions(watch):
        loops.watch_ignite(session, sys.modules["ignite.engine"])


def begin_skorch(watch: Any) -> None:
    """Nets of skorch were imported."""
    from .torch import loops

    for session in _torch_sessions(watch):
        loops.watch_skorch(session, sys.modules["skorch.net"])


def begin_lightning(watch: Any) -> None:
    """Trainers of Lightning were imported."""
    from .torch import loops

    for name in ("lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"):
        for session in _torch_sessions(watch) if name in sys.modules else ():
            loops.watch_lightning(session, sys.modules[name])


def _torch_sessions(watch: Any) -> list:
    from .torch.session import TorchSession

    return [session for session in watch.sessions if isinstance(session, TorchSession)]


def begin_tensorflow(watch: Any) -> Session | None:
    """tensorflow was imported. One worker alone gets the names that Poseidon's scripts use, too."""
    from .common import seeds
    from .tf1 import by_hand, graph_patches, graphs, versions  # need tensorflow

    versions.choose(watch)
    if watch.names_only:
        return None
    graph_patches.take_config()
    if watch.alone:
        return None
    session = graphs.GraphSession(watch)
    if watch.reason is not None:
        session.step_aside(watch.reason)
        return None
    if watch.kind != "tf1":
        seeds.plant_in_tensorflow()
    if session.deals():
        seeds.plant_in_python()
    graph_patches.apply(session)
    by_hand.watch_gradients(watch)
    return session


def begin_keras(watch: Any) -> Session | None:
    """keras was imported."""
    from .common import seeds
    from .keras import foreign  # needs keras

    if foreign.backend() != "tensorflow":
        return foreign.watch_other_backend(watch)
    from .keras import fit, patches  # need tensorflow

    session = fit.KerasSession(watch)
    if watch.reason is not None:
        session.step_aside(watch.reason)
        return None
    seeds.plant_in_python()
    patches.apply(session)
    return session


def begin_jax(watch: Any) -> Session | None:
    """jax was imported."""
    from .jax import plain  # needs jax

    session = plain.JaxSession(watch)
    if watch.reason is not None:
        session.step_aside(watch.reason)
        return None
    plain.watch_gradients(session)
    return session


def begin_optax(watch: Any) -> None:
    """optax was imported, and jax before it."""
    from .jax import plain

    for session in watch.sessions:
        if isinstance(session, plain.JaxSession):
            plain.watch_updates(session)


def begin_tf_keras(watch: Any) -> Session | None:
    """Keras 2, for TensorFlow 2, was imported."""
    from .keras import foreign

    return foreign.watch_keras_2(watch)
