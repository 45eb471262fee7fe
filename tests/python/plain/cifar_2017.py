"""A training script as the tutorials of 2017 had it: a model beside it, flags by argparse, a monitored
session, and all names of TensorFlow inside functions but for the last line."""

import argparse
import json

import cifar_2017_model as model
import numpy as np
import tensorflow as tf

parser = argparse.ArgumentParser()
parser.add_argument('--max_steps', type=int, default=20)
parser.add_argument('--train_dir', type=str, default='./trained')


def train():
    rng = np.random.RandomState(3)
    images = rng.normal(size=(96, 4)).astype(np.float32)
    labels = images[:, :3].argmax(1).astype(np.int32)
    with tf.Graph().as_default():
        global_step = tf.contrib.framework.get_or_create_global_step()
        with tf.device('/cpu:0'):
            image, label = tf.train.slice_input_producer([images, labels])
            some, those = tf.train.shuffle_batch([image, label], 16, 64, 32)
        logits = model.inference(some)
        loss = model.loss(logits, those)
        train_op = model.train(loss, global_step)

        class LossHook(tf.train.SessionRunHook):
            losses = []

            def before_run(self, run_context):
                return tf.train.SessionRunArgs(loss)

            def after_run(self, run_context, run_values):
                self.losses.append(float(run_values.results))

        hook, step = LossHook(), 0
        with tf.train.MonitoredTrainingSession(
                checkpoint_dir=FLAGS.train_dir,
                hooks=[tf.train.StopAtStepHook(last_step=FLAGS.max_steps),
                       tf.train.NanTensorHook(loss), hook]) as session:
            while not session.should_stop():
                _, step = session.run([train_op, global_step])
        print('FOUND ' + json.dumps({'losses': hook.losses, 'step': int(step)}))


def main(argv=None):
    if tf.gfile.Exists(FLAGS.train_dir):
        tf.gfile.DeleteRecursively(FLAGS.train_dir)
    tf.gfile.MakeDirs(FLAGS.train_dir)
    train()


if __name__ == '__main__':
    FLAGS = parser.parse_args()
    tf.app.run()
