"""A plain script whose variables are written between runs that train, by checkpoints too, after a
model of Keras. Nothing of Poseidon."""

import json
import os

import keras
import numpy as np
import tensorflow.compat.v1 as tf

FEATURES = np.random.RandomState(1).normal(size=(32, 4)).astype(np.float32)
TARGET = FEATURES.sum(1, keepdims=True)
RANK = float(os.environ.get('PSD_RANK', 0))  # stands for whatever is different on each worker


class Net:
    def __init__(self):
        self.x = tf.placeholder(tf.float32, [None, 4])
        self.y = tf.placeholder(tf.float32, [None, 1])
        self.w = tf.get_variable('w', [4, 1])
        self.loss = self.loss_with(self.w)
        self.optimizer = tf.train.GradientDescentOptimizer(.01)

    def loss_with(self, w):
        return tf.reduce_mean(tf.square(tf.matmul(self.x, w) - self.y))

    def feeds(self, rows=32):
        return {self.x: FEATURES[:rows], self.y: TARGET[:rows]}


def train(session, step, net, steps=3):
    for _ in range(steps):
        session.run(step, net.feeds())


def values(session, variable):
    return session.run(variable).ravel().tolist()


def initialized_again():
    """Two folds in one session."""
    net = Net()
    step = net.optimizer.minimize(net.loss)
    init = tf.global_variables_initializer()
    found = []
    with tf.Session() as session:
        for _ in range(2):
            session.run(init)
            train(session, step, net)
            found.append(values(session, net.w))
    return found


def second_stage():
    """A new head, when the rest is trained."""
    net = Net()
    step = net.optimizer.minimize(net.loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        train(session, step, net)
        head = tf.get_variable('head', [4, 1])
        step = net.optimizer.minimize(net.loss_with(net.w + head), var_list=[head])
        session.run(tf.variables_initializer([head]))
        train(session, step, net)
        return values(session, head)


def assigned():
    """By load, by a fed assignment, by a callable, by one that is random; and clipped."""
    net = Net()
    step = net.optimizer.minimize(net.loss)
    given = tf.placeholder(tf.float32, [4, 1])
    assign, noise = net.w.assign(given), net.w.assign_add(tf.random_normal([4, 1]))
    clip = net.w.assign(tf.clip_by_value(net.w, -.1, .1))
    mine = np.full([4, 1], RANK)
    found = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        train(session, step, net)
        call = session.make_callable(assign, [given])
        for write in (lambda: net.w.load(mine, session), lambda: session.run(assign, {given: mine}),
                      lambda: call(mine), lambda: session.run(noise), lambda: session.run(clip)):
            write()
            train(session, step, net)
            found.append(values(session, net.w))
    return found


def restored():
    """The last of several checkpoints, large enough to take a while; then one by its path."""
    net = Net()
    large = [tf.get_variable(f'large{number}', [1500, 1500]) for number in range(3)]
    step = net.optimizer.minimize(net.loss)
    saver = tf.train.Saver()
    found = []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for epoch in range(3):
            train(session, step, net)
            path = saver.save(session, './checkpoints/best', global_step=epoch)
        found.append([path, values(session, net.w)])
        latest = tf.train.latest_checkpoint('./checkpoints')
        saver.restore(session, latest)
        found.append([latest, values(session, net.w)])
        train(session, step, net)
        saver.restore(session, saver.save(session, './checkpoints/end'))
        found.append(values(session, net.w))
    return found


class StepAtBegin(tf.train.SessionRunHook):
    def after_create_session(self, session, coord):
        self.step = int(session.run(tf.train.get_global_step()))


def resumed():
    """Twice five steps, the second time from the checkpoint of the first."""
    found = []
    for _ in range(2):
        with tf.Graph().as_default():
            net = Net()
            count = tf.train.get_or_create_global_step()
            step = net.optimizer.minimize(net.loss, global_step=count)
            hook = StepAtBegin()
            with tf.train.MonitoredTrainingSession(
                    checkpoint_dir='monitored', save_checkpoint_steps=2,
                    hooks=[hook, tf.train.StopAtStepHook(num_steps=5)]) as session:
                found.append([hook.step, int(session.run(count))])
                while not session.should_stop():
                    _, w = session.run([step, net.w], net.feeds())
            found.append(tf.train.latest_checkpoint('monitored'))
    return found + w.ravel().tolist()


def summarized():
    """Gradients are looked at, for all samples; then for one worker alone."""
    net = Net()
    pairs = net.optimizer.compute_gradients(net.loss)
    step = net.optimizer.apply_gradients(pairs)
    gradient, rows = pairs[0][0], tf.shape(net.x)[0]
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        train(session, step, net)
        seen = session.run([gradient, rows], net.feeds())
        w = session.run(net.w)
        expected = 2 * FEATURES.T @ (FEATURES @ w - TARGET) / 32
        for _ in range(2 if RANK == 0 else 0):
            session.run(gradient, net.feeds())
        train(session, step, net)
        return [bool(np.allclose(seen[0], expected, atol=1e-4)), int(seen[1]),
                values(session, net.w)]


model = keras.Sequential([keras.layers.Dense(1)])
model.compile('sgd', 'mse')
model.fit(FEATURES, TARGET, batch_size=8, verbose=0)
found = {'keras': model.get_weights()[0].ravel().tolist()}
for case in (initialized_again, second_stage, assigned, restored, resumed, summarized):
    with tf.Graph().as_default():
        found[case.__name__] = case()
print('FOUND ' + json.dumps(found), flush=True)
