"""A plain script that computes gradients by tf.gradients or a tape, changes them, and gives them to an
optimizer, in several ways: its arguments. It has a graph and a session for each."""

import json
import sys

import numpy as np
import tensorflow as tf2
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
FEATURES = np.random.RandomState(1).normal(size=(64, 4)).astype(np.float32)
LABELS = (FEATURES @ [[1.0], [-2.0], [3.0], [0.5]]).astype(np.float32)
WORDS = np.random.RandomState(2).randint(0, 6, 64)


class Model:
    """Words and numbers, and a loss."""

    def __init__(self, reduce=tf.reduce_mean):
        self.x = tf.placeholder(tf.float32, [None, 4])
        self.y = tf.placeholder(tf.float32, [None, 1])
        self.word = tf.placeholder(tf.int32, [None])
        normal = tf.random_normal_initializer(seed=3)
        self.w = tf.get_variable('w', [4, 1], initializer=normal)
        self.words = tf.get_variable('words', [6, 1], initializer=normal)
        self.loss = reduce(tf.square(self.error()))

    def error(self):
        return tf.matmul(self.x, self.w) + tf.nn.embedding_lookup(self.words, self.word) - self.y

    @property
    def variables(self):
        return [self.w, self.words]

    def feed(self, number):
        rows = slice(number * 16 % 64, number * 16 % 64 + 16)
        return {self.x: FEATURES[rows], self.y: LABELS[rows], self.word: WORDS[rows]}


def apply(gradients, variables, rate=0.1):
    return tf.train.GradientDescentOptimizer(rate).apply_gradients(zip(gradients, variables))


def whole(gradients):
    """Norms are those of rows otherwise, in one process."""
    return [tf.convert_to_tensor(each) for each in gradients]


def rows(model):
    """As in the tutorial about the Penn Treebank."""
    clipped, _ = tf.clip_by_global_norm(tf.gradients(model.loss, model.variables), 1.0)
    return apply(clipped, model.variables)


def clip(model):
    """Somebody else looks at the gradients, too."""
    found = whole(tf.gradients(model.loss, model.variables))
    tf.summary.histogram('gradient', found[0])
    clipped, _ = tf.clip_by_global_norm(found, 1.0)
    with tf.control_dependencies(clipped):
        return apply(clipped, model.variables)


def clip_sum(model):
    """Of a loss that is a sum."""
    clipped, _ = tf.clip_by_global_norm(whole(tf2.gradients(model.loss, model.variables)), 60.0)
    return apply(clipped, model.variables, 0.003)


def two_optimizers(model):
    """Which share the norm."""
    found = whole(tf.gradients(model.loss, model.variables))
    (of_w, of_words), _ = tf.clip_by_global_norm(found, 1.0)
    return tf.group(apply([of_w], [model.w]), apply([of_words], [model.words], 0.05))


def tape(model):
    """Of a graph."""
    with tf.GradientTape() as recorded:
        loss = tf.reduce_mean(tf.square(model.error()))
    found = whole(recorded.gradient(loss, model.variables))
    return apply([tf.clip_by_value(each, -0.2, 0.2) for each in found], model.variables)


def penalty(model):
    """The loss has terms that are made of gradients: those of inputs, and of a variable."""
    of_w, = tf.gradients(model.loss, [model.w])
    of_x, = tf.gradients(model.error(), [model.x])
    loss = model.loss + 0.1 * tf.reduce_mean(tf.square(of_x)) \
        + 0.0 * tf.reduce_sum(tf.square(of_w))
    return apply(tf.gradients(loss, model.variables), model.variables)


def factor(model):
    """By the number of samples: the mean comes afterwards, also where that differs."""
    samples = tf.cast(tf.shape(model.x)[0], tf.float32)
    return apply([each / samples for each in tf.gradients(model.loss, model.variables)],
                 model.variables)


def divided_and_clipped(model):
    """Cannot be told apart."""
    samples = tf.cast(tf.shape(model.x)[0], tf.float32)
    found = [each / samples for each in tf.gradients(model.loss, model.variables)]
    return apply(tf.clip_by_global_norm(found, 1.0)[0], model.variables)


def train(name):
    sums = name in ('clip_sum', 'factor', 'divided_and_clipped')
    model = Model(tf.reduce_sum if sums else tf.reduce_mean)
    step = globals()[name](model)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for number in range(12):
            session.run(step, model.feed(number))
        return [value.tolist() for value in session.run(model.variables)]


found = {}
for kind in sys.argv[1:]:
    with tf.Graph().as_default():
        found[kind] = train(kind)
print('FOUND ' + json.dumps(found), flush=True)
