#!/usr/bin/env bash
# Every test of one build: tools/test.sh [BUILD_DIRECTORY] [BIN_DIRECTORY]
#   PYTEST_ARGS=    passed on to pytest
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
bin=${2:-bin}
failed=()

step() { printf '\n== %s\n' "$*"; }

# A checkout beside a folder of data sets need not fetch its own.
beside=../shared/data/mnist
if [ -z "${MNIST_DATA:-}" ] && [ ! -d data/mnist ] && [ -d "$beside" ]; then
    MNIST_DATA=$(realpath "$beside")
    export MNIST_DATA
fi

step "unit tests, transports, the API, kept fuzz inputs, 2,000 simulated jobs (meson test)"
meson test -C "$build" --no-rebuild --print-errorlogs --quiet || failed+=("meson test")

step "real processes (pytest)"
PSD_BIN=$(realpath "$bin") .venv/bin/python -m pytest -q -rs -p no:cacheprovider -m 'not slow' tests/cluster \
    ${PYTEST_ARGS:-} || failed+=("pytest")

if [ ${#failed[@]} -gt 0 ]; then
    printf '\nFAILED: %s\n' "${failed[*]}" >&2
    exit 1
fi
printf '\nall tests passed\n'
