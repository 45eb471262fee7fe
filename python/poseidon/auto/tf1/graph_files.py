# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and summaries of sessions: worker 0 alone writes them, and the others wait for it
before they read what it wrote. A session that is made from a checkpoint of worker 0 is the same on all
workers before the script sees it."""

import functools
import os
import threading

import tensorflow
from tensorflow.compat import v1
from tensorflow.python.summary.writer import event_file_writer
from tensorflow.python.training import monitored_session, saver, session_manager, training_util


def apply(session):
    """From now on the session is asked."""
    places = _Places(session)
    _watch_checkpoints(session, places)
    _watch_searches(places)
    _watch_summaries(session)
    _watch_monitored(session, places)
    _watch_removals(session)


def _watch_removals(session):
    """Scripts clear their directory when they begin. A worker that comes later must not take away what worker
    0 has written since."""
    def by_worker_0(own):
        @functools.wraps(own)
        def remove(*args, **kwargs):
            if not session.deals() or session.rank == 0:
                own(*args, **kwargs)

        return remove

    for module, names in ((v1.gfile, ("DeleteRecursively", "Remove")), (v1.io.gfile, ("rmtree", "remove"))):
        for name in names:
            setattr(module, name, by_worker_0(getattr(module, name)))


class _Places:
    """Directories that the script saves to. Scripts that deal out their data themselves know which
    worker they are, and may save and load on one alone: nobody waits for them."""

    def __init__(self, session):
        self._session = session
        self.making = False  # a session, from what this worker finds

    def add(self, directory):
        """Every worker calls it. What TensorFlow's own threads save comes at any time, and does not
        count."""
        if self._session.deals() and threading.current_thread() is threading.main_thread():
            self._session._saved.add(os.path.abspath(directory))

    def before_load(self, directory):
        """What worker 0 has saved there is complete afterwards."""
        if self._session.deals() and not self.making:
            self._session.before_load(directory)


def _watch_checkpoints(session, places):
    own_save, own_restore = saver.Saver.save, saver.Saver.restore

    @functools.wraps(own_save)
    def save(self, sess, save_path, global_step=None, *args, **kwargs):
        if session.joined:
            places.add(os.path.dirname(save_path))
        if session.writes():
            return own_save(self, sess, save_path, global_step, *args, **kwargs)
        return _path(self, sess, save_path, global_step)

    @functools.wraps(own_restore)
    def restore(self, sess, save_path):
        if isinstance(save_path, str):
            places.before_load(os.path.dirname(save_path))
        return own_restore(self, sess, save_path)

    saver.Saver.save, saver.Saver.restore = save, restore


def _path(own, sess, save_path, global_step):
    """What Saver.save returns where it writes."""
    if own._is_empty:
        return None
    if global_step is None:
        return save_path
    if not isinstance(global_step, int):
        global_step = training_util.global_step(sess, global_step)
    return f"{save_path}-{global_step:08d}" if own._pad_step_number else f"{save_path}-{global_step}"


def _watch_searches(places):
    """Those of the script: TensorFlow's own calls go past these names."""
    def waiting(own):
        @functools.wraps(own)
        def search(checkpoint_dir, latest_filename=None):
            places.before_load(checkpoint_dir)
            return own(checkpoint_dir, latest_filename)

        return search

    for name in ("latest_checkpoint", "get_checkpoint_state"):
        changed = waiting(getattr(v1.train, name))
        setattr(v1.train, name, changed)
        setattr(tensorflow.train, name, changed)


def _watch_summaries(session):
    own = event_file_writer.EventFileWriter.add_event

    @functools.wraps(own)
    def add_event(self, event):
        if session.writes():
            own(self, event)

    event_file_writer.EventFileWriter.add_event = add_event


def _watch_monitored(session, places):
    own_monitored = monitored_session.MonitoredTrainingSession
    own_prepare = session_manager.SessionManager.prepare_session
    own_create = monitored_session.ChiefSessionCreator.create_session

    @functools.wraps(own_monitored)
    def monitored(master="", is_chief=True, checkpoint_dir=None, *args, **kwargs):
        if session.joined and session.active() and not master:
            is_chief = True  # its variables are its own: worker 0 gives them their values later
            if checkpoint_dir is not None:
                places.add(checkpoint_dir)
            if session.rank != 0:
                checkpoint_dir = None
                kwargs.update(summary_dir=None)
        return own_monitored(master, is_chief, checkpoint_dir, *args, **kwargs)

    @functools.wraps(own_prepare)
    def prepare_session(*args, **kwargs):
        places.making = True
        try:
            return own_prepare(*args, **kwargs)
        finally:
            places.making = False

    @functools.wraps(own_create)
    def create_session(self):
        made = own_create(self)
        if session.joined and session.active() and _is_for_training(made.graph):
            from poseidon.tensorflow.v1 import shared_variables

            shared_variables.share(made)  # before hooks and the script look at the global step
        return made

    session_manager.SessionManager.prepare_session = prepare_session
    monitored_session.ChiefSessionCreator.create_session = create_session
    monitored_session.MonitoredTrainingSession = monitored
    v1.train.MonitoredTrainingSession = monitored


def _is_for_training(graph):
    return any(each.type == "PoseidonPushPull" for each in graph.get_operations())
