# SPDX-License-Identifier: Apache-2.0
"""A script as people wrote them for TensorFlow 1: four flags, gRPC servers of its own, a ps that
waits for ever. It knows nothing of Poseidon. Fits a line."""

import argparse
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
import tensorflow.compat.v1 as tf  # noqa: E402

tf.disable_eager_execution()

STEPS = 60

parser = argparse.ArgumentParser()
parser.add_argument("--job_name", choices=("ps", "worker"), required=True)
parser.add_argument("--task_index", type=int, required=True)
parser.add_argument("--ps_hosts", required=True)
parser.add_argument("--worker_hosts", required=True)
flags = parser.parse_args()

cluster = tf.train.ClusterSpec({"ps": flags.ps_hosts.split(","),
                                "worker": flags.worker_hosts.split(",")})
server = tf.train.Server(cluster, job_name=flags.job_name, task_index=flags.task_index)
if flags.job_name == "ps":
    print("ps", flags.task_index, "serves", flush=True)
    server.join()

with tf.device(tf.train.replica_device_setter(
        worker_device=f"/job:worker/task:{flags.task_index}", cluster=cluster)):
    step = tf.train.get_or_create_global_step()
    slope = tf.get_variable("slope", [], initializer=tf.zeros_initializer())
    offset = tf.get_variable("offset", [], initializer=tf.zeros_initializer())
    x = tf.random.uniform([32], -1.0, 1.0)
    loss = tf.reduce_mean(tf.square(slope * x + offset - (3.0 * x - 1.0)))
    train = tf.train.GradientDescentOptimizer(0.2).minimize(loss, global_step=step)

# Without filters a session wants to hear from all workers, also from those that are done already.
config = tf.ConfigProto(device_filters=["/job:ps", f"/job:worker/task:{flags.task_index}"])
supervisor = tf.train.Supervisor(is_chief=flags.task_index == 0, global_step=step, summary_op=None,
                                 init_op=tf.global_variables_initializer(), recovery_wait_secs=1)
with supervisor.prepare_or_wait_for_session(server.target, config=config) as session:
    now = 0
    while now < STEPS:
        _, now, last = session.run([train, step, loss])
print(f"worker {flags.task_index} stops at step {now} with loss {last:.5f}")
assert last < 0.05, last
