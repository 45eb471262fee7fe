# SPDX-License-Identifier: Apache-2.0
"""Parameter servers of TensorFlow 1 that end when the workers are done.

    from poseidon.slurm import done_queues

    if task_type == "ps":
        done_queues.wait_for_workers(server, task_index, workers)    # returns when all are done
    else:
        hooks = [done_queues.DoneQueueHook(servers, workers), ...]   # of a monitored session

A `tf.train.Server` has no end of its own. So each parameter server keeps a queue, into which every
worker puts one word when its session ends; the server that has taken as many as there are workers is
done."""

import tensorflow.compat.v1 as tf


def done_queue(ps, workers):
    """The queue of one parameter server, the same for whoever asks."""
    with tf.device(f"/job:ps/task:{ps}"):
        return tf.FIFOQueue(workers, tf.int32, shared_name=f"done_queue{ps}")


def done_queues(servers, workers):
    """Those of all parameter servers."""
    return [done_queue(ps, workers) for ps in range(servers)]


class DoneQueueHook(tf.train.SessionRunHook):
    """Tells every parameter server at the end of the session that this worker is done."""

    def __init__(self, servers, workers):
        self._servers, self._workers = servers, workers
        self._words = []

    def begin(self):
        """Before the graph is finished."""
        self._words = []
        for ps, queue in enumerate(done_queues(self._servers, self._workers)):
            with tf.device(f"/job:ps/task:{ps}"):  # the word, too: the ps fetches nothing
                self._words.append(queue.enqueue(tf.constant(1)))

    def end(self, session):
        """One after the other: the first server may leave while others are being told."""
        for word in self._words:
            try:
                session.run(word)
            except tf.errors.UnavailableError:
                pass  # it has heard from all, and was gone before it could answer


def wait_for_workers(server, ps, workers):
    """Blocks a parameter server until all workers are done, and says so of each."""
    with tf.Graph().as_default():
        word = done_queue(ps, workers).dequeue()
        # Without the filter the session would first want to hear from every task of the cluster.
        config = tf.ConfigProto(device_filters=[f"/job:ps/task:{ps}"])
        with tf.Session(server.target, config=config) as session:
            for count in range(workers):
                session.run(word)
                print(f"ps {ps} received done {count}", flush=True)
