# SPDX-License-Identifier: Apache-2.0
"""Checkpoints and summaries of sessions: worker 0 alone writes them."""

import functools

import tensorflow.compat.v1 as tensorflow
from tensorflow.python.summary.writer import event_file_writer
from tensorflow.python.training import monitored_session, saver


def apply(session):
    """From now on the session is asked."""
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
