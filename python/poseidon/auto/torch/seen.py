# SPDX-License-Identifier: Apache-2.0
"""What the witness (common/witness.py) sees of a script of PyTorch: what its loaders draw and hand out, how many samples
its models get, and the states of its random generators.

Whatever shards.py makes of a loader, what counts is which positions its iterator is told to ask for (Reading.asked), and
when the script gets their data."""

from __future__ import annotations

import collections
import weakref
import zlib
from typing import TYPE_CHECKING, Any, Iterator

import torch
from torch.nn.modules import module as modules
from torch.utils.data import BatchSampler, IterableDataset

from ..common.by_identity import ByIdentity
from ..common.positions import in_order, mixed
from ..common.witness import UNKNOWN, Reading
from . import datasets
from .iterables import Stream
from .lineage import tensors_of
from .samplers import drops_last
from .shards import Shard

if TYPE_CHECKING:
    from ..common.witness import Witness
    from .session import TorchSession
    from .shards import Delivery
    from .streams import Streams

RECENT = 16  # batches that a model may still be given
BYTES_OF = 16  # elements of a batch that tell it from another


class Drawn:
    """An iterator over the batches that a loader's own sampler draws."""

    def __init__(self, reading: Reading, batches: Iterator, stay: bool):
        self.reading = reading
        self._noted = reading.drawing(batches, stay)

    def __iter__(self) -> Iterator:
        return self._noted  # the same batches, without a call of Python for each; a Shard asks for parts of them

    def __next__(self) -> Any:
        positions = next(self._noted)
        self.reading.asked.append(positions)
        return positions


