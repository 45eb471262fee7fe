"""A plain script with a MonitoredTrainingSession that stops at a step. Nothing of Poseidon."""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
flags = tf.app.flags
flags.DEFINE_boolean('distributed', False, '')
flags.DEFINE_string('master_address', 'tcp://0.0.0.0:5555', '')
flags.DEFINE_integer('client_id', -1, '')
flags.FLAGS(sys.argv)
FLAGS = flags.FLAGS

features = np.random.RandomState(1).normal(size=(200, 4)).astype(np.float32)
target = features[:, :1] - features[:, 1:2]
shuffled = np.random.permutation(200)
x = tf.train.slice_input_producer([features[shuffled], target[shuffled]])
batch, wanted = tf.train.batch(x, 10)  # through queue runners
w = tf.get_variable('w', [4, 1])
loss = tf.reduce_mean(tf.square(tf.matmul(batch, w) - wanted))
step = tf.train.get_or_create_global_step()
train = tf.train.AdamOptimizer(0.1).minimize(loss, global_step=step)
config = tf.ConfigProto(distributed=FLAGS.distributed, master_address=FLAGS.master_address,
                        client_id=FLAGS.client_id, inter_op_parallelism_threads=2)
runs = 0
with tf.train.MonitoredTrainingSession(
        checkpoint_dir='checkpoints', config=config,
        hooks=[tf.train.StopAtStepHook(last_step=25)]) as session:
    while not session.should_stop():
        _, count, weights = session.run([train, step, w])
        runs += 1
print('FOUND ' + json.dumps({'runs': runs, 'weights': np.round(weights, 6).tolist()}), flush=True)
