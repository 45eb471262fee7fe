#!/usr/bin/env bash
# Every test of one build: tools/test.sh [BUILD_DIRECTORY] [BIN_DIRECTORY]
#   SEEDS=2000      seeds for the simulator
#   PYTEST_ARGS=    passed on to pytest
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
bin=${2:-bin}
failed=()

step() { printf '\n== %s\n' "$*"; }

step "unit tests, transports, kept fuzz inputs (meson test)"
meson test -C "$build" --no-rebuild --print-errorlogs --quiet || failed+=("meson test")

step "simulator, ${SEEDS:-2000} seeds"
"$bin/psd_sim" --seeds "${SEEDS:-2000}" || failed+=("simulator")

step "real processes (pytest)"
PSD_BIN=$(realpath "$bin") .venv/bin/python -m pytest -q -rs -p no:cacheprovider tests/cluster \
    ${PYTEST_ARGS:-} || failed+=("pytest")

if [ ${#failed[@]} -gt 0 ]; then
    printf '\nFAILED: %s\n' "${failed[*]}" >&2
    exit 1
fi
printf '\nall tests passed\n'
