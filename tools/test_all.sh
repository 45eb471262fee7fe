#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The tests marked `all`, which make test leaves out because they take hours: tools/test_all.sh [PYTEST ARGUMENTS]
#   SHARD=2/4          the second of four parts
#   FRESH=1            forgets what passed before
# What passed on this state of the tree is kept in build/test-all, so that an interrupted pass goes on.
set -euo pipefail
cd "$(dirname "$0")/.."
. tools/datasets.sh

commit=$(git rev-parse --short=12 HEAD)
changes=$({ git diff HEAD; git ls-files --others --exclude-standard | xargs -r sha256sum; } | sha256sum | cut -c 1-8)
passed=$PWD/build/test-all/$commit-$changes
[ -z "${FRESH:-}" ] || rm -f "$passed"
failed=()

# tier NAME PYTHON FOLDER
tier() {
    printf '\n== %s\n' "$1"
    local code=0
    # With "=": before they are known, a word behind an option that conftest.py adds counts as the folder of the tests.
    PSD_BIN=$PWD/bin "$2" -m pytest -q -rs -p no:cacheprovider -m all --passed="$passed" --shard="${SHARD:-1/1}" \
        "$3" "${@:4}" || code=$?
    [ $code -eq 0 ] || [ $code -eq 5 ] || failed+=("$1") # 5: nothing is left to run
}

tier "real processes" .venv/bin/python tests/cluster "$@"
if [ -f .venv-frameworks/versions ]; then
    tier "the Python package, with the frameworks" .venv-frameworks/bin/python tests/python "$@"
else
    printf '\n== the Python package: no complete .venv-frameworks (tools/setup.sh frameworks): left out\n'
fi

if [ ${#failed[@]} -gt 0 ]; then
    printf '\nFAILED: %s; make test-all runs what has not passed once more\n' "${failed[*]}" >&2
    exit 1
fi
printf '\nall tests marked all passed\n'
