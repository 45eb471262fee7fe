#!/bin/sh
# A job that was kept as a plan is the job of its seed, whatever the generator draws now; and a plan
# that makes no sense is refused by line and key. usage: check_plans.sh PSD_SIM
# SPDX-License-Identifier: Apache-2.0
set -eu

sim=$1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
plan=$scratch/plan

seed=1
while [ $seed -le 40 ]; do
    "$sim" --dump-plan $seed >"$plan"
    drawn=$("$sim" --seed $seed | sed 's/^seed [0-9]* //')
    kept=$("$sim" --plan "$plan" | sed 's/^plan [^ ]* //')
    if [ "$drawn" != "$kept" ]; then
        echo "seed $seed: \"$drawn\" as drawn, \"$kept\" as kept"
        exit 1
    fi
    seed=$((seed + 1))
done

# refused SED_SCRIPT MESSAGE: the plan of seed 1, changed so, is refused with that message.
refused()
{
    "$sim" --dump-plan 1 | sed "$1" >"$plan"
    if "$sim" --plan "$plan" >"$scratch/out" 2>&1; then
        echo "taken, though changed by \"$1\""
        exit 1
    fi
    if ! grep -q "$plan:$2" "$scratch/out"; then
        echo "changed by \"$1\": not \"$2\" but:" && cat "$scratch/out"
        exit 1
    fi
}
refused '1s/.*/a song/' '1: does not begin with'
refused '2s/.*/seeds 1/' '2: seeds: no such key of a plan'
refused '2s/.*/seed one/' '2: seed: cannot be one'
refused '2s/.*/seed/' '2: seed: no value'
refused '2s/.*/seed 1 2/' '2: seed: more than 1 values'
refused '3s/.*/seed 1/' '3: seed: a second time'
refused 's/^checksum .*/checksum 2/' '[0-9]*: checksum: cannot be 2'
refused 's/^policy .*/policy hope/' '[0-9]*: policy: cannot be hope'
refused 's/^workers .*/workers 9999/' '[0-9]*: workers: 9999, not 1 to'
refused 's/^dtype .*/workers 1/' '[0-9]*: workers: no such key of a table'
refused '/^table/,$d' '[0-9]*: table: none'

# What a plan does not mention is left out of its job.
"$sim" --dump-plan 1 | grep -v ' 0$' >"$plan"
if [ "$("$sim" --seed 1 | cut -d' ' -f5)" != "$("$sim" --plan "$plan" | cut -d' ' -f5)" ]; then
    echo "seed 1: another job without its zeroes"
    exit 1
fi

# A kept job has other fortunes with other seeds.
"$sim" --dump-plan 1 >"$plan"
sed 's/^seed .*/seed 2/' "$plan" >"$scratch/second"
told=$("$sim" --plan "$plan" --first 2 | cut -d' ' -f5)
if [ "$told" != "$("$sim" --plan "$scratch/second" | cut -d' ' -f5)" ] ||
    [ "$told" = "$("$sim" --plan "$plan" | cut -d' ' -f5)" ]; then
    echo "the plan of seed 1 with --first 2: not the job with seed 2"
    exit 1
fi
if ! "$sim" --plan "$plan" --seeds 3 | grep -q '^3 seeds in'; then
    echo "the plan of seed 1 with --seeds 3: not three jobs"
    exit 1
fi
if "$sim" --plan "$plan" --seed 2 2>"$scratch/out"; then
    echo "taken: both a plan and --seed"
    exit 1
fi
echo "40 seeds, drawn and kept: the same hashes"
