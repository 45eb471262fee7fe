# SPDX-License-Identifier: Apache-2.0
"""CIFAR-10 in the style of the tutorials of 2017: a graph, queue runners, a session, --max_steps.

    psd_run --workers 2 "python cifar10_train.py --data_dir DIRECTORY --max_steps 400"

DIRECTORY has the binary batches (data_batch_1.bin ... test_batch.bin). Nothing in here is Poseidon's
but the three flags, which psd_run gives, the fields of tf.ConfigProto that they go to, and the number
of workers in the environment, by which the learning rate is multiplied."""

import os
import time

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_boolean('distributed', False, 'Train with Poseidon.')
tf.app.flags.DEFINE_string('master_address', 'tcp://0.0.0.0:5555', 'Address of the master.')
tf.app.flags.DEFINE_integer('client_id', -1, 'Number of this worker.')
tf.app.flags.DEFINE_string('data_dir', 'data/cifar-10-batches-bin', 'Directory of the batches.')
tf.app.flags.DEFINE_string('train_dir', '', 'Directory for checkpoints; none: no checkpoint.')
tf.app.flags.DEFINE_integer('max_steps', 1000, 'Number of steps.')
tf.app.flags.DEFINE_integer('batch_size', 64, 'Images of a step, of each worker.')
tf.app.flags.DEFINE_integer('seed', 0, 'Of everything random; 0: none.')
tf.app.flags.DEFINE_float('learning_rate', 0.001, 'Of Adam, with one worker.')

IMAGE_SIZE, CLASSES, RECORD_BYTES = 32, 10, 1 + 3 * 32 * 32


def decode(record):
    """A record is a label and then the red, green and blue planes."""
    raw = tf.decode_raw(record, tf.uint8)
    label = tf.cast(raw[0], tf.int32)
    planes = tf.reshape(raw[1:RECORD_BYTES], [3, IMAGE_SIZE, IMAGE_SIZE])
    image = tf.cast(tf.transpose(planes, [1, 2, 0]), tf.float32) / 128.0 - 1.0
    image.set_shape([IMAGE_SIZE, IMAGE_SIZE, 3])
    return image, label


def distorted_inputs():
    """Batches of images in random order, through queues; every worker draws its own."""
    files = [os.path.join(FLAGS.data_dir, 'data_batch_%d.bin' % i) for i in range(1, 6)]
    queue = tf.train.string_input_producer(files)
    _, record = tf.FixedLengthRecordReader(record_bytes=RECORD_BYTES).read(queue)
    image, label = decode(record)
    image = tf.image.random_flip_left_right(image)
    return tf.train.shuffle_batch([image, label], FLAGS.batch_size, capacity=5000,
                                  min_after_dequeue=3000, num_threads=1)


def inference(images, getter=None):
    """Two convolutions and two fully connected layers; the getter may give other variables."""
    hidden = images
    with tf.variable_scope('model', reuse=tf.AUTO_REUSE, custom_getter=getter):
        for number, channels in enumerate((16, 32)):
            kernel = tf.get_variable('conv%d' % number, [5, 5, hidden.shape[-1], channels],
                                     initializer=tf.truncated_normal_initializer(stddev=5e-2))
            bias = tf.get_variable('bias%d' % number, [channels],
                                   initializer=tf.zeros_initializer())
            hidden = tf.nn.relu(tf.nn.conv2d(hidden, kernel, [1, 1, 1, 1], padding='SAME') + bias)
            hidden = tf.nn.max_pool(hidden, [1, 3, 3, 1], [1, 2, 2, 1], padding='SAME')
        hidden = tf.reshape(hidden, [-1, 8 * 8 * 32])
        for number, size in enumerate((64, CLASSES)):
            weights = tf.get_variable('local%d' % number, [hidden.shape[-1], size],
                                      initializer=tf.truncated_normal_initializer(stddev=0.04))
            offset = tf.get_variable('offset%d' % number, [size],
                                     initializer=tf.constant_initializer(0.1))
            hidden = tf.matmul(tf.nn.relu(hidden) if number else hidden, weights) + offset
    return hidden


def test_set():
    raw = np.fromfile(os.path.join(FLAGS.data_dir, 'test_batch.bin'), np.uint8)
    raw = raw.reshape(-1, RECORD_BYTES)
    images = raw[:, 1:].reshape(-1, 3, IMAGE_SIZE, IMAGE_SIZE).transpose(0, 2, 3, 1)
    return images.astype(np.float32) / 128.0 - 1.0, raw[:, 0]


def main(_):
    if FLAGS.seed:
        tf.set_random_seed(FLAGS.seed + max(FLAGS.client_id, 0))  # workers draw different images
    global_step = tf.Variable(0, trainable=False, name='global_step')
    images, labels = distorted_inputs()
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=labels, logits=inference(images)))
    # A step of N workers is that of N times the batch, and bears N times the learning rate.
    workers = int(os.environ.get('PSD_WORLD_SIZE', 1))
    step_op = tf.train.AdamOptimizer(FLAGS.learning_rate * workers).minimize(loss, global_step)
    averages = tf.train.ExponentialMovingAverage(0.999, global_step)
    with tf.control_dependencies([step_op]):
        train_op = averages.apply(tf.trainable_variables())

    def averaged(getter, *args, **kwargs):
        return averages.average(getter(*args, **kwargs))

    given = tf.placeholder(tf.float32, [None, IMAGE_SIZE, IMAGE_SIZE, 3])
    predicted = tf.argmax(inference(given, averaged), 1)

    config = tf.ConfigProto(distributed=FLAGS.distributed, master_address=FLAGS.master_address,
                            client_id=FLAGS.client_id)
    with tf.Session(config=config) as sess:
        sess.run(tf.global_variables_initializer())
        coord = tf.train.Coordinator()
        threads = tf.train.start_queue_runners(sess=sess, coord=coord)
        start = time.time()
        for step in range(FLAGS.max_steps):
            _, loss_value = sess.run([train_op, loss])
            if step % 50 == 0:
                print('step %d, loss = %.2f (%.1f s)' % (step, loss_value, time.time() - start))
        coord.request_stop()
        test_images, test_labels = test_set()
        right = sum(int((sess.run(predicted, {given: test_images[at:at + 500]})
                         == test_labels[at:at + 500]).sum())
                    for at in range(0, len(test_images), 500))
        coord.join(threads, stop_grace_period_secs=5, ignore_live_threads=True)
        if FLAGS.train_dir:
            tf.train.Saver().save(sess, os.path.join(FLAGS.train_dir, 'model.ckpt'),
                                  global_step=global_step)
    print('CIFAR-10 accuracy: %.4f' % (right / len(test_labels)))


if __name__ == '__main__':
    tf.app.run()
