#!/bin/sh
# Tests the test: every planted bug (bugs/*.patch) must make psd_sim fail. Works on a copy.
# usage: tests/sim/check_bugs.sh [BUG...]      (default: all of them)
# SPDX-License-Identifier: Apache-2.0
set -eu

seeds=2000
root=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

[ $# -gt 0 ] || set -- $(cd "$root/tests/sim/bugs" && ls ./*.patch | sed 's|^./||; s|.patch$||')
mkdir "$scratch/tree"
(cd "$root" && tar cf - --exclude=./.git --exclude='./build*' --exclude=./bin .) |
    tar xf - -C "$scratch/tree"
cd "$scratch/tree"
meson setup "$scratch/build" >/dev/null

build()
{
    ninja -C "$scratch/build" --quiet tests/sim/psd_sim >"$scratch/log" 2>&1 ||
        { tail -n 20 "$scratch/log"; exit 2; }
}

build
if ! "$scratch/build/tests/sim/psd_sim" --seeds 200 >"$scratch/out"; then
    cat "$scratch/out"
    echo "psd_sim fails without any planted bug"
    exit 2
fi
escaped=0
printf '%-40s %8s %8s  %s\n' bug seed seconds 'what it saw'
for bug; do
    patch -p1 --quiet <"$root/tests/sim/bugs/$bug.patch" || { echo "$bug does not apply"; exit 2; }
    build
    start=$(date +%s)
    if "$scratch/build/tests/sim/psd_sim" --seeds $seeds >"$scratch/out" 2>&1; then
        printf '%-40s %8s %8s\n' "$bug" - "$(($(date +%s) - start))"
        escaped=$((escaped + 1))
    else
        printf '%-40s %8s %8s  %s\n' "$bug" \
            "$(sed -n 's/.*seed \([0-9]*\) failed.*/\1/p' "$scratch/out" | head -n 1)" \
            "$(($(date +%s) - start))" \
            "$(sed -n 's/.*seed [0-9]* failed: //p; s/.*assertion failed/assertion failed/p' \
                "$scratch/out" | head -n 1 | cut -c1-90)"
    fi
    patch -p1 --quiet -R <"$root/tests/sim/bugs/$bug.patch"
done
if [ $escaped -gt 0 ]; then
    echo "$escaped planted bugs were not caught in $seeds seeds"
    exit 1
fi
