"""A cluster script of 2017: four flags, a ps, names of TensorFlow 1. It is run with --personality tf1 --auto tf1."""

import json

import tensorflow as tf

flags = tf.app.flags
flags.DEFINE_string('ps_hosts', '', 'host:port,...')
flags.DEFINE_string('worker_hosts', '', 'host:port,...')
flags.DEFINE_string('job_name', '', 'ps or worker')
flags.DEFINE_integer('task_index', 0, 'Number within the job')
FLAGS = flags.FLAGS


def main(_):
    cluster = tf.train.ClusterSpec({'ps': FLAGS.ps_hosts.split(','), 'worker': FLAGS.worker_hosts.split(',')})
    server = tf.train.Server(cluster, job_name=FLAGS.job_name, task_index=FLAGS.task_index)
    if FLAGS.job_name == 'ps':
        print('PS', flush=True)
        server.join()
    with tf.device(tf.train.replica_device_setter(
            worker_device='/job:worker/task:%d' % FLAGS.task_index, cluster=cluster)):
        global_step = tf.contrib.framework.get_or_create_global_step()
        w = tf.get_variable('w', [2], initializer=tf.zeros_initializer())
        loss = tf.reduce_sum(tf.square(w - [1.0, 2.0]))
        train_op = tf.train.GradientDescentOptimizer(0.1).minimize(loss, global_step=global_step)
    config = tf.ConfigProto(device_filters=['/job:ps', '/job:worker/task:%d' % FLAGS.task_index])
    with tf.train.MonitoredTrainingSession(
            master=server.target, is_chief=FLAGS.task_index == 0, config=config,
            hooks=[tf.train.StopAtStepHook(last_step=40)]) as session:
        value = None
        while not session.should_stop():
            value = session.run([train_op, w])[1]
    print('FOUND ' + json.dumps({'w': [float(each) for each in value]}), flush=True)


if __name__ == '__main__':
    tf.app.run()
