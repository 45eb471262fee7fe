# SPDX-License-Identifier: Apache-2.0
"""Graphs in files: the .meta of checkpoints, saved models.

What averages gradients is not written: without it the graph is that of one process, and any
TensorFlow reads it. So a graph that was read trains on each worker by itself, and to run that part of
it is refused; to take values or other operations from it is not."""

import functools

import tensorflow as version_2
import tensorflow.compat.v1 as tensorflow
from tensorflow.core.framework import graph_pb2
from tensorflow.python.client import session as client
from tensorflow.python.framework import importer, meta_graph

_AVERAGES = "PoseidonPushPull"
_TRAINS = ("Apply", "ResourceApply", "SparseApply", "ResourceSparseApply")  # how their names begin


def apply(session):
    """From now on graphs are written so, and the session hears of those that are read."""
    _write_plain()
    _watch_imports()
    _watch_runs(session)


def _write_plain():
    own = meta_graph.export_scoped_meta_graph

    @functools.wraps(own)
    def export_scoped_meta_graph(filename=None, graph_def=None, graph=None, export_scope=None, *rest,
                                 **kwargs):
        if export_scope is None:
            if graph_def is None:
                graph_def = (graph or tensorflow.get_default_graph()).as_graph_def(add_shapes=True)
            graph_def = _without_averaging(graph_def)
        return own(filename, graph_def, graph, export_scope, *rest, **kwargs)

    meta_graph.export_scoped_meta_graph = export_scoped_meta_graph


def _without_averaging(graph_def):
    """The mean of one process is what it has."""
    plain = graph_pb2.GraphDef()
    plain.CopyFrom(graph_def)
    for node in plain.node:
        if node.op == _AVERAGES:
            node.op = "Identity"
            for name in set(node.attr) - {"T", "_output_shapes"}:
                del node.attr[name]
    return plain


def _watch_imports():
    own = importer.import_graph_def

    @functools.wraps(own)
    def import_graph_def(*args, **kwargs):
        found = own(*args, **kwargs)
        tensorflow.get_default_graph()._poseidon_read = {}  # fetches: whether they train alone
        return found

    for module in (importer, tensorflow, tensorflow.graph_util, version_2.graph_util):
        if getattr(module, "import_graph_def", None) is own:
            module.import_graph_def = import_graph_def


def _watch_runs(session):
    own_run, own_make = client.BaseSession.run, client.BaseSession.make_callable

    def check(graph, fetches):
        if session.active() and _trains_alone(graph, fetches):
            session.refuse(
                "it trains by operations of a graph that was read from a file (import_meta_graph), "
                "so every worker would train by itself",
                "make the graph in the script and take the values from the file (Saver.restore), or "
                "give the gradients to an optimizer that the script makes")

    @functools.wraps(own_run)
    def run(self, fetches, *args, **kwargs):
        check(self.graph, fetches)
        return own_run(self, fetches, *args, **kwargs)

    @functools.wraps(own_make)
    def make_callable(self, fetches, *args, **kwargs):
        check(self.graph, fetches)
        return own_make(self, fetches, *args, **kwargs)

    client.BaseSession.run, client.BaseSession.make_callable = run, make_callable


def _trains_alone(graph, fetches):
    """Whether a run changes variables by gradients of this worker."""
    known = getattr(graph, "_poseidon_read", None)
    if known is None:
        return False
    asked = client._FetchHandler(graph, fetches, {})
    operations = [each.op for each in asked.fetches()] + asked.targets()
    names = tuple(each.name for each in operations)
    if names not in known:
        known[names] = any(each.type.startswith(_TRAINS) and
                           not any(before.type == _AVERAGES for before in _all_before([each]))
                           for each in _all_before(operations))
    return known[names]


def _all_before(operations):
    """With these."""
    waiting, seen = list(operations), set(operations)
    while waiting:
        operation = waiting.pop()
        before = {*(each.op for each in operation.inputs), *operation.control_inputs} - seen
        waiting += before
        seen |= before
    return seen
