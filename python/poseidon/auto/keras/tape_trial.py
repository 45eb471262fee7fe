# SPDX-License-Identifier: Apache-2.0
"""Whether the parts of a batch make the whole (trial.py), for a tf.function of the script that trains: it is
tried on its own arguments before it is called for the first time."""

import tensorflow

from .trial import Trial


class TrainsNothing(Exception):
    """The function applies no optimizer."""


class FunctionTrial(Trial):
    """Of one function with these arguments. rows: of the batch that the script was given."""

    draws_for_constant_rows = True

    def __init__(self, step, function, args, kwargs, rows):
        super().__init__(step, None, None, None)
        self._called, self._call = function, (args, kwargs)
        flat = tensorflow.nest.flatten(self._call)
        self._places = [number for number, each in enumerate(flat) if _is_batch(each, rows)]
        self.samples = [tensorflow.convert_to_tensor(flat[number]) for number in self._places]

    def _function(self):
        """Computes gradients, as arrays, and leaves everything as it was."""
        signature = [tensorflow.TensorSpec([None, *each.shape[1:]], each.dtype) for each in self.samples]
        record, self._step.recorded = self._recording(), []
        try:
            compute = tensorflow.function(record, autograph=self._called._autograph).get_concrete_function(
                *signature)
            if not self._step.recorded:
                raise TrainsNothing
        finally:
            self._step.recorded = None
        self.variables = list(compute.graph.variables)
        return self._restoring(lambda samples: compute(*samples))

    def _recording(self):
        function, step, places = self._called.python_function, self._step, self._places

        @tensorflow.autograph.experimental.do_not_convert
        def begin():  # what creates variables is traced twice
            step.recorded = []

        def record(*samples):
            begin()
            flat = tensorflow.nest.flatten(self._call)
            for place, sample in zip(places, samples):
                flat[place] = sample
            args, kwargs = tensorflow.nest.pack_sequence_as(self._call, flat)
            function(*args, **kwargs)
            return list(step.recorded)

        return record


def _is_batch(value, rows):
    shape = getattr(value, "shape", None)
    return shape is not None and not hasattr(value, "assign") and len(shape) > 0 and shape[0] == rows
