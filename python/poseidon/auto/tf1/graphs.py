# SPDX-License-Identifier: Apache-2.0
"""Scripts with graphs and sessions (tf.compat.v1) that know nothing of Poseidon.

Gradients are averaged where the script's optimizer makes its part of the graph; before the first run
that trains, variables become those of worker 0. Runs that train get this worker's part of the data:
of what they are fed (feeds), of what the graph reads (reads). All other runs see everything. A script
that deals its data out itself, by the original Poseidon's client_id say, is left to do so."""

import sys

import numpy
import tensorflow.compat.v1 as tensorflow

from ..common import notes, seeds
from . import batch_split, data_reads
from .shares import Share
from .feeds import Fed, cut
from ..common.session import TIMEOUT_S, Session
from ..common.witness import Witness

_WHY_WHOLE = {
    batch_split.Verdict.NEITHER: "the gradients of the parts of a batch do not make that of the whole (its "
                          "loss is no mean or sum over samples, or what is random hides that it is)",
    batch_split.Verdict.FAILED: "its graph cannot compute with a part of a batch (it has a number of samples "
                         "of its own, say)"}
_OF_READS = {
    batch_split.Verdict.SUM: "the loss of {script} is a sum over the samples that it reads: gradients are "
                      "those of one process with {world} times the batch, divided by {world}; take a "
                      "mean, or {world} times the learning rate",
    batch_split.Verdict.NEITHER: "the loss of {script} is neither a mean nor a sum over the samples that it "
                          "reads, or what is random hides that it is: each worker computes it of its "
                          "own batch, and gradients are the means of those",
    batch_split.Verdict.FAILED: "nobody can tell whether the loss of {script} is a mean over the samples "
                         "that it reads: of a sum, gradients are those of one process divided by "
                         "{world}"}


class _Known:
    """Of one graph. It lives as long as that."""

    def __init__(self):
        self.reads = {}  # by the name of the operation that says how much is read
        self.shares = {}  # by the name of the operation that exchanges shares
        self.of_fetches = {}  # the shares that a run meets, and all that these need


def _known(graph):
    if not hasattr(graph, "_poseidon"):
        graph._poseidon = _Known()
    return graph._poseidon


