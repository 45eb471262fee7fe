#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Are psd_bench's ceilings as fast as the programs they were modelled on?
#   bench/check_ceilings.sh FOLDER [RUNS [MINUTES]]
# FOLDER holds psceil.c, tcpps.c and pp.c; without it there is nothing to compare, and the check is
# skipped. Model and ceiling run in turn, until each has RUNS runs (default 5) that no other program
# disturbed, or MINUTES (default 10) are over. Fails when a ceiling reaches less than 0.97 of its
# model, by the medians and by the best runs; or when the machine was never quiet.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-}

if [ -z "$folder" ] || [ ! -f "$folder/psceil.c" ]; then
    echo "check_ceilings: skipped: no folder with psceil.c, tcpps.c and pp.c given"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in psceil tcpps pp; do
    gcc -O3 -march=native -w -pthread "$folder/$program.c" -o "$work/$program"
done
python3 bench/check_ceilings.py "$work" "${2:-5}" "${3:-10}"
