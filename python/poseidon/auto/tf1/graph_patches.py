# SPDX-License-Identifier: Apache-2.0
"""Where TensorFlow tells the session what a script with graphs does. Each function replaces one of
TensorFlow's own and calls it."""

import atexit
import functools

import tensorflow.compat.v1 as tensorflow
from tensorflow.python.client import session as client
from tensorflow.python.training import server_lib

from . import data_reads, graph_files, meta_graphs, own_gradients
from .proto import ConfigProto, plain


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
    _watch_config(session)
    _watch_clusters(session)
    data_reads.apply(session)
    graph_files.apply(session)
    meta_graphs.apply(session)


def _watch_optimizers(session):
    kind = tensorflow.train.Optimizer
    own_compute, own_apply = kind.compute_gradients, kind.apply_gradients

    def check_place(optimizer):
        if not session.active() or own_gradients.in_plain_graph():
            return
        if tensorflow.distribute.has_strategy():
            session.step_aside("the script uses tf.distribute itself")
        else:
            session.refuse(f"{type(optimizer).__name__} of tf.compat.v1.train trains eagerly or in a "
                           "function, so every worker would train by itself",
                           "train by a graph and a session, by Model.fit of Keras, or by "
                           "poseidon.tensorflow in the script; --auto off turns this off")

    @functools.wraps(own_compute)
    def compute_gradients(optimizer, *args, **kwargs):
        check_place(optimizer)
        return session.average(optimizer, list(own_compute(optimizer, *args, **kwargs)))

    @functools.wraps(own_apply)
    def apply_gradients(optimizer, grads_and_vars, *args, **kwargs):
        check_place(optimizer)
        pairs = list(grads_and_vars)
        if session.active():
            pairs = own_gradients.settle(session, optimizer, pairs)
        pairs = session.average(optimizer, pairs)
        return own_apply(optimizer, pairs, *args, **kwargs)

    kind.compute_gradients, kind.apply_gradients = compute_gradients, apply_gradients


def _watch_runs(session):
    own_run, own_make = client.BaseSession.run, client.BaseSession.make_callable
    own_setup = client.BaseSession.partial_run_setup

    @functools.wraps(own_run)
    def run(self, fetches, feed_dict=None, options=None, run_metadata=None):
        if session.trains(self.graph, fetches):
            return session.run(own_run, self, fetches, feed_dict, options, run_metadata)
        if not session.joined or not session.active():
            return own_run(self, fetches, feed_dict, options, run_metadata)
        return _run_beside(own_run, self, fetches, feed_dict, options, run_metadata)

    @functools.wraps(own_make)
    def make_callable(self, fetches, feed_list=None, accept_options=False):
        if not _concerns_others(session, self.graph, fetches):
            return own_make(self, fetches, feed_list, accept_options)
        return lambda *values, **options: run(self, fetches, dict(zip(feed_list or (), values)),
                                              **options)

    @functools.wraps(own_setup)
    def partial_run_setup(self, fetches, feeds=None):
        if session.trains(self.graph, fetches):
            session.refuse("it trains by partial_run, piece by piece",
                           "train by run, or use poseidon.tensorflow.v1 in the script")
        return own_setup(self, fetches, feeds)

    client.BaseSession.run, client.BaseSession.make_callable = run, make_callable
    client.BaseSession.partial_run_setup = partial_run_setup


def _concerns_others(session, graph, fetches):
    """Whether a run is more than this worker's own matter."""
    if not session.joined or not session.active():
        return False
    from poseidon.tensorflow import v1

    kind = v1.kind_of(graph, fetches)
    return bool(kind.meetings or kind.written)


def _run_beside(own_run, self, fetches, feeds, *rest):
    """A run that does not train. Where it needs gradients, for summaries say, it takes those of this
    worker, who has all the data: nobody else need make the same run at the same time."""
    from poseidon.tensorflow import v1

    kind = v1.kind_of(self.graph, fetches)
    means = {}
    if kind.meetings:
        mine = own_run(self, [each.inputs[0] for each in kind.meetings], feeds)
        means = dict(zip((each.outputs[0] for each in kind.meetings), mine))
    result = own_run(self, fetches, {**(feeds or {}), **means} if means else feeds, *rest)
    v1.shared_variables.written(self, fetches, bool(feeds))
    return result


def _watch_config(session):
    own = client.BaseSession.__init__

    @functools.wraps(own)
    def init(self, target="", graph=None, config=None):
        if isinstance(config, ConfigProto) and (config.distributed or config.client_id >= 0):
            session.leave_data("its session has a client_id")
        own(self, target, graph, config)

    client.BaseSession.__init__ = init


def _watch_clusters(session):
    own = server_lib.Server.__init__

    @functools.wraps(own)
    def init(server, *args, **kwargs):
        session.step_aside("the script begins a cluster of TensorFlow itself")
        own(server, *args, **kwargs)

    server_lib.Server.__init__ = init
