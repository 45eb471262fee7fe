# SPDX-License-Identifier: Apache-2.0
"""read_data_sets() as tutorials of TensorFlow 1 had it, of files that are there."""

import collections
import gzip
import os

import numpy

Datasets = collections.namedtuple("Datasets", "train validation test")
VALIDATION = 5000


def _read(directory, name, dims):
    path = os.path.join(directory, name)
    opened = gzip.open(path) if os.path.exists(path) else open(path.removesuffix(".gz"), "rb")
    with opened as file:
        raw = file.read()
    shape = numpy.frombuffer(raw, ">u4", dims, 4)
    return numpy.frombuffer(raw, numpy.uint8, offset=4 + 4 * dims).reshape(shape)


class DataSet:
    """Images and labels, in batches that go through all of them in a new order each time."""

    def __init__(self, images, labels, one_hot, reshape):
        pixels = images.astype(numpy.float32) / 255
        self.images = pixels.reshape(len(images), -1) if reshape else pixels[..., None]
        self.labels = numpy.eye(10)[labels] if one_hot else labels
        self.num_examples = len(images)
        self.epochs_completed = 0
        self._at = 0
        self._order = None

    def next_batch(self, batch_size, fake_data=False, shuffle=True):
        """The last batch of an epoch is filled up from the next."""
        del fake_data
        taken = []
        while batch_size > 0:
            if self._order is None:
                self._order = (numpy.random.permutation if shuffle else numpy.arange)(
                    self.num_examples)
            piece = self._order[self._at:self._at + batch_size]
            taken.append(piece)
            self._at += len(piece)
            batch_size -= len(piece)
            if self._at == self.num_examples:
                self._at, self._order = 0, None
                self.epochs_completed += 1
        chosen = numpy.concatenate(taken)
        return self.images[chosen], self.labels[chosen]


def read_data_sets(train_dir, one_hot=False, reshape=True, validation_size=VALIDATION, **unused):
    """The four files of MNIST in that directory; nothing is downloaded."""
    del unused
    images = _read(train_dir, "train-images-idx3-ubyte.gz", 3)
    labels = _read(train_dir, "train-labels-idx1-ubyte.gz", 1)
    rest = DataSet(images[validation_size:], labels[validation_size:], one_hot, reshape)
    held = DataSet(images[:validation_size], labels[:validation_size], one_hot, reshape)
    test = DataSet(_read(train_dir, "t10k-images-idx3-ubyte.gz", 3),
                   _read(train_dir, "t10k-labels-idx1-ubyte.gz", 1), one_hot, reshape)
    return Datasets(rest, held, test)
