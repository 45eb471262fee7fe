#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# An answer within a minute after a change: what is built already is not built again. make test has the rest.
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build}
bin=${2:-bin}

step() { printf '\n== %s (%d s)\n' "$*" "$SECONDS"; }

step "include graph, docs, format of what has changed"
tools/include_graph.py >/dev/null || tools/include_graph.py
tools/testing_md.py
tools/metrics_md.py
tools/check_docs.py
changed=$(git diff --name-only --diff-filter=d HEAD -- '*.c' '*.h'; git ls-files --others --exclude-standard -- '*.c' '*.h')
# shellcheck disable=SC2086 # names are words
[ -z "$changed" ] || clang-format --dry-run -Werror $changed

step "unit tests but those with threads, kept fuzz inputs"
meson test -C "$build" --no-rebuild --print-errorlogs --quiet --suite unit --suite fuzz --no-suite threads --no-suite slow

step "200 simulated jobs"
"$bin/psd_sim" --seeds 200

step "eight real jobs"
PSD_BIN=$(realpath "$bin") .venv/bin/python -m pytest -q -m smoke -n 2 -p no:cacheprovider tests/cluster

printf '\nall is well after %d s; make test has the rest\n' "$SECONDS"
