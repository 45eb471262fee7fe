# SPDX-License-Identifier: Apache-2.0
"""One step of a loop with a tape: what optimizers get, outside of Model.fit.

What is known of the batch that the script was given (readings.py) is in a variable, which functions read
that were traced once and are called often. Each place at which an optimizer is applied exchanges it with the
other workers, beside the gradients."""

import enum

import keras
import numpy
import tensorflow

from . import everyone, noise
from .callbacks import checksum
from .pieces import Words
from .steps import Step, rates_of, sample


class Told(enum.IntEnum):
    """Where it is in the variable."""

    DEALT = 0  # 1: the script has a batch that was dealt out
    WEIGHT = 1
    SHARE = 2
    COUNTS = 3
    MINE = 4
    WHOLE = 5


class TapeStep(Step):
    """Thread: that of the script which trains."""

    def __init__(self, session, loops):
        super().__init__(session)
        self._loops = loops
        self._numbers = {}  # of places
        self._checked = set()  # variables that were seen to be the same everywhere
        with tensorflow.device("CPU:0"):
            self._told = tensorflow.Variable(numpy.zeros(len(Told)), False)
            self._counted = tensorflow.Variable([0, 0], False, dtype=tensorflow.int64)

    # ---- between the steps

    def give(self, part):
        """The script gets a batch; None: of a kind that is not to be trained on."""
        told = [0.0] * len(Told) if part is None else [1.0, self._world_weight(part), part.share, part.counts,
                                                       part.mine, part.whole]
        self._told.assign(told)
        self._came.clear()

    def _world_weight(self, part):
        return part.counts * self._session.world if self.adds_up else part.weight

    def counted(self):
        """How often something was differentiated, and an optimizer applied, in this process."""
        return tuple(self._counted.numpy().tolist())

    # ---- in a graph, or eagerly

    def differentiated(self):
        """Gradients of variables were computed here."""
        if self.recorded is None:
            self._counted.assign_add([1, 0])

    def average(self, optimizer, gradients, variables):
        """The means, weighed by what the script was given."""
        if self.recorded is not None:
            return super().average(optimizer, gradients, variables)
        self._loops.before_apply()
        with tensorflow.init_scope():
            self._begin_with(optimizer, variables)
        with tensorflow.device("CPU:0"):
            told = tensorflow.unstack(tensorflow.convert_to_tensor(self._told))
            dealt = tensorflow.debugging.Assert(told[Told.DEALT] > 0, [
                "poseidon: automatic distribution: this step trains on something else than the batches that a loop "
                "over a tf.data.Dataset gives out, so every worker would train on the same samples; train on those, "
                "or use poseidon.tensorflow in the script, or --auto off"])
            with tensorflow.control_dependencies([] if dealt is None else [dealt]):
                self._counted.assign_add([0, 1])
                whole, mine = (tensorflow.cast(told[each], tensorflow.int64) for each in (Told.WHOLE, Told.MINE))
                self._weight.assign(told[Told.WEIGHT])
                words = Words(told[Told.SHARE], told[Told.SHARE] * 0, whole, 0, 0, told[Told.COUNTS])
                self._compare(words, mine, whole, rates_of([optimizer]), sample(variables),
                              f"keras.loop{self._number(optimizer, variables)}")
        return super().average(optimizer, gradients, variables)

    def _weighed_means(self, place, gradients, variables):
        """The weights of all workers add up to their number."""
        adds_up, self.adds_up, self.even = self.adds_up, False, False
        self._factor.assign(1.0)
        try:
            return super()._weighed_means(place, gradients, variables)
        finally:
            self.adds_up = adds_up

    def _place(self, optimizer, variables):
        """One for each time that an optimizer is applied in a graph, whichever was traced for it: a worker may
        have to trace another for a smaller batch."""
        key, counts = (id(optimizer), *map(id, variables)), self._places_so_far()
        number = counts.get(key, 0)
        counts[key] = number + 1
        if (key, number) not in self._averagers:
            self._kept += [optimizer, variables]
        return key, number

    def _number(self, optimizer, variables):
        """Of the place that comes next, the same on all workers."""
        key = (id(optimizer), *map(id, variables))
        return self._numbers.setdefault((key, self._places_so_far().get(key, 0)), len(self._numbers))

    def _places_so_far(self):
        if tensorflow.executing_eagerly():
            return self._came
        graph = tensorflow.compat.v1.get_default_graph()
        if not hasattr(graph, "_poseidon_places"):
            graph._poseidon_places = {}
        return graph._poseidon_places

    # ---- before the first step

    def _begin_with(self, optimizer, variables):
        """Weights become those of worker 0. Where the step runs already, and is not only traced, it has used those
        that there were: they must be the same."""
        new = [each for each in variables if id(each) not in self._checked]
        if not new:
            return
        self._checked.update(map(id, new))
        self._kept += new
        try:
            sums = everyone.tell(self._session, [checksum(new)], "weights")
            if numpy.ptp(sums) > 0 and not self._loops.tracing():
                self._session.refuse("the workers' weights differ before the first step",
                                     "give the model its initial weights before the loop, by random numbers of "
                                     "tf.random, numpy.random or random")
            if numpy.ptp(sums) > 0:
                self.share_variables(new)
        except tensorflow.errors.FailedPreconditionError:
            pass  # variables that are made by the function itself, and alike on all workers
        noise.draw_apart_in_loops(self._session.rank, self._loops.used_variables)


def statistics_of(layers):
    """What batch normalization keeps."""
    return [each for layer in layers for each in layer.non_trainable_variables
            if isinstance(layer, keras.layers.BatchNormalization)]
