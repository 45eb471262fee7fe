#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every test of one build but those marked `all`: tools/test.sh [BUILD_DIRECTORY] [BIN_DIRECTORY]
#   MESON_ARGS=, PYTEST_ARGS=    passed on to meson test and to pytest
#   REAL_TESTS=tests/cluster     which of the tests with real processes
#   REAL_PROCESSES=6, FRAMEWORK_PROCESSES=3   files of tests at a time: most of them wait for real processes
# In the end it shows what each tier took, the slowest tests, and those that failed first and passed alone, which BUILD_DIRECTORY/flakes.txt keeps.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
bin=${2:-bin}
results=$(realpath "$build")/results
failed=()
took=()

rm -rf "$results"
mkdir -p "$results"
: >"$build/flakes.txt"

step() { printf '\n== %s\n' "$*"; }
processor_s() { local -a stat && read -ra stat </proc/$$/stat && echo $(((stat[15] + stat[16]) / $(getconf CLK_TCK))); } # of all that has ended

. tools/datasets.sh

# Hundreds of tests kill, cut and time real processes on whatever machine this is. Those of a tier that fail are run once
# more, alone, and both results are shown: what fails twice is broken, what fails once is to be looked at.
# tier NAME COMMAND: "COMMAND RESULTS" runs everything, "COMMAND RESULTS TEST..." what failed.
tier() {
    local name=$1 command=$2 begin=$SECONDS processor
    processor=$(processor_s)
    "$command" "$results/$name" || failed_first "$name" "$command"
    took+=("$(printf '%7d s, %7d s of processor time  %s' $((SECONDS - begin)) $(($(processor_s) - processor)) "$name")")
}

failed_first() {
    local name=$1 command=$2 tests
    mapfile -t tests < <(tools/test_report.py failed "$results/$name"* | grep .)
    if [ ${#tests[@]} -eq 0 ]; then
        printf '%s: it failed, and no test of it did\n' "$name"
        failed+=("$name")
        return
    fi
    step "once more, alone: ${tests[*]}"
    if "$command" "$results/again-$name" "${tests[@]}"; then
        printf '%s\n' "${tests[@]}" >>"$build/flakes.txt"
    else
        failed+=("$name")
        tools/test_report.py failed "$results/again-$name"* >"$results/twice"
        printf '%s\n' "${tests[@]}" | grep -vxFf "$results/twice" >>"$build/flakes.txt" || true
    fi
}

unit() {
    local code=0 alone=(--num-processes 1)
    [ $# -gt 1 ] || alone=()
    rm -f "$build/meson-logs/testlog.json"
    meson test -C "$build" --no-rebuild --print-errorlogs --quiet ${MESON_ARGS:-} "${alone[@]}" "${@:2}" || code=$?
    cp "$build/meson-logs/testlog.json" "$1.json" || true
    return $code
}

# pytest of a folder: PYTHON PROCESSES RESULTS FOLDER... -- TEST...; a test is known by its file and name.
suite() {
    local python=$1 processes=$2 output=$3 cache
    shift 3
    local folders=() more=()
    while [ $# -gt 0 ] && [ "$1" != -- ]; do folders+=("$1") && shift; done
    cache=$(realpath "$build")/$(basename "${output/again-/}")
    [ $# -eq 1 ] || more=(--last-failed --last-failed-no-failures none)
    [ $# -eq 1 ] || processes=0
    PSD_BIN=$(realpath "$bin") "$python" -m pytest -q -rs -m 'not all' -n "$processes" --dist loadfile \
        -o cache_dir="$cache" --junitxml "$output.xml" "${folders[@]}" ${PYTEST_ARGS:-} "${more[@]}"
}

real() { suite .venv/bin/python "${REAL_PROCESSES:-6}" "$1" ${REAL_TESTS:-tests/cluster} -- "${@:2}"; }
package() { suite .venv-frameworks/bin/python "${FRAMEWORK_PROCESSES:-3}" "$1" tests/python -- "${@:2}"; }
numpy_alone() { suite .venv/bin/python "${FRAMEWORK_PROCESSES:-3}" "$1" "${alone[@]}" -- "${@:2}"; }

step "unit tests, transports, the API, kept fuzz inputs, 2,000 simulated jobs (meson test)"
tier unit unit

step "real processes (pytest)"
tier pytest real

# The package in the environment of the frameworks, and with NumPy alone what concerns it most.
alone=(tests/python/test_library.py tests/python/test_tables.py)
if [ -n "${PSD_SANITIZED:-}" ]; then
    : # Python is not instrumented, and what the frameworks ask of daemons and psd_run is no different
elif [ -f .venv-frameworks/versions ]; then # it is complete
    step "the Python package (pytest, with the frameworks)"
    tier pytest-python package
else
    step "the Python package: no complete .venv-frameworks (tools/setup.sh frameworks), so what needs PyTorch is skipped"
    alone=(tests/python)
fi
if [ "${PSD_SANITIZED:-}" != thread ]; then
    step "the Python package with NumPy alone (pytest)"
    tier pytest-numpy numpy_alone
fi

step "what each tier took, and the slowest tests"
printf '%s\n' "${took[@]}"
tools/test_report.py slowest "$results"/[!a]*.{json,xml}
if [ -s "$build/flakes.txt" ]; then
    step "failed first, and passed alone (kept in $build/flakes.txt)"
    cat "$build/flakes.txt"
fi
if [ ${#failed[@]} -gt 0 ]; then
    printf '\nFAILED: %s\n' "${failed[*]}" >&2
    exit 1
fi
printf '\nall tests passed\n'