class Seen:
    """Of one worker. Thread: that of the script which trains."""

    def __init__(self, session: TorchSession):
        self._session, self._witness = session, session.witness
        self._sources = weakref.WeakKeyDictionary()  # loader: its number, and a fingerprint of its dataset
        self._recent: collections.deque = collections.deque(maxlen=RECENT)  # size, shapes of the tensors
        self.newest: tuple | None = None  # positions, and the batch
        self.uneven_for = 0  # batches
        self._hook: Any = None
        self.rows: set[int] = set()  # of the batches that models got since the last round
        self._first_states: list[float] | None = None
        self._seed_of_processes = UNKNOWN  # that prepare the data of a dealt loader
        self._contents = ByIdentity()  # of datasets, when they were first read
        self._streams = ByIdentity()  # the numbers of datasets without positions

    def begin_anew(self, witness: Witness) -> None:
        """The workers are others from here on, and have seen nothing together."""
        self._witness = witness
        self._sources, self._streams = weakref.WeakKeyDictionary(), ByIdentity()

    # ---- loaders

    def drawn(self, loader: Any, batches: Iterator) -> Iterator:
        """What a loader's sampler draws, under the eyes of the witness."""
        if self._session.aside or isinstance(loader.dataset, IterableDataset):
            return batches
        number, fingerprint = self._source(loader)
        stay = type(loader.batch_sampler) is BatchSampler  # each of its batches is a new list
        return Drawn(self._witness.read(number, fingerprint), batches, stay)

    def _source(self, loader: Any) -> tuple[int, int]:
        if loader not in self._sources:
            name = f"a loader of {type(loader.dataset).__name__}"
            self._sources[loader] = (self._witness.add_source(name), self.fingerprint(loader.dataset))
        return self._sources[loader]

    def fingerprint(self, dataset: Any) -> int:
        """Of a set of samples, so that a position is the same sample everywhere."""
        found = datasets.fingerprint(dataset)
        if hasattr(dataset, "__dict__"):  # a list, say, has no contents but itself, and is not to be held
            return mixed(found, self._contents.of(dataset, datasets.contents))
        return mixed(found, 0)

    def _stream(self, dataset: Any) -> int:
        return self._streams.of(dataset, lambda each: self._witness.add_source(type(each).__name__))

    def before_next(self, iterator: Any) -> None:
        """The script asks for a batch of a loader that is not dealt out."""
        drawn = iterator._sampler_iter
        if type(drawn) is Drawn and drawn.reading.is_new():
            iterator._poseidon_states = _states(self._session.streams)

    def gave(self, iterator: Any, batch: Any, delivery: Delivery | None = None) -> None:
        """The script gets a batch. delivery: of what all workers train on in this step."""
        session, shard = self._session, iterator._sampler_iter
        reading = getattr(shard, "reading", None)
        positions = reading.asked.popleft() if reading is not None and reading.asked else ()
        if delivery is not None:
            self._witness.drew_step(delivery.digest)
        if session.aside:
            return
        parted = type(shard) in (Shard, Stream)
        dealt = parted and not shard.evaluates
        may_train = (dealt or not parted) and torch.is_grad_enabled()
        if reading is None:
            if may_train:
                borrowed = parted and session.borrows
                self._witness.is_given(self._stream(iterator._dataset), None if borrowed else _bytes(batch))
            return
        if not parted and reading.is_new():
            reading.look_closer(self._content(iterator, batch))
        if dealt and iterator._num_workers > 0:
            self._seed_of_processes = float(mixed(iterator._base_seed))
        reading.gave(positions, dealt, may_train, dealt and session.borrows)
        if not may_train:
            return
        if reading.uneven or self.uneven_for > 0:
            self._watch_rows(reading, positions, batch)
        else:
            self.newest = (positions, batch)

    def finish(self, shard: Any) -> None:
        """A loader was read to its end."""
        self.newest = None  # nobody keeps its last batch
        if type(shard) is Shard and shard.reading is not None:
            shard.reading.finish(dealt=not shard.evaluates, drops_last=drops_last(shard.loader))

    def _content(self, iterator: Any, batch: Any) -> int:
        """A digest of a batch that all workers read; 0 where it has noise of this worker's own. Processes that
        prepare data draw alike, but for those of dealt loaders."""
        drawn = iterator._num_workers == 0 and iterator._poseidon_states != _states(self._session.streams)
        return 0 if drawn else _bytes(batch) or 0

    # ---- what models get

    def _watch_rows(self, reading: Reading, positions: Any, batch: Any) -> None:
        """Where batches differ in size, models are watched for which of them they get."""
        before, self.newest = self.newest, (positions, batch)
        self.uneven_for = RECENT if reading.uneven else self.uneven_for - 1
        if self.uneven_for <= 0:
            if self._hook is not None:
                self._hook.remove()
                self._hook = None
                self._recent.clear()
            return
        if self._hook is None:
            self._hook = modules.register_module_forward_pre_hook(self._see_input)
            if before is not None:
                self._remember(*before)  # it may still be trained on
        self._remember(positions, batch)

    def _remember(self, positions: Any, batch: Any) -> None:
        size = len(positions) if hasattr(positions, "__len__") else 1
        shapes = {(each.shape[0], each.numel()) for each in tensors_of(batch) if each.dim() > 0}
        self._recent.append((size, shapes if all(rows == size for rows, _ in shapes) else ()))

    def _see_input(self, module: torch.nn.Module, inputs: tuple) -> None:
        if not module.training or not inputs or not torch.is_grad_enabled() or \
                not isinstance(inputs[0], torch.Tensor) or inputs[0].dim() == 0:
            return
        shape = (inputs[0].shape[0], inputs[0].numel())
        self.rows.update(size for size, shapes in self._recent if shape in shapes)

    def take_rows(self) -> float:
        """A round begins: how many samples models got for it."""
        found = self.rows.pop() if len(self.rows) == 1 else UNKNOWN
        self.rows.clear()
        return found

    # ---- random numbers

    def note_streams(self) -> None:
        """States of the generators that were drawn from since this was first asked for."""
        if not self._session.streams.apart():
            return
        states = _states(self._session.streams)
        if self._first_states is None:
            self._first_states = states
        self._witness.note_streams([*(UNKNOWN if state == first else state
                                      for state, first in zip(states, self._first_states)), self._seed_of_processes])


def _states(streams: Streams) -> list[float]:
    """Digests of what the generators hold: of torch on the processor and on a GPU, random, numpy.random."""
    on_processor, python, numpy = streams.held_states()
    found = [float(zlib.crc32(on_processor.numpy())), 0.0, float(mixed(*python[1])), 0.0]
    if torch.cuda.is_initialized():
        found[1] = float(zlib.crc32(torch.cuda.get_rng_state().numpy()))
    if numpy is not None:
        found[3] = float(zlib.crc32(b"%d" % numpy[2], zlib.crc32(numpy[1])))
    return found


def _bytes(batch: Any) -> int | None:
    """A digest of a few elements of a batch; None: they are on a device, which nobody waits for."""
    found = []
    for tensor in tensors_of(batch):
        if tensor.device.type != "cpu" or tensor.layout != torch.strided:
            return None
        flat = tensor.detach().reshape(-1)
        found += flat[::max(1, flat.numel() // BYTES_OF)].tolist()
    return in_order([zlib.crc32(repr(found).encode())])
