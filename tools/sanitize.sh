#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds with a sanitizer and runs the tests: tools/sanitize.sh address,undefined | thread
# Daemons are slower then, so they beat more slowly; nothing else differs.
set -euo pipefail
cd "$(dirname "$0")/.."
kind=$1
build=build-${kind%%,*}

[ -f "$build/build.ninja" ] ||
    CC=clang meson setup "$build" -Db_sanitize="$kind" -Db_lundef=false >/dev/null
targets=
if [ "$kind" = thread ]; then # most tests have no threads
    targets=$(meson introspect --tests "$build" | python3 -c 'import json, os, sys
for test in json.load(sys.stdin):
    if "poseidon:threads" in test["suite"]:
        print(os.path.relpath(test["cmd"][0], sys.argv[1]))' "$PWD/$build" | sort -u)
    targets="$targets libpsd.so.0.1.0 ps_master ps_server psd_run bench/psd_bench tests/sim/psd_sim examples/mnist examples/hello"
fi
make --no-print-directory build BUILD="$build" BIN="$build/bin" TARGETS="$(echo $targets)"

export ASAN_OPTIONS=detect_leaks=1:abort_on_error=0:exitcode=99
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1:exitcode=99
export TSAN_OPTIONS=halt_on_error=1:exitcode=99
export PSD_SANITIZED=$kind PSD_LIB=$PWD/build/libpsd.so

if [ "$kind" = thread ]; then
    MESON_ARGS="--suite threads -t 3" REAL_TESTS="tests/cluster/test_training.py tests/cluster/test_show.py" \
        REAL_PROCESSES=1 tools/test.sh "$build" "$build/bin"
else
    # A program outside the tree cannot link a library that wants a sanitizer's run-time. Fewer files at a
    # time than without sanitizers: processes that are kept from running for seconds count as dead.
    REAL_PROCESSES=2 PYTEST_ARGS="--ignore=tests/cluster/test_install.py" \
        tools/test.sh "$build" "$build/bin"
fi
