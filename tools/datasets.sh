# SPDX-License-Identifier: Apache-2.0
# To be sourced in the repository's root: a checkout beside a folder of data sets need not fetch its own.
beside=../shared/data/mnist
if [ -z "${MNIST_DATA:-}" ] && [ ! -d data/mnist ] && [ -d "$beside" ]; then
    MNIST_DATA=$(realpath "$beside")
    export MNIST_DATA
fi
beside=../shared/data/cifar-10-batches-bin
if [ -z "${CIFAR10_DATA:-}" ] && [ ! -d data/cifar-10-batches-bin ] && [ -d "$beside" ]; then
    CIFAR10_DATA=$(realpath "$beside")
    export CIFAR10_DATA
fi
