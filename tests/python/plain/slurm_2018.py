"""A task of a TensorFlow cluster under Slurm, as scripts for tf_for_slurm are: --ps servers and --workers
workers find each other, count to ten together, and the servers end when the workers have."""

import argparse
import time

import tensorflow.compat.v1 as tf

from poseidon.slurm import DistributedTFQueueHook, ServerDictionary, done_queues

parser = argparse.ArgumentParser()
parser.add_argument('-ps', type=int, default=1)
parser.add_argument('-workers', type=int, default=2)
FLAGS = parser.parse_args()

ListOfTFTasks = ['ps'] * FLAGS.ps + ['worker'] * FLAGS.workers
dictionary, task_type, task_index = ServerDictionary.GetServerDictionary(ListOfTFTasks)
cluster = tf.train.ClusterSpec(dictionary)
server = tf.train.Server(cluster, job_name=task_type, task_index=task_index)


def only(*devices):
    return tf.ConfigProto(device_filters=devices)


def serve():
    if task_index == 1:  # by the names of poseidon.slurm
        done_queues.wait_for_workers(server, task_index, FLAGS.workers)
        return
    queue = DistributedTFQueueHook.create_done_queue(task_index, FLAGS.workers)
    with tf.Session(server.target, config=only('/job:ps/task:%d' % task_index)) as session:
        for i in range(FLAGS.workers):
            session.run(queue.dequeue())
            print('ps %d received done %d' % (task_index, i), flush=True)


def work():
    me = '/job:worker/task:%d' % task_index
    with tf.device(tf.train.replica_device_setter(worker_device=me, cluster=cluster)):
        step = tf.train.get_or_create_global_step()
        increment = tf.assign_add(step, 1)
    hooks = [DistributedTFQueueHook.QueueManagementHook(NumberOfPS=FLAGS.ps,
                                                        NumberOfWorkers=FLAGS.workers),
             tf.train.StopAtStepHook(last_step=10)]
    at = 0
    with tf.train.MonitoredTrainingSession(server.target, is_chief=task_index == 0, hooks=hooks,
                                           config=only('/job:ps', me)) as session:
        while not session.should_stop():
            at = session.run(increment)
            time.sleep(0.01)
    print('worker %d ended at %d' % (task_index, at), flush=True)


with tf.Graph().as_default():
    serve() if task_type == 'ps' else work()
