# SPDX-License-Identifier: Apache-2.0
"""psd_run --tensorboard: what it writes is read by TensorFlow's own reader of such files."""

import glob

import pytest

from plain_jobs import TREE, fixture_job  # noqa: F401

SCRIPT = """
    import numpy
    import poseidon

    poseidon.init()
    table = poseidon.Table("w", values=numpy.zeros(4, numpy.float32), learning_rate=0.1)
    for step in range(30):
        table.push_pull(numpy.ones(4, numpy.float32)).wait()
        poseidon.report(step, "loss", 1 / (step + 1))
        poseidon.report(step, "näme", float("nan"))
    poseidon.close()
"""


def test_tensorflow_reads_what_is_written(job, tmp_path):  # noqa: F811
    """If this fails, TensorBoard shows nothing of a job, or something else than its workers reported."""
    tf = pytest.importorskip("tensorflow", reason="no TensorFlow here (tools/setup.sh frameworks)")
    done = job(SCRIPT, options=("--name", "shown", "--tensorboard", tmp_path / "boards"),
               PYTHONPATH=str(TREE / "python"))
    assert done.code == 0, done.err
    for rank in range(2):
        (path,) = glob.glob(f"{tmp_path}/boards/shown/worker{rank}/events.out.tfevents.*")
        events = list(tf.compat.v1.train.summary_iterator(path))
        assert events[0].file_version == "brain.Event:2"
        values = [(event.step, value.tag, value.simple_value) for event in events for value in event.summary.value]
        losses = [(step, value) for step, tag, value in values if tag == "loss"]
        assert losses == [(step, pytest.approx(1 / (step + 1))) for step in range(30)]
        assert sum(tag == "näme" and value != value for _, tag, value in values) == 30
        assert all(event.wall_time > 1e9 for event in events)
