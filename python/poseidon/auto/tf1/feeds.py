# SPDX-License-Identifier: Apache-2.0
"""What a session is fed in a run that trains, and this worker's part of it.

The first dimension of a placeholder counts samples where it is not fixed. Arrays that agree in it are
cut into W parts, worker r takes the r-th. Of fewer samples than workers everybody takes all, which is
the same gradient. Everything else is fed as it is."""

import zlib

import numpy

DIGEST_BYTES = 1 << 16  # of each array that the workers compare
DIGESTS = 1 << 16  # so many: their squares add up exactly


class Fed:
    """The arrays of a feed_dict that are needed to train."""

    def __init__(self, graph, feeds, needed):
        self.digest = 0
        self.samples = 0  # 0: cannot be cut
        self.given = False  # whether there is more than scalars
        self.arrays = {}  # that count samples
        fixed, known = set(), True
        for key, value in feeds.items():
            tensor = _tensor(graph, key)
            if tensor is not None and tensor.op.name not in needed:
                continue
            array = None if tensor is None else _array(value, tensor.dtype)
            if array is None:
                known = False
            elif array.ndim > 0:
                self._add(key, array, tensor.shape, fixed)
        self.sizes = {len(array) for array in self.arrays.values()}
        if known and len(self.sizes) == 1 and not self.sizes & fixed:
            (self.samples,) = self.sizes

    def _add(self, key, array, shape, fixed):
        self.given = True
        self.digest = _digest(array, self.digest)
        if shape.rank is None or shape.as_list()[0] is None:
            self.arrays[key] = array
        else:
            fixed.add(len(array))

    def part(self, world, rank):
        """This worker's arrays, and how many samples they have."""
        if self.samples < world:
            return {}, self.samples
        arrays, share = cut(self.arrays, self.samples, world)[rank]
        return arrays, round(share * self.samples)


def cut(arrays, samples, count):
    """So many parts, with their shares of the samples."""
    ends = [samples * number // count for number in range(count + 1)]
    return [({key: array[begin:end] for key, array in arrays.items()}, (end - begin) / samples)
            for begin, end in zip(ends, ends[1:])]


def _tensor(graph, key):
    try:
        return graph.as_graph_element(key, allow_tensor=True, allow_operation=False)
    except (TypeError, ValueError, KeyError):
        return None  # several in one, as sparse tensors are; or Session.run says what is wrong


def _array(value, dtype):
    if isinstance(value, numpy.ndarray):
        return value
    try:
        return numpy.asarray(value, dtype.as_numpy_dtype)
    except (TypeError, ValueError):
        return None  # a handle of the session, or Session.run says what is wrong


def _digest(array, found):
    rows = array[:max(1, DIGEST_BYTES // max(1, array[:1].nbytes))]
    content = repr(rows.tolist()).encode() if array.dtype.hasobject else rows.tobytes()
    return zlib.crc32(content, zlib.crc32(repr(array.shape).encode(), found)) % DIGESTS
