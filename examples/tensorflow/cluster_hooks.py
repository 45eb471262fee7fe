# SPDX-License-Identifier: Apache-2.0
"""A cluster of TensorFlow 1 with hooks: workers do 10 iterations together, and everybody ends.

    python cluster_hooks.py --job_name worker --task_index 0 --ps_hosts H:P --worker_hosts H:P,H:P

and so on for every task. An iteration sleeps a while, in place of work. When a worker has stopped, a
hook puts a 1 into the queue of every parameter server; one that has as many as there are workers ends."""

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


def done_queues(servers, workers):
    queues = []
    for ps in range(servers):
        with tf.device('/job:ps/task:%d' % ps):
            queues.append(tf.FIFOQueue(workers, tf.int32, shared_name='done_queue%d' % ps))
    return queues


def only_servers_and_me():
    """A session that waits for no other worker, which may have ended already."""
    return tf.ConfigProto(device_filters=['/job:ps', '/job:worker/task:%d' % FLAGS.task_index])


class DoneHook(tf.train.SessionRunHook):
    """Tells all parameter servers when this worker is done."""

    def __init__(self, queues):
        self._tell = [queue.enqueue(1) for queue in queues]

    def end(self, session):
        for each in self._tell:
            session.run(each)


def serve(server, queue, workers):
    dequeue = queue.dequeue()
    with tf.Session(server.target) as session:
        for number in range(workers):
            session.run(dequeue)
            print('ps %d received done %d' % (FLAGS.task_index, number), flush=True)


def work(server, queues, servers):
    with tf.device(tf.train.replica_device_setter(
            ps_tasks=servers, worker_device='/job:worker/task:%d' % FLAGS.task_index)):
        step = tf.train.get_or_create_global_step()
        iterate = tf.assign_add(step, 1)
    mine = 0
    with tf.train.MonitoredTrainingSession(
            server.target, is_chief=FLAGS.task_index == 0, config=only_servers_and_me(),
            hooks=[tf.train.StopAtStepHook(last_step=FLAGS.iterations),
                   DoneHook(queues)]) as session:
        while not session.should_stop():
            at = session.run(iterate)
            mine += 1
            time.sleep(FLAGS.sleep)
    print('worker %d did %d iterations, the last one was %d' % (FLAGS.task_index, mine, at),
          flush=True)


def main(_):
    tf.disable_eager_execution()
    cluster = {'ps': FLAGS.ps_hosts.split(','), 'worker': FLAGS.worker_hosts.split(',')}
    server = tf.train.Server(tf.train.ClusterSpec(cluster), job_name=FLAGS.job_name,
                             task_index=FLAGS.task_index)
    servers, workers = len(cluster['ps']), len(cluster['worker'])
    queues = done_queues(servers, workers)
    if FLAGS.job_name == 'ps':
        serve(server, queues[FLAGS.task_index], workers)
    else:
        work(server, queues, servers)


if __name__ == '__main__':
    tf.app.run()
