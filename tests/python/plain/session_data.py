"""A plain script that trains by sessions with data of many kinds: fed, and read by iterators. Its
argument is the batch size of its datasets. Nothing of Poseidon."""

import json
import sys

import numpy as np
import tensorflow.compat.v1 as tf

tf.disable_eager_execution()
BATCH = int(sys.argv[1])
FEATURES = np.random.RandomState(1).normal(size=(75, 4)).astype(np.float32)
LABELS = (FEATURES @ [[1.0], [-2.0], [3.0], [0.5]]).astype(np.float32)
found = {}


def model(features, labels):
    """A loss with a mean over samples and another term, and what trains it."""
    with tf.variable_scope('model', reuse=tf.AUTO_REUSE):
        w = tf.get_variable('w', [4, 1], initializer=tf.random_normal_initializer(seed=3))
        b = tf.get_variable('b', [1], initializer=tf.zeros_initializer())
    loss = tf.reduce_mean(tf.square(tf.matmul(features, w) + b - labels)) + \
        0.01 * tf.nn.l2_loss(w)
    step = tf.train.get_or_create_global_step()
    return loss, tf.train.MomentumOptimizer(0.05, 0.5).minimize(loss, global_step=step)


def variables(session):
    return [value.tolist() for value in session.run(tf.trainable_variables())]


def feed():
    """20 steps: batches of 16, the last of 11, now and then one of a single sample."""
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    scale = tf.placeholder(tf.float32, [])
    loss, train = model(x * scale, y)
    rows = tf.shape(x)[0]
    seen = []
    with tf.train.MonitoredSession() as session:
        for number in range(20):
            begin = number % 5 * 16
            end = begin + (1 if number % 7 == 3 else 16)
            batch = {x: FEATURES[begin:end], y: LABELS[begin:end], scale: 1.0}
            if number % 2:
                _, size = session.run_step_fn(
                    lambda step_context: step_context.session.run([train, rows], batch))  # noqa: B023
            else:
                _, size = session.run([train, rows], batch)
            seen.append(int(size))
        whole, size = session.run([loss, rows], {x: FEATURES, y: LABELS, scale: 1.0})
        found['feed'] = {'variables': variables(session), 'rows': seen, 'loss': float(whole),
                         'evaluated': int(size)}


def fixed():
    """A placeholder whose number of samples is fixed."""
    x = tf.placeholder(tf.float32, [15, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    _, train = model(x, y)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        step = session.make_callable(train, [x, y])
        for number in range(5):
            step(FEATURES[number * 15:][:15], LABELS[number * 15:][:15])
        found['fixed'] = {'variables': variables(session)}


def sums():
    """A loss that is a sum over samples."""
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable('w', [4, 1], initializer=tf.random_normal_initializer(seed=3))
    loss = tf.reduce_sum(tf.square(tf.matmul(x, w) - y))
    train = tf.train.GradientDescentOptimizer(0.01).minimize(loss)
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for begin in range(0, 75, 11):
            session.run(train, {x: FEATURES[begin:begin + 11], y: LABELS[begin:begin + 11]})
        found['sums'] = {'variables': variables(session)}


def towers():
    """Gradients of two halves of a batch, by one optimizer."""
    x = tf.placeholder(tf.float32, [None, 4])
    y = tf.placeholder(tf.float32, [None, 1])
    w = tf.get_variable('w', [4, 1], initializer=tf.random_normal_initializer(seed=3))
    optimizer = tf.train.AdamOptimizer(0.1)
    half = tf.shape(x)[0] // 2
    gradients = [
        optimizer.compute_gradients(tf.reduce_mean(tf.square(tf.matmul(x[part], w) - y[part])))[0][0]
        for part in (slice(None, half), slice(half, None))]
    train = optimizer.apply_gradients([((gradients[0] + gradients[1]) / 2, w)])
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for begin in range(0, 72, 12):
            session.run(train, {x: FEATURES[begin:begin + 12], y: LABELS[begin:begin + 12]})
        found['towers'] = {'variables': variables(session)}


def one_shot():
    """An iterator that ends by itself, and another one for evaluation, in the same run."""
    data = tf.data.Dataset.from_tensor_slices((FEATURES, LABELS)).shuffle(75, seed=4)
    train_x, train_y = tf.data.make_one_shot_iterator(data.repeat(2).batch(BATCH)).get_next()
    evaluation = tf.data.make_initializable_iterator(data.batch(10))
    test_x, _ = evaluation.get_next()
    _, train = model(train_x, train_y)
    size = tf.shape(test_x)[0]
    steps, sizes = 0, []
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), evaluation.initializer])
        try:
            while True:
                if steps < 2:
                    sizes.append(int(session.run([train, size])[1]))
                else:
                    session.run(train)
                steps += 1
        except tf.errors.OutOfRangeError:
            pass
        try:
            while True:
                sizes.append(int(session.run(size)))
        except tf.errors.OutOfRangeError:
            pass
        found['one_shot'] = {'variables': variables(session), 'steps': steps, 'sizes': sizes}


def shared():
    """One iterator for training and evaluation, three epochs."""
    data = tf.data.Dataset.from_tensor_slices({'x': FEATURES, 'y': LABELS})
    train_data = data.shuffle(75, seed=5).batch(BATCH)
    handle = tf.placeholder(tf.string, [])
    iterator = tf.data.Iterator.from_structure(tf.data.get_output_types(train_data),
                                               tf.data.get_output_shapes(train_data))
    begin, test = iterator.make_initializer(train_data), iterator.make_initializer(data.batch(20))
    fed = tf.data.Iterator.from_string_handle(handle, tf.data.get_output_types(train_data),
                                              tf.data.get_output_shapes(train_data))
    element = fed.get_next()
    loss, train = model(element['x'], element['y'])
    size = tf.shape(element['x'])[0]
    steps, sizes = 0, []
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        this = {handle: session.run(iterator.string_handle())}
        for _ in range(3):
            session.run(begin)
            try:
                while True:
                    session.run([train, loss], this)
                    steps += 1
            except tf.errors.OutOfRangeError:
                pass
            session.run(test)
            try:
                while True:
                    sizes.append(int(session.run(size, this)))
            except tf.errors.OutOfRangeError:
                pass
        found['shared'] = {'variables': variables(session), 'steps': steps, 'sizes': sizes}


def convolved():
    """A convolution right on what an iterator delivers."""
    data = tf.data.Dataset.from_tensor_slices((FEATURES.reshape(75, 2, 2, 1), LABELS)).shuffle(75, seed=6)
    images, labels = tf.data.make_one_shot_iterator(data.batch(BATCH)).get_next()
    kernel = tf.get_variable('kernel', [2, 2, 1, 3], initializer=tf.random_normal_initializer(seed=3))
    b = tf.get_variable('b', [3], initializer=tf.zeros_initializer())
    maps = tf.nn.bias_add(tf.nn.conv2d(images, kernel, [1, 1, 1, 1], 'SAME'), b)
    given = tf.reduce_mean(maps, [1, 2])
    train = tf.train.GradientDescentOptimizer(0.05).minimize(
        tf.reduce_mean(tf.square(tf.reduce_sum(given, 1, keepdims=True) - labels)))
    steps = 0
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        try:
            while True:
                session.run(train)
                steps += 1
        except tf.errors.OutOfRangeError:
            pass
        found['convolved'] = {'variables': variables(session), 'steps': steps, 'sizes': []}


for case in (feed, fixed, sums, towers, one_shot, shared, convolved):
    with tf.Graph().as_default():
        case()
print('FOUND ' + json.dumps(found), flush=True)
