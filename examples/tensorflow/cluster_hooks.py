# SPDX-License-Identifier: Apache-2.0
"""A cluster of TensorFlow 1 with hooks: workers do 10 iterations together, and everybody ends.

    python cluster_hooks.py --job_name ps     --task_index 0 --ps_hosts H:P --worker_hosts H:P,H:P
    python cluster_hooks.py --job_name worker --task_index 0 --ps_hosts H:P --worker_hosts H:P,H:P
    python cluster_hooks.py --job_name worker --task_index 1 --ps_hosts H:P --worker_hosts H:P,H:P

in any order. An iteration sleeps a while, in place of work. When a worker has stopped, a hook puts
its number into the queue of every parameter server; one that has the numbers of all workers ends. A
worker that comes when the others have ended long ago does one iteration, sees that these are enough,
and ends."""

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
flags.DEFINE_float('max_wait', 600, 'Seconds in which worker 0 has to initialize the variables')


def done_queue(ps, workers):
    with tf.device('/job:ps/task:%d' % ps):
        return tf.FIFOQueue(workers, tf.int32, shared_name='done_queue%d' % ps)


def only(*devices):
    """A session without this wants all tasks of the cluster to be there when it begins. One that
    has ended is waited for without end or makes it fail, and one that has not come yet is called in
    vain, after which TensorFlow fails to reach it for a while."""
    return tf.ConfigProto(device_filters=devices)


class DoneHook(tf.train.SessionRunHook):
    """Tells all parameter servers that this worker is done."""

    def __init__(self, servers, workers):
        self._tell = []
        for ps in range(servers):
            with tf.device('/job:ps/task:%d' % ps):  # the number, too: the ps has to fetch nothing
                self._tell.append(done_queue(ps, workers).enqueue(tf.constant(FLAGS.task_index)))

    def end(self, session):
        for each in self._tell:
            try:
                session.run(each)
            except tf.errors.UnavailableError:
                pass  # it has heard from all, and was gone before it could answer


def serve(server, workers):
    dequeue = done_queue(FLAGS.task_index, workers).dequeue()
    done = set()
    with tf.Session(server.target, config=only('/job:ps/task:%d' % FLAGS.task_index)) as session:
        while len(done) < workers:
            worker = session.run(dequeue)
            print('ps %d received done %d' % (FLAGS.task_index, worker), flush=True)
            done.add(worker)


def wait_for_variables(server, config):
    """MonitoredTrainingSession would do it as well, but it looks only every 30 s."""
    missing = tf.report_uninitialized_variables()
    deadline = time.monotonic() + FLAGS.max_wait
    with tf.Session(server.target, config=config) as session:
        if session.run(missing).size > 0:
            print('worker %d waits for worker 0' % FLAGS.task_index, flush=True)
        while session.run(missing).size > 0:
            if time.monotonic() > deadline:
                raise SystemExit('worker %d: worker 0 has not initialized the variables within '
                                 '%g s; does it run?' % (FLAGS.task_index, FLAGS.max_wait))
            time.sleep(0.1)


def work(server, servers, workers):
    chief = FLAGS.task_index == 0
    me = '/job:worker/task:%d' % FLAGS.task_index
    config = only('/job:ps', me)
    with tf.device(tf.train.replica_device_setter(ps_tasks=servers, worker_device=me)):
        step = tf.train.get_or_create_global_step()
        iterate = tf.assign_add(step, 1)
    hooks = [tf.train.StopAtStepHook(last_step=FLAGS.iterations), DoneHook(servers, workers)]
    if not chief:
        wait_for_variables(server, config)
    mine = 0
    with tf.train.MonitoredTrainingSession(server.target, is_chief=chief, config=config,
                                           hooks=hooks) as session:
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
        serve(server, workers)
    else:
        work(server, servers, workers)


if __name__ == '__main__':
    tf.app.run()
