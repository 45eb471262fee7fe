# SPDX-License-Identifier: Apache-2.0
"""A cluster of TensorFlow 1 with hooks: workers do 10 iterations together, and everybody ends.

    python cluster_hooks.py --job_name ps     --task_index 0 --ps_hosts H:P --worker_hosts H:P,H:P
    python cluster_hooks.py --job_name worker --task_index 0 --ps_hosts H:P --worker_hosts H:P,H:P
    python cluster_hooks.py --job_name worker --task_index 1 --ps_hosts H:P --worker_hosts H:P,H:P

in any order. An iteration sleeps a while, in place of work. When a worker has stopped, a hook puts
its number into the queue of every parameter server; one that has the numbers of all workers ends. A
worker that comes when the others have ended long ago does one iteration, sees that these are
enough, and ends.

Nobody waits for more than --max_wait: a worker for parameter servers and for worker 0, a parameter
server for the next word of any worker, which says with every iteration that it is there."""

import os
import threading
import time

import tensorflow.compat.v1 as tf

flags = tf.app.flags
FLAGS = flags.FLAGS
flags.DEFINE_string('job_name', '', 'ps or worker')
flags.DEFINE_integer('task_index', 0, 'Number of this task in its job')
flags.DEFINE_string('ps_hosts', '', 'host:port of the parameter servers, with commas between them')
flags.DEFINE_string('worker_hosts', '', 'host:port of the workers')
flags.DEFINE_integer('iterations', 10, 'Of all workers together')
flags.DEFINE_float('sleep', 0.1, 'Seconds of an iteration')
flags.DEFINE_float('max_wait', 600, 'Seconds to wait for others; an iteration takes less')

STILL_THERE = -1  # in the place of a worker's number


def done_queue(ps, workers):
    with tf.device('/job:ps/task:%d' % ps):
        return tf.FIFOQueue(10 * workers, tf.int32, shared_name='done_queue%d' % ps)


def only(*devices):
    """A session without this wants all tasks of the cluster to be there when it begins. One that
    has ended is waited for without end or makes it fail, and one that has not come yet is called in
    vain, after which TensorFlow fails to reach it for a while."""
    return tf.ConfigProto(device_filters=devices)


class Patience:
    """Ends this process when nothing has happened for --max_wait. A session that is made waits for
    the tasks that it needs in a call of TensorFlow which has no limit."""

    def __init__(self):
        self.renew()
        threading.Thread(target=self._watch, daemon=True).start()

    def renew(self):
        self._until = time.monotonic() + FLAGS.max_wait

    def _watch(self):
        while time.monotonic() < self._until:
            time.sleep(0.1)
        whom = 'workers' if FLAGS.job_name == 'ps' else 'the parameter servers and worker 0'
        print('%s %d: heard nothing from %s for %g s; do they run?'
              % (FLAGS.job_name, FLAGS.task_index, whom, FLAGS.max_wait), flush=True)
        os._exit(1)


class DoneHook(tf.train.SessionRunHook):
    """Tells all parameter servers that this worker is there, and that it is done."""

    def __init__(self, servers, workers, patience):
        self._patience = patience
        self._there, self._done = [], []
        for ps in range(servers):
            queue = done_queue(ps, workers)
            with tf.device('/job:ps/task:%d' % ps):  # the number, too: the ps has to fetch nothing
                self._there.append(queue.enqueue(tf.constant(STILL_THERE)))
                self._done.append(queue.enqueue(tf.constant(FLAGS.task_index)))

    def before_run(self, run_context):
        return tf.train.SessionRunArgs(self._there)

    def after_run(self, run_context, run_values):
        self._patience.renew()

    def end(self, session):
        for each in self._done:
            try:
                session.run(each)
            except tf.errors.UnavailableError:
                pass  # it has heard from all, and was gone before it could answer


def serve(server, workers, patience):
    dequeue = done_queue(FLAGS.task_index, workers).dequeue()
    done = set()
    with tf.Session(server.target, config=only('/job:ps/task:%d' % FLAGS.task_index)) as session:
        while len(done) < workers:
            worker = session.run(dequeue)
            patience.renew()
            if worker != STILL_THERE:
                print('ps %d received done %d' % (FLAGS.task_index, worker), flush=True)
                done.add(worker)


def wait_for_variables(server, config):
    """MonitoredTrainingSession would do it as well, but it looks only every 30 s."""
    missing = tf.report_uninitialized_variables()
    with tf.Session(server.target, config=config) as session:
        if session.run(missing).size > 0:
            print('worker %d waits for worker 0' % FLAGS.task_index, flush=True)
        while session.run(missing).size > 0:
            time.sleep(0.1)


def work(server, servers, workers, patience):
    chief = FLAGS.task_index == 0
    me = '/job:worker/task:%d' % FLAGS.task_index
    config = only('/job:ps', me)
    with tf.device(tf.train.replica_device_setter(ps_tasks=servers, worker_device=me)):
        step = tf.train.get_or_create_global_step()
        iterate = tf.assign_add(step, 1)
    done = DoneHook(servers, workers, patience)
    if not chief:
        wait_for_variables(server, config)
    mine = 0
    with tf.train.MonitoredTrainingSession(server.target, is_chief=chief, config=config, hooks=[
            tf.train.StopAtStepHook(last_step=FLAGS.iterations), done]) as session:
        while not session.should_stop():
            at = session.run(iterate)
            mine += 1
            time.sleep(FLAGS.sleep)
    print('worker %d did %d iterations, the last one was %d' % (FLAGS.task_index, mine, at),
          flush=True)


def main(_):
    tf.disable_eager_execution()
    cluster = {'ps': FLAGS.ps_hosts.split(','), 'worker': FLAGS.worker_hosts.split(',')}
    servers, workers = len(cluster['ps']), len(cluster['worker'])
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=FLAGS.job_name,
                             task_index=FLAGS.task_index)
    if FLAGS.job_name == 'ps':
        serve(server, workers, Patience())
    else:
        work(server, servers, workers, Patience())


if __name__ == '__main__':
    tf.app.run()
