#!/bin/sh
# The same seed gives the same run: every event, every byte. usage: check_replay.sh PSD_SIM
# SPDX-License-Identifier: Apache-2.0
set -eu

seed=1
while [ $seed -le 40 ]; do
    first=$("$1" --seed $seed)
    second=$("$1" --seed $seed)
    if [ "$first" != "$second" ]; then
        echo "seed $seed: \"$first\", then \"$second\""
        exit 1
    fi
    seed=$((seed + 1))
done
if [ "$("$1" --seed 1 --trace | sha256sum)" != "$("$1" --seed 1 --trace | sha256sum)" ]; then
    echo "seed 1: two traces"
    exit 1
fi
if [ "$("$1" --seed 1 | cut -d' ' -f5)" = "$("$1" --seed 2 | cut -d' ' -f5)" ]; then
    echo "seeds 1 and 2 have the same hash: it covers nothing"
    exit 1
fi
echo "40 seeds, each twice: the same hashes"
