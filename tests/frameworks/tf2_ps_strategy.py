# SPDX-License-Identifier: Apache-2.0
"""TensorFlow 2's ParameterServerStrategy as its guide has it: TF_CONFIG alone says who is who; the
chief coordinates, workers and ps only serve, for ever. It knows nothing of Poseidon. Fits a line."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow as tf  # noqa: E402

STEPS = 20

resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
if resolver.task_type in ("worker", "ps"):
    server = tf.distribute.Server(resolver.cluster_spec(), job_name=resolver.task_type,
                                  task_index=resolver.task_id, protocol="grpc")
    print(resolver.task_type, resolver.task_id, "serves", flush=True)
    server.join()

strategy = tf.distribute.ParameterServerStrategy(resolver)
coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
with strategy.scope():
    weights = tf.Variable(tf.zeros([2]))


@tf.function
def train():
    x = tf.random.uniform([64], -1.0, 1.0)
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(tf.square(weights[0] * x + weights[1] - (3.0 * x - 1.0)))
    weights.assign_sub(0.2 * tf.convert_to_tensor(tape.gradient(loss, weights)))
    return loss


for _ in range(STEPS):
    for _ in range(4):
        coordinator.schedule(train)
    coordinator.join()
final = weights.numpy()
print(f"chief is done: slope {final[0]:.3f} offset {final[1]:.3f}")
assert abs(final[0] - 3.0) < 0.2 and abs(final[1] + 1.0) < 0.2, final
