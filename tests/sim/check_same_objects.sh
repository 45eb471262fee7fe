#!/bin/sh
# What is simulated is what runs: psd_sim must contain no second compilation of the cores.
# usage: check_same_objects.sh PSD_SIM_OBJECT_DIRECTORY ARCHIVE...
# SPDX-License-Identifier: Apache-2.0
set -eu

objects=$1
shift
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

for object in "$objects"/*.o; do
    name=$(basename "$object" .o)
    if [ ! -f "$(dirname "$0")/${name#tests_sim_}" ]; then
        echo "psd_sim compiles $name by itself, which is none of its own sources"
        exit 1
    fi
done

nm -g --defined-only "$objects"/*.o | awk 'NF == 3 { print $3 }' | sort -u >"$scratch/own"
nm -g --defined-only "$@" 2>/dev/null | awk 'NF == 3 { print $3 }' | sort >"$scratch/archived"
nm -g --undefined-only "$objects"/*.o | awk 'NF == 2 { print $2 }' | sort -u >"$scratch/wanted"

twice=$(comm -12 "$scratch/own" "$scratch/archived")
if [ -n "$twice" ]; then
    echo "defined by psd_sim and by the archives:" $twice
    exit 1
fi
for symbol in lane_create lane_tick master_create master_tick psi_client_create psi_client_tick; do
    if ! grep -qx "$symbol" "$scratch/wanted"; then
        echo "psd_sim does not take $symbol from the archives"
        exit 1
    fi
    if [ "$(grep -cx "$symbol" "$scratch/archived")" -ne 1 ]; then
        echo "$symbol is not defined exactly once in: $*"
        exit 1
    fi
done
echo "psd_sim links the cores from: $*"
