"""A plain script whose variables are written between runs that train. Nothing of Poseidon."""

import json
import os

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_v2_behavior()
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


found = {}
for case in (initialized_again, second_stage, assigned):
    with tf.Graph().as_default():
        found[case.__name__] = case()
print('FOUND ' + json.dumps(found), flush=True)
