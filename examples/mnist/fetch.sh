#!/bin/sh
# Downloads the four MNIST files (11 MB) and checks them:
#   examples/mnist/fetch.sh [DIR]        default: data/mnist
#   MNIST_URL=https://... fetch.sh       another mirror
#
# What is checked is the content, not the .gz around it: mirrors compress differently.
#
# SPDX-License-Identifier: Apache-2.0
set -eu

directory=${1:-data/mnist}
mirrors=${MNIST_URL:-https://ossci-datasets.s3.amazonaws.com/mnist https://storage.googleapis.com/cvdf-datasets/mnist}

fail() {
    echo "fetch.sh: $*" >&2
    exit 1
}

download() { # URL FILE
    if command -v curl >/dev/null; then
        curl --fail --silent --show-error --location --retry 2 --connect-timeout 10 -o "$2" "$1"
    else
        wget --quiet --tries=3 --timeout=10 -O "$2" "$1"
    fi
}

content_sum() { # FILE
    gzip -dc "$1" 2>/dev/null | sha256sum | cut -d' ' -f1
}

fetch() { # NAME SUM
    target=$directory/$1.gz
    if [ -f "$target" ] && [ "$(content_sum "$target")" = "$2" ]; then
        echo "$target: already there"
        return
    fi
    problem=
    for mirror in $mirrors; do
        if ! download "$mirror/$1.gz" "$target.part"; then
            problem="$mirror/$1.gz: download failed"
        elif [ "$(content_sum "$target.part")" != "$2" ]; then
            problem="$mirror/$1.gz: not the file we know: its content has another SHA-256 than $2"
        else
            mv "$target.part" "$target"
            echo "$target: downloaded and checked"
            return
        fi
        echo "fetch.sh: $problem" >&2
        rm -f "$target.part"
    done
    fail "no mirror gave $1.gz; what is missing can be put into $directory by hand"
}

command -v curl >/dev/null || command -v wget >/dev/null || fail "needs curl or wget"
command -v sha256sum >/dev/null || fail "needs sha256sum"
command -v gzip >/dev/null || fail "needs gzip"
mkdir -p "$directory" || fail "cannot create $directory"

fetch train-images-idx3-ubyte ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db
fetch train-labels-idx1-ubyte 65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5
fetch t10k-images-idx3-ubyte 0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7
fetch t10k-labels-idx1-ubyte ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2
echo "done: train with --data $directory"
