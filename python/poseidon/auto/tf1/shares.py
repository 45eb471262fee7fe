# SPDX-License-Identifier: Apache-2.0
"""What the gradients of an optimizer are computed from, and whether it is dealt out.

Data is dealt out where all workers have the same: they compare a digest of it in every step, which
travels with the weights of their parts. Where it differs from the beginning, the script deals it out
itself. The first batch that is fed is not cut yet: everybody trains on all of it, which is the same
step, and then looks whether it can be cut (batch_split.py). Parts of a loss that is a sum are added. What is
fed beside something that is read stays whole: the elements that are read make the step larger."""

import tensorflow.compat.v1 as tensorflow

from . import batch_split
from . import data_reads as reads_of_graphs
from .feeds import DIGESTS

_NEARLY = 1e-4  # sums of squares below DIGESTS**2 are that exact, and differ more when they differ


class Share:
    """Those of one call of compute_gradients() or apply_gradients()."""

    def __init__(self, gradients, operations, reads):
        """operations: all that the gradients need; reads: by the operation that says how much."""
        self.needed = {each.name for each in operations}
        self.reads = [read for name, read in reads.items() if name in self.needed]
        self.queues = [each for each in operations if each.type.startswith("QueueDequeue")]
        self.dealt = None  # True, False: known since the first run
        self.alike = None  # whether all workers had the same then
        self.verdict = None  # batch_split.Verdict, once it is known
        self.draws = batch_split.draws_of(operations)
        self.normalizes = any(map(_normalizes, operations))  # over the samples of a batch
        self.meets = any(each.type == "PoseidonPushPull" for each in operations)
        self.written = {each.inputs[0].op.name for each in operations
                        if each.type.startswith("Assign") and each.inputs}
        self.told = None  # what the workers exchange: poseidon.tensorflow.gradients
        with tensorflow.name_scope("poseidon_share"):
            self.weight, self.digest = _given(1.0, "weight"), _given(0.0, "digest")
            self.scale = _given(1.0, "scale")
            self.gradients = [tensorflow.convert_to_tensor(each) for each in gradients]
            # What is read comes before gradients leave: at the end of the data none does.
            with tensorflow.control_dependencies(self.queues):
                self.share = tensorflow.identity(self.weight)
            if self.reads:
                self.share *= self.reads[0].weight
            digests = [read.digest for read in self.reads]
            digests += [reads_of_graphs.digest(queue.outputs) for queue in self.queues]
            self.compared = self.digest + tensorflow.cast(
                tensorflow.add_n([tensorflow.constant(0), *digests]), tensorflow.float64)
            self.compared = tensorflow.floormod(self.compared, DIGESTS)

    def elements(self):
        """What is read, where its rows are samples: as tensors."""
        dense = all(isinstance(each, tensorflow.Tensor) and each.dtype not in (tensorflow.variant, tensorflow.resource)
                    for read in self.reads for each in tensorflow.nest.flatten(read.kept))
        return [each for read in self.reads for each in read.tensors] if dense else []

    def unread(self, values):
        """Feeds for a run that is given the elements and must read none: by control edges that
        TensorFlow's optimizer adds, it would read them all the same."""
        return dict(zip((each for read in self.reads for each in read.first), values))

    def can_be_cut(self):
        """Whether everybody may train on a part of what is fed."""
        return bool(self.dealt) and not self.reads and \
            self.verdict in (batch_split.Verdict.MEAN, batch_split.Verdict.SUM)

    def feeds(self, fed, share, world):
        """What a run is fed besides what the script feeds. share: this worker's part of the samples, None where
        it has all."""
        found = {self.digest: float(fed.digest)}
        if share is not None:
            is_sum = self.verdict == batch_split.Verdict.SUM
            found.update({self.scale: world} if is_sum else {self.weight: share * world})
        if self.dealt is not False:
            found.update({read.parts: world for read in self.reads})
        return found

    def heed(self, told):
        """What the workers told each other. Says whether they can go on."""
        equal = _are_equal(told)
        if self.dealt is None:
            self.dealt, self.alike = equal and not self.queues, equal
        return equal or not self.dealt


def _given(value, name):
    return tensorflow.placeholder_with_default(tensorflow.constant(value, tensorflow.float64), [],
                                               name)


def _normalizes(operation):
    if operation.type.startswith("FusedBatchNorm"):
        return "Grad" not in operation.type and operation.get_attr("is_training")
    return "/batchnorm/" in f"/{operation.name}"  # tf.nn.batch_normalization


def _are_equal(told):
    """Whether all workers had the same digest."""
    count, _, digests, squares = told
    return bool(abs(squares / count - (digests / count) ** 2) < _NEARLY)
