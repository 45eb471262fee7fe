"""A script in the style of the CIFAR-10 tutorial of June 2017, which uses every call that it has: queues,
distorted images, a convolution with local response normalization, moving averages, a monitored session with
hooks, and an evaluation that restores them. Nothing of Poseidon."""

import json
import math
import os
import time

import numpy as np
import tensorflow as tf

FLAGS = tf.app.flags.FLAGS
tf.app.flags.DEFINE_integer('batch_size', 16, 'Images in a batch')
tf.app.flags.DEFINE_integer('max_steps', 30, 'Steps')
tf.app.flags.DEFINE_string('data_dir', 'data', 'Where the images are')
tf.app.flags.DEFINE_string('train_dir', 'trained', 'Where checkpoints go')
tf.app.flags.DEFINE_string('eval_dir', 'evaluated', 'Where the evaluation goes')
tf.app.flags.DEFINE_boolean('use_fp16', False, 'Half precision')

SIZE, CROP, CLASSES, EXAMPLES = 10, 8, 3, 96
MOVING_AVERAGE_DECAY = 0.9


def read_image(filename_queue):
    image_bytes = SIZE * SIZE * 3
    reader = tf.FixedLengthRecordReader(record_bytes=1 + image_bytes)
    _, value = reader.read(filename_queue)
    record = tf.decode_raw(value, tf.uint8)
    label = tf.cast(tf.strided_slice(record, [0], [1]), tf.int32)
    depth_major = tf.reshape(tf.strided_slice(record, [1], [1 + image_bytes]), [3, SIZE, SIZE])
    return tf.cast(tf.transpose(depth_major, [1, 2, 0]), tf.float32), label


def batches(image, label, shuffle):
    if shuffle:
        images, labels = tf.train.shuffle_batch(
            [image, label], batch_size=FLAGS.batch_size, num_threads=2, capacity=96, min_after_dequeue=48)
    else:
        images, labels = tf.train.batch([image, label], batch_size=FLAGS.batch_size, num_threads=1, capacity=96)
    tf.summary.image('images', images)
    return images, tf.reshape(labels, [FLAGS.batch_size])


def distorted_inputs():
    files = [os.path.join(FLAGS.data_dir, 'data_batch_%d.bin' % number) for number in range(1, 3)]
    for each in files:
        if not tf.gfile.Exists(each):
            raise ValueError('Failed to find file: ' + each)
    image, label = read_image(tf.train.string_input_producer(files))
    image = tf.random_crop(image, [CROP, CROP, 3])
    image = tf.image.random_flip_left_right(image)
    image = tf.image.random_brightness(image, max_delta=10)
    image = tf.image.random_contrast(image, lower=0.8, upper=1.2)
    image = tf.image.per_image_standardization(image)
    image.set_shape([CROP, CROP, 3])
    label.set_shape([1])
    return batches(image, label, shuffle=True)


def inputs():
    image, label = read_image(tf.train.string_input_producer([os.path.join(FLAGS.data_dir, 'test_batch.bin')],
                                                             shuffle=False))
    image = tf.image.resize_image_with_crop_or_pad(image, CROP, CROP)
    image = tf.image.per_image_standardization(image)
    image.set_shape([CROP, CROP, 3])
    label.set_shape([1])
    return batches(image, label, shuffle=False)


def variable_on_cpu(name, shape, initializer):
    with tf.device('/cpu:0'):
        return tf.get_variable(name, shape, initializer=initializer,
                               dtype=tf.float16 if FLAGS.use_fp16 else tf.float32)


def variable_with_weight_decay(name, shape, stddev, wd):
    variable = variable_on_cpu(name, shape, tf.truncated_normal_initializer(stddev=stddev, dtype=tf.float32))
    if wd is not None:
        tf.add_to_collection('losses', tf.multiply(tf.nn.l2_loss(variable), wd, name='weight_loss'))
    return variable


def summarize(x):
    tf.summary.histogram(x.op.name + '/activations', x)
    tf.summary.scalar(x.op.name + '/sparsity', tf.nn.zero_fraction(x))


def inference(images):
    with tf.variable_scope('conv1') as scope:
        kernel = variable_with_weight_decay('weights', [3, 3, 3, 8], 5e-2, None)
        conv = tf.nn.conv2d(images, kernel, [1, 1, 1, 1], padding='SAME')
        biases = variable_on_cpu('biases', [8], tf.constant_initializer(0.0))
        conv1 = tf.nn.relu(tf.nn.bias_add(conv, biases), name=scope.name)
        summarize(conv1)
    pool1 = tf.nn.max_pool(conv1, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding='SAME', name='pool1')
    norm1 = tf.nn.lrn(pool1, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75, name='norm1')
    with tf.variable_scope('local2') as scope:
        flat = tf.reshape(norm1, [FLAGS.batch_size, -1])
        weights = variable_with_weight_decay('weights', [flat.get_shape()[1].value, 16], 0.04, 0.004)
        biases = variable_on_cpu('biases', [16], tf.constant_initializer(0.1))
        local2 = tf.nn.relu(tf.matmul(flat, weights) + biases, name=scope.name)
    with tf.variable_scope('softmax_linear') as scope:
        weights = variable_with_weight_decay('weights', [16, CLASSES], 1 / 16.0, 0.0)
        biases = variable_on_cpu('biases', [CLASSES], tf.constant_initializer(0.0))
        return tf.add(tf.matmul(local2, weights), biases, name=scope.name)


