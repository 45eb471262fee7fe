# SPDX-License-Identifier: Apache-2.0
"""Gradients of variables that a script computes in a graph itself (tf.gradients, a tape), changes, and
gives to an optimizer.

What clips them has to see the means of all workers, and whatever else a script computes from them has
to stay as it is. So nothing happens before an optimizer gets what came of them. Where all that was done
to them is linear, the mean of that is as good. Otherwise the operations between the two are given the
means in the place of the gradients."""

import tensorflow.compat.v1 as tensorflow

# What stays a mean when all its inputs are.
_LINEAR = {"Identity", "IdentityN", "CheckNumerics", "Neg", "Cast", "Add", "AddV2", "AddN", "Sub", "Sum",
           "Mean", "Reshape", "Squeeze", "ExpandDims", "Transpose", "Pack", "Unpack", "ConcatV2",
           "StridedSlice", "Slice", "Split"}
_PRODUCTS, _QUOTIENTS = {"Mul"}, {"RealDiv", "Div", "DivNoNan"}
_SHAPES = {"Shape", "ShapeN", "Size", "Rank", "ZerosLike", "OnesLike"}  # the same of all means
_SAMPLES = ("Iterator", "QueueDequeue", "ReaderRead")  # how the names of what reads begin
_RANDOM = ("Random", "StandardNormal", "TruncatedNormal", "ParameterizedTruncated", "Multinomial",
           "StatefulUniform", "StatefulStandardNormal", "StatefulTruncatedNormal")


class _Computed:
    """One gradient."""

    def __init__(self, gradient, variable):
        self.gradient, self.variable = gradient, variable
        self.mean = None  # once an operation was given it


def _computed(graph):
    """By the names of tensors. They live as long as the graph."""
    if not hasattr(graph, "_poseidon_gradients"):
        graph._poseidon_gradients = {}
    return graph._poseidon_gradients


def in_plain_graph():
    """Whether operations are made now for a session to run, and not at once or for a function."""
    return not tensorflow.executing_eagerly() and \
        not tensorflow.get_default_graph().building_function


def remember(sources, gradients):
    """These are about to be given to the script, which gets what is returned: rows of embeddings are
    whole tensors, as those of compute_gradients() are."""
    known, found = _computed(tensorflow.get_default_graph()), []
    for source, gradient in zip(sources, gradients):
        if gradient is not None and hasattr(source, "assign"):
            gradient = tensorflow.convert_to_tensor(gradient)
            known[gradient.name] = _Computed(gradient, source)
        found.append(gradient)
    return found


class _Way:
    """From remembered gradients to what an optimizer gets."""

    def __init__(self, graph, tensors):
        self._computed = _computed(graph)
        self.gradients = {}  # those it begins with, by name
        self.edges = []  # (operation, number of its input, name of a gradient)
        self.meets_means = False  # whether some of it comes from means already
        self.is_of_one_worker = False  # whether samples or random numbers have a say in it, too
        self._seen = {each.op for each in tensors if not self._begins_at(each)}
        self._look_back()
        # All workers make what averages them in the order of the script.
        self.gradients = {name: each for name, each in self._computed.items()
                          if name in self.gradients}

    def _begins_at(self, tensor):
        if tensor.name in self._computed:
            self.gradients[tensor.name] = self._computed[tensor.name]
        return tensor.name in self._computed

    def _look_back(self):
        waiting = list(self._seen)
        while waiting:
            operation = waiting.pop()
            if operation.type == "PoseidonPushPull":
                self.meets_means = True
                continue
            self.is_of_one_worker |= _differs(operation)
            for number, tensor in enumerate(operation.inputs):
                if self._begins_at(tensor):
                    self.edges.append((operation, number, tensor.name))
                elif tensor.op not in self._seen:
                    self._seen.add(tensor.op)
                    waiting.append(tensor.op)

    def is_linear(self):
        """Whether the mean of what comes out is what would come of the means."""
        takes = {}  # operation: numbers of the inputs that depend on gradients
        waiting = [(operation, number) for operation, number, _ in self.edges]
        while waiting:
            operation, number = waiting.pop()
            if operation.type in _SHAPES or number in takes.setdefault(operation, set()):
                continue
            takes[operation].add(number)
            waiting += [(consumer, at) for output in operation.outputs
                        for consumer in output.consumers() if consumer in self._seen
                        for at, tensor in enumerate(consumer.inputs) if tensor is output]
        return all(_is_linear(operation, numbers) for operation, numbers in takes.items())

    def give_means(self, average):
        """average: of (gradient, variable) pairs."""
        new = [each for each in self.gradients.values() if each.mean is None]
        # What the optimizer has to wait for may be behind the operations that get the means.
        with tensorflow.control_dependencies(None):
            pairs = average([(each.gradient, each.variable) for each in new])
        for each, (mean, _) in zip(new, pairs):
            each.mean = mean
        for operation, number, name in self.edges:
            operation._update_input(number, self.gradients[name].mean)


def _differs(operation):
    """Whether it is another one on each worker. A scalar that is fed is not."""
    if operation.type.startswith("Placeholder"):
        return operation.outputs[0].shape.rank != 0
    return operation.type.startswith(_SAMPLES + _RANDOM)


def _is_linear(operation, numbers):
    return operation.type in _LINEAR or (operation.type in _PRODUCTS and len(numbers) == 1) or \
        (operation.type in _QUOTIENTS and numbers == {0})


def settle(session, optimizer, pairs):
    """What an optimizer gets instead of these pairs, which have to be averaged yet where they are not
    made of means by now."""
    way = _Way(tensorflow.get_default_graph(), [
        each for gradient, _ in pairs if gradient is not None
        for each in tensorflow.nest.flatten(gradient, expand_composites=True)])
    used_before = any(each.mean is not None for each in way.gradients.values())
    if not way.gradients or not (way.meets_means or used_before or not way.is_linear()):
        return pairs
    if way.is_of_one_worker:
        session.refuse(
            "it changes gradients, by more than a factor, between tf.gradients and apply_gradients, "
            "and samples or random numbers have a say in it, which are others on each worker",
            "leave them out there (divide the loss instead, say), or use poseidon.tensorflow.v1 in "
            "the script")
    way.give_means(lambda new: session.average(optimizer, new))
    return [(way.gradients[gradient.name].mean if gradient is not None and
             getattr(gradient, "name", None) in way.gradients else gradient, variable)
            for gradient, variable in pairs]
