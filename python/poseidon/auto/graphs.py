# SPDX-License-Identifier: Apache-2.0
"""Scripts with graphs and sessions (tf.compat.v1) that know nothing of Poseidon.

Gradients are averaged where the script's optimizer makes its part of the graph; before the first run
that trains, variables become those of worker 0. Data is the script's: what it feeds or reads is not
dealt out, as it was with the original Poseidon. Workers that feed the same are told."""

import atexit
import functools
import os
import sys
import zlib

import numpy
import tensorflow.compat.v1 as tensorflow
from tensorflow.python.client import session as client
from tensorflow.python.summary.writer import event_file_writer
from tensorflow.python.training import monitored_session, saver, server_lib

from . import notes
from .proto import ConfigProto, plain
from .session import EXIT_REFUSED, Session


class GraphSession(Session):
    """Thread: that of the script which trains."""

    def __init__(self, watch):
        super().__init__(watch)
        self._averagers = {}
        self._runs = None

    def at_exit(self):
        """A refused script ends as such, also when it caught the exit."""
        if self.refused and not hasattr(sys, "last_value"):
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(EXIT_REFUSED)

    def _join(self):
        if self.joined:
            return
        self.stop_watching()
        root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        sys.path.insert(0, root)
        try:
            import poseidon
            import poseidon.tensorflow.v1
        finally:
            sys.path.remove(root)
        context = poseidon.init()
        self.joined = True
        atexit.register(self.at_exit)  # before poseidon's own, which says farewell
        self._runs = poseidon.tensorflow.v1.Steps()
        if context.incarnation > 1:
            self.refuse("this worker was started again in the middle of a job, and the script knows "
                        "nothing of where the others are",
                        "restart the whole job instead (--restart_scope=group), or use "
                        "poseidon.tensorflow.v1")

    def average(self, optimizer, pairs):
        """Gradients of an optimizer, on their way to it."""
        if not self.active() or self._is_child():
            return pairs
        self._join()
        from poseidon.tensorflow import gradients, v1

        averager = self._averagers.setdefault(optimizer, gradients.Averager())
        return v1.average_pairs(averager, pairs)

    # ---- runs

    def trains(self, graph, fetches):
        """Whether a run meets the other workers."""
        return self.joined and self.active() and self._runs.trains(graph, fetches)

    def before_run(self, session, feeds):
        """A run that trains is about to begin."""
        self._runs.before(session)
        if self._runs.count == 0:
            self._compare_feeds(feeds)

    def _compare_feeds(self, feeds):
        import poseidon

        mine = 0
        for value in (feeds or {}).values():
            mine = zlib.crc32(numpy.ascontiguousarray(value).tobytes(), mine)
        told = numpy.zeros(self.world)
        told[self.rank] = mine
        table = poseidon.Table("session.feeds", self.world, "float64", use="sum", reduce="sum")
        told = table.push_pull(told).wait()
        if feeds and self.rank == 0 and len(set(told)) == 1:
            notes.tell(f"{notes.script_name()}: all workers feed the same first batch, so they "
                       "compute the same; give each worker its part (client_id), or shuffle "
                       "without a fixed seed")

    def after_run(self):
        """It has ended."""
        self._runs.after()
        if self._runs.count == 1 and self.rank == 0:
            names = sorted({type(optimizer).__name__ for optimizer in self._averagers})
            notes.tell(
                f"automatic distribution of {notes.script_name()}: {self.world} workers, variables "
                f"of worker 0 for all, gradients of {', '.join(names)} averaged, data as the script "
                "reads it, files by worker 0; --auto off turns it off")

    def writes(self):
        """Whether this worker keeps files."""
        return not self.active() or not self.joined or self.rank == 0


def take_config():
    """tf.ConfigProto has Poseidon's fields, and sessions take it."""
    tensorflow.ConfigProto = ConfigProto
    own = client.BaseSession.__init__

    @functools.wraps(own)
    def init(session, target="", graph=None, config=None):
        own(session, target, graph, plain(config))

    client.BaseSession.__init__ = init


def apply(session):
    """From now on the session hears of it."""
    atexit.register(session.at_exit)
    _watch_optimizers(session)
    _watch_runs(session)
    _watch_files(session)
    _watch_clusters(session)


def _watch_optimizers(session):
    kind = tensorflow.train.Optimizer
    own_compute, own_apply = kind.compute_gradients, kind.apply_gradients

    @functools.wraps(own_compute)
    def compute_gradients(optimizer, *args, **kwargs):
        return session.average(optimizer, own_compute(optimizer, *args, **kwargs))

    @functools.wraps(own_apply)
    def apply_gradients(optimizer, grads_and_vars, *args, **kwargs):
        pairs = session.average(optimizer, list(grads_and_vars))
        return own_apply(optimizer, pairs, *args, **kwargs)

    kind.compute_gradients, kind.apply_gradients = compute_gradients, apply_gradients


def _watch_runs(session):
    own = client.BaseSession.run

    @functools.wraps(own)
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        if not session.trains(self.graph, fetches):
            return own(self, fetches, feed_dict, options, run_metadata)
        session.before_run(self, feed_dict)
        result = own(self, fetches, feed_dict, options, run_metadata)
        session.after_run()
        return result

    client.BaseSession.run = run


def _watch_files(session):
    own_save = saver.Saver.save
    own_event = event_file_writer.EventFileWriter.add_event
    own_monitored = monitored_session.MonitoredTrainingSession

    @functools.wraps(own_save)
    def save(self, sess, save_path, *args, **kwargs):
        return own_save(self, sess, save_path, *args, **kwargs) if session.writes() else None

    @functools.wraps(own_event)
    def add_event(self, event):
        if session.writes():
            own_event(self, event)

    @functools.wraps(own_monitored)
    def monitored(master="", is_chief=True, checkpoint_dir=None, *args, **kwargs):
        if session.joined and session.active() and not master:
            is_chief = True  # its variables are its own: worker 0 gives them their values later
            if session.rank != 0:
                checkpoint_dir = None
                kwargs.update(summary_dir=None)
        return own_monitored(master, is_chief, checkpoint_dir, *args, **kwargs)

    saver.Saver.save = save
    event_file_writer.EventFileWriter.add_event = add_event
    monitored_session.MonitoredTrainingSession = monitored
    tensorflow.train.MonitoredTrainingSession = monitored


def _watch_clusters(session):
    own = server_lib.Server.__init__

    @functools.wraps(own)
    def init(server, *args, **kwargs):
        session.step_aside("the script begins a cluster of TensorFlow itself")
        own(server, *args, **kwargs)

    server_lib.Server.__init__ = init