def loss_of(logits, labels):
    cross_entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int64), logits=logits, name='cross_entropy_per_example')
    tf.add_to_collection('losses', tf.reduce_mean(cross_entropy, name='cross_entropy'))
    return tf.add_n(tf.get_collection('losses'), name='total_loss')


def training(total_loss, global_step):
    lr = tf.train.exponential_decay(0.1, global_step, 100, 0.1, staircase=True)
    tf.summary.scalar('learning_rate', lr)
    losses = tf.get_collection('losses')
    averages = tf.train.ExponentialMovingAverage(0.9, name='avg')
    averages_op = averages.apply(losses + [total_loss])
    for each in losses + [total_loss]:
        tf.summary.scalar(each.op.name + ' (raw)', each)
        tf.summary.scalar(each.op.name, averages.average(each))
    with tf.control_dependencies([averages_op]):
        opt = tf.train.GradientDescentOptimizer(lr)
        grads = opt.compute_gradients(total_loss)
    apply_gradient_op = opt.apply_gradients(grads, global_step=global_step)
    for var in tf.trainable_variables():
        tf.summary.histogram(var.op.name, var)
    for grad, var in grads:
        if grad is not None:
            tf.summary.histogram(var.op.name + '/gradients', grad)
    variable_averages = tf.train.ExponentialMovingAverage(MOVING_AVERAGE_DECAY, global_step)
    variables_averages_op = variable_averages.apply(tf.trainable_variables())
    with tf.control_dependencies([apply_gradient_op, variables_averages_op]):
        return tf.no_op(name='train')


def train():
    found = {'losses': []}
    with tf.Graph().as_default():
        global_step = tf.contrib.framework.get_or_create_global_step()
        with tf.device('/cpu:0'):
            images, labels = distorted_inputs()
        loss = loss_of(inference(images), labels)
        train_op = training(loss, global_step)

        class LoggerHook(tf.train.SessionRunHook):
            def begin(self):
                self._step, self._start_time = -1, time.time()

            def before_run(self, run_context):
                self._step += 1
                return tf.train.SessionRunArgs(loss)

            def after_run(self, run_context, run_values):
                found['losses'].append(float(run_values.results))

        class WeightsHook(tf.train.SessionRunHook):
            def end(self, session):
                found['weights'] = [float(each.sum()) for each in session.run(tf.trainable_variables())]
                found['step'] = int(session.run(global_step))

        with tf.train.MonitoredTrainingSession(
                checkpoint_dir=FLAGS.train_dir,
                hooks=[tf.train.StopAtStepHook(last_step=FLAGS.max_steps), tf.train.NanTensorHook(loss),
                       LoggerHook(), WeightsHook()],
                config=tf.ConfigProto(log_device_placement=False)) as mon_sess:
            while not mon_sess.should_stop():
                mon_sess.run(train_op)
    return found


def eval_once(saver, summary_writer, top_k_op, summary_op):
    with tf.Session() as sess:
        ckpt = tf.train.get_checkpoint_state(FLAGS.train_dir)
        if not ckpt or not ckpt.model_checkpoint_path:
            raise ValueError('No checkpoint file found')
        saver.restore(sess, ckpt.model_checkpoint_path)
        global_step = ckpt.model_checkpoint_path.split('/')[-1].split('-')[-1]
        coord = tf.train.Coordinator()
        try:
            threads = []
            for qr in tf.get_collection(tf.GraphKeys.QUEUE_RUNNERS):
                threads.extend(qr.create_threads(sess, coord=coord, daemon=True, start=True))
            num_iter = int(math.ceil(EXAMPLES / FLAGS.batch_size))
            true_count, step = 0, 0
            while step < num_iter and not coord.should_stop():
                true_count += np.sum(sess.run([top_k_op]))
                step += 1
            precision = true_count / (num_iter * FLAGS.batch_size)
            summary = tf.Summary()
            summary.ParseFromString(sess.run(summary_op))
            summary.value.add(tag='Precision @ 1', simple_value=precision)
            summary_writer.add_summary(summary, global_step)
        except Exception as e:  # pylint: disable=broad-except
            coord.request_stop(e)
            raise
        coord.request_stop()
        coord.join(threads, stop_grace_period_secs=10)
    return float(precision), int(global_step)


def evaluate():
    with tf.Graph().as_default() as g:
        images, labels = inputs()
        logits = inference(images)
        top_k_op = tf.nn.in_top_k(logits, labels, 1)
        variable_averages = tf.train.ExponentialMovingAverage(MOVING_AVERAGE_DECAY)
        saver = tf.train.Saver(variable_averages.variables_to_restore())
        summary_op = tf.summary.merge_all()
        summary_writer = tf.summary.FileWriter(FLAGS.eval_dir, g)
        return eval_once(saver, summary_writer, top_k_op, summary_op)


def main(argv=None):
    if FLAGS.max_steps > 0 and tf.gfile.Exists(FLAGS.train_dir):
        tf.gfile.DeleteRecursively(FLAGS.train_dir)
    tf.gfile.MakeDirs(FLAGS.train_dir)
    found = train()
    found['precision'], found['restored'] = evaluate()
    print('FOUND ' + json.dumps(found), flush=True)


if __name__ == '__main__':
    tf.app.run()
