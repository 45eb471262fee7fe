#!/usr/bin/env bash
# Every test of one build but those marked `all`: tools/test.sh [BUILD_DIRECTORY] [BIN_DIRECTORY]
#   PYTEST_ARGS=    passed on to pytest
#   REAL_PROCESSES=4, FRAMEWORK_PROCESSES=2   files of tests at a time: most of them wait for real processes
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
bin=${2:-bin}
failed=()

step() { printf '\n== %s\n' "$*"; }

. tools/datasets.sh

# Hundreds of tests kill, cut and time real processes on whatever machine this is. One that fails is
# run once more, alone, and both results are shown: what fails twice is broken, what fails once is
# to be looked at.
unit() { meson test -C "$build" --no-rebuild --print-errorlogs --quiet "$@"; }

unit_failed() {
    python3 - "$build/meson-logs/testlog.json" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    result = json.loads(line)
    if result["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
        print(result["name"].split(" / ")[-1])
PYTHON
}

real() {
    PSD_BIN=$(realpath "$bin") .venv/bin/python -m pytest -q -rs -o cache_dir="$(realpath "$build")/pytest" \
        -m 'not all' -n "${REAL_PROCESSES:-4}" --dist loadfile tests/cluster ${PYTEST_ARGS:-} "$@"
}

step "unit tests, transports, the API, kept fuzz inputs, 2,000 simulated jobs (meson test)"
if ! unit; then
    step "once more, alone: $(unit_failed | tr '\n' ' ')"
    # shellcheck disable=SC2046 # names are words
    unit --num-processes 1 $(unit_failed) || failed+=("meson test")
fi

step "real processes (pytest)"
if ! real; then
    step "once more, alone: the tests that failed"
    REAL_PROCESSES=0 real --last-failed --last-failed-no-failures none || failed+=("pytest")
fi

# The package in the environment of the frameworks, and with NumPy alone what concerns it most.
package() {
    local python=$1
    shift
    PSD_BIN=$(realpath "$bin") "$python" -m pytest -q -rs -m 'not all' -n "${FRAMEWORK_PROCESSES:-2}" --dist loadfile \
        -o cache_dir="$(realpath "$build")/pytest-python" ${PYTEST_ARGS:-} "$@"
}
if [ -n "${PSD_SANITIZED:-}" ]; then
    # Python is not instrumented, and what the frameworks ask of daemons and psd_run is no different.
    alone=(tests/python/test_library.py tests/python/test_tables.py)
elif [ -f .venv-frameworks/versions ]; then # it is complete
    step "the Python package (pytest, with the frameworks)"
    if ! package .venv-frameworks/bin/python tests/python; then
        step "once more, alone: the tests that failed"
        FRAMEWORK_PROCESSES=0 package .venv-frameworks/bin/python tests/python --last-failed \
            --last-failed-no-failures none || failed+=("python")
    fi
    alone=(tests/python/test_library.py tests/python/test_tables.py)
else
    step "the Python package: no complete .venv-frameworks (tools/setup.sh frameworks), so what needs PyTorch is skipped"
    alone=(tests/python)
fi
step "the Python package with NumPy alone (pytest)"
package .venv/bin/python "${alone[@]}" || failed+=("python with NumPy alone")

if [ ${#failed[@]} -gt 0 ]; then
    printf '\nFAILED: %s\n' "${failed[*]}" >&2
    exit 1
fi
printf '\nall tests passed\n'