class GraphSession(Session):
    """Thread: that of the script which trains."""

    package = "poseidon.tensorflow.v1"

    def __init__(self, watch):
        super().__init__(watch)
        self._optimizers = set()  # their names
        self._runs = None
        self._data_is_left = any(word.split("=")[0] == "--client_id" for word in sys.argv[1:])
        self._told_whole = False
        self._cut = None  # how many samples the last batch that was cut had, and this worker's part
        self._witness = Witness(self.world, self.rank, self.breach)

    def at_exit(self):
        """The script is over."""
        if self._witness.breaches and not self.refused and self.rank == 0:  # it was told to go on
            notes.tell(f"not right: {', '.join(sorted(self._witness.breaches))}")
        super().at_exit()

    # ---- data

    def deals(self):
        """Whether data for training is dealt out."""
        return self.active() and not self._data_is_left

    def leave_data(self, reason):
        """The script deals it out itself."""
        if self.deals() and self.rank == 0:
            notes.tell(f"{notes.script_name()} deals its data out itself: {reason}")
        self._data_is_left = True
        seeds.withdraw()

    def add_read(self, graph, read):
        """An iterator is read there."""
        _known(graph).reads[read.parts.op.name] = read

    # ---- gradients

    def average(self, optimizer, pairs):
        """Gradients of an optimizer, on their way to it."""
        if not self.active() or self._is_child():
            return pairs
        self._join()
        from poseidon.tensorflow import gradients, v1

        if v1.are_averaged(pairs):
            return pairs
        self._optimizers.add(type(optimizer).__name__)
        averager = gradients.Averager()
        if not self.deals():
            return v1.average_pairs(averager, pairs)
        known, share = self._add_share(pairs)
        averager.share, averager.scale = share.share, share.scale
        averager.digest = share.compared
        averaged = v1.average_pairs(averager, pairs)
        if averager.told is not None:
            share.told = averager.told
            known.shares[averager.told.op.name] = share
        return averaged

    def _add_share(self, pairs):
        from poseidon.tensorflow import v1

        found = [gradient for gradient, _ in pairs if gradient is not None]
        known = _known(tensorflow.get_default_graph())
        tensors = tensorflow.nest.flatten(found, expand_composites=True)
        operations = list(v1.ancestors({each.op for each in tensors}))
        if any(map(data_reads.is_optional, operations)):
            self.refuse("it reads its training data by get_next_as_optional(), which cannot be "
                        "dealt out",
                        "use get_next(), or poseidon.tensorflow.v1 in the script")
        return known, Share(found, operations, known.reads)

    # ---- runs

    def trains(self, graph, fetches):
        """Whether a run meets the other workers."""
        if not self.joined or not self.active():
            return False
        if self._runs is None:
            from poseidon.tensorflow import v1

            self._runs = v1.Steps()
        return self._runs.trains(graph, fetches)

    def _shares_of(self, graph, fetches):
        from poseidon.tensorflow import v1

        known = _known(graph)
        operations = v1.operations_of(graph, fetches)
        names = tuple(each.name for each in operations)
        if names not in known.of_fetches:
            shares = [known.shares[each.name] for each in v1.ancestors(operations)
                      if each.name in known.shares]
            known.of_fetches[names] = shares, set().union(*(share.needed for share in shares))
        return known.of_fetches[names]

    def run(self, own, session, fetches, feeds, *rest):
        """A run that trains."""
        self._runs.before(session)
        shares, needed = self._shares_of(session.graph, fetches)
        feeds = dict(feeds or {})
        fed = Fed(session.graph, feeds, needed)
        mine = self._part(shares, fed)
        readers = [share for share in shares if share.reads and share.verdict is None
                   and share.dealt is not False and self.rank == 0]
        result, told, read = own(session, [fetches, [share.told for share in shares],
                                           [share.elements() for share in readers]],
                                 {**feeds, **mine}, *rest)
        for share, sums in zip(shares, told):
            self._heed(share, sums)
        for share in shares:
            if share.dealt and not share.reads and share.verdict is None and \
                    fed.samples >= self.world:
                self._look_whether_it_can_be_cut(own, session, share, feeds, fed)
        for share, values in zip(readers, read):
            if share.dealt:
                self._look_whether_it_is_a_mean(own, session, share, feeds, fed, values)
        self._runs.after()
        if self.rank == 0:
            self._tell(shares, fed)
        return result

    def _part(self, shares, fed):
        """What is fed in place of the script's values, and in addition to them."""
        if self._data_is_left:
            for share in shares:
                share.dealt = False
        mine, fraction = {}, None
        if shares and all(share.can_be_cut() for share in shares):
            if self._cut is not None and fed.samples == 0 and self._cut <= fed.sizes:
                self.refuse("it feeds what a run that trains has returned, which is of the worker's "
                            "part of the samples only",
                            "keep it in variables, or use poseidon.tensorflow.v1 in the script")
            mine, count = fed.part(self.world, self.rank)
            if mine:
                fraction, self._cut = count / fed.samples, {count, fed.samples}
        for share in shares:
            mine.update(share.feeds(fed, fraction, self.world))
        return mine

    def _heed(self, share, told):
        """What the workers told each other in this step."""
        if share.dealt and told[0] < self.world:
            self._look_for_leavers()
        can_go_on = share.heed(told)
        if not share.alike and not share.queues and not self._data_is_left and \
                not self._watch.script_asked_for_rank():
            self._witness.say(
                "order", "the workers do not have the same first batch, and the script did not ask which "
                "worker it is, so it does not deal its data out itself",
                "give a seed to generators of its own (numpy.random.RandomState(), random.Random()) "
                "and to what is random in its datasets, and read files in a fixed order; or deal out "
                "by PSD_RANK and PSD_WORLD_SIZE in the environment")
        if not can_go_on:
            self._witness.say(
                "order", "the workers do not have the same batch any more that each would train on its part "
                "of, be it fed or read",
                "shuffle with random, numpy.random or tf.data, and not with a generator of its own "
                "that is seeded differently on each worker; decide by nothing that only one worker "
                "sees, such as its own loss; read in a fixed order")

    def _look_whether_it_can_be_cut(self, own, session, share, feeds, fed):
        """Worker 0 decides: what is random differs."""
        import poseidon

        parts = cut(fed.arrays, fed.samples, self.world)
        verdict, exact = self._judge(own, session, share, feeds, fed.arrays, parts)
        if self.rank == 0 and not exact:
            notes.tell(f"batch normalization of {notes.script_name()} sees each worker's part of a "
                       "batch, so nobody can tell whether its loss is otherwise one of parts")
        poseidon.barrier(int(TIMEOUT_S * 1000))  # some compute more slowly
        decided = poseidon.broadcast(numpy.array([verdict], numpy.int32), name="session.verdict")
        verdict = batch_split.Verdict(int(decided[0]))
        if verdict == batch_split.Verdict.ZERO:
            return  # the next batch will tell
        share.verdict = verdict
        if self.rank == 0 and not share.can_be_cut():
            notes.tell(f"all workers of {notes.script_name()} train on the same batches, which is "
                       f"right but no faster: {_WHY_WHOLE[verdict]}")

    def _look_whether_it_is_a_mean(self, own, session, share, feeds, fed, values):
        """Worker 0 does, of what it has read."""
        samples = data_reads.rows(values)
        whole = dict(zip(share.elements(), values))
        if fed.samples == samples:
            whole.update(fed.arrays)
        if samples > 1:
            share.verdict, _ = self._judge(own, session, share, {**feeds, **share.unread(values)},
                                           whole, cut(whole, samples, 2))
        else:  # one sample is its mean and its sum
            share.verdict = batch_split.Verdict.ZERO if samples == 1 else batch_split.Verdict.FAILED
        if share.verdict in _OF_READS:
            notes.tell(_OF_READS[share.verdict].format(script=notes.script_name(), world=self.world))

    @staticmethod
    def _judge(own, session, share, feeds, whole, parts):
        """Computes gradients, and changes nothing as far as that can be. Says whether the verdict is
        exact, too."""
        if share.meets:
            return batch_split.Verdict.NEITHER, True

        def run(more, arrays):
            return own(session, [share.gradients, more], {**feeds, **arrays})

        variables = _variables(session.graph, share.written)
        before = own(session, variables)
        try:
            verdict = batch_split.judge(run, whole, parts, share.draws)
            if verdict == batch_split.Verdict.NEITHER and share.normalizes:
                return batch_split.nearest(run, whole, parts), False
            return verdict, True
        finally:
            for variable, value in zip(variables, before):
                own(session, variable.initializer, {variable.initializer.inputs[1]: value})

    def _look_for_leavers(self):
        """Nobody trains on the parts of a worker whose script is over."""
        import poseidon

        left = [node.rank for node in poseidon.nodes()
                if node.role == "worker" and node.state == "done"]
        if left:
            self.refuse(f"worker {min(left)} has ended its training while others go on, and nobody "
                        "has its part of the data",
                        "decide when to stop by nothing that only one worker sees, such as its own "
                        "loss: an evaluation is the same on all")

    def _tell(self, shares, fed):
        """psd_run has a line about the first step, and one about batches that stay whole."""
        if self._runs.count == 1:
            notes.tell(
                f"automatic distribution of {notes.script_name()}: {self.world} workers, variables "
                f"of worker 0 for all, gradients of {', '.join(sorted(self._optimizers))} averaged, "
                f"{self._data(shares, fed)}, evaluation whole, files by worker 0; --auto off turns "
                "it off")
        if not self._told_whole and any(_is_whole(share, fed) for share in shares):
            self._told_whole = True
            notes.tell(f"all workers of {notes.script_name()} train on the same batches, which is "
                       "right but no faster: what it feeds has a fixed number of samples, or several "
                       "numbers; or what it reads through queues has one order")

    @staticmethod
    def _data(shares, fed):
        if any(share.queues for share in shares):
            return "data from queues of each worker"
        if not shares or not all(share.dealt for share in shares):
            return "data as the script deals it out"
        if any(share.reads for share in shares):
            return "data of tf.data dealt out"
        if fed.samples > 0 and all(share.verdict is None or share.can_be_cut() for share in shares):
            return f"fed data dealt out (at first {fed.samples} samples a step)"
        return "data whole"

    def writes(self):
        """Whether this worker keeps files."""
        return not self.active() or not self.joined or self.rank == 0


def _is_whole(share, fed):
    """Whether the same data goes to all workers, and could have been dealt out."""
    given = share.queues or (fed.given and fed.samples == 0)
    return bool(given and share.alike and not share.reads)


def _variables(graph, names):
    """Those whose operations have these names."""
    keys = tensorflow.GraphKeys
    found = graph.get_collection(keys.GLOBAL_VARIABLES) + graph.get_collection(keys.LOCAL_VARIABLES)
    return [each for each in found if each.op.name in names]
