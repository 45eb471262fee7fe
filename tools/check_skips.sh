#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Fails if a test was skipped that can run on Debian 12 as root: check_skips.sh TEST_LOG MESON_JSON
# The exceptions, each with its reason:
allowed='AVX-512|avx512|no MNIST in |no CIFAR-10 in |no CIFAR10_TUTORIAL |no PyTorch here|here .tools.setup.sh frameworks|no frameworks |no CUDA device|is not installed: make bench-peers'
#   a SIMD level that this CPU lacks; data or a script that somebody has to download; frameworks that
#   tools/setup.sh could not get; a GPU; the caches that psd_bench is compared with, which only who compares wants
pkg-config --exists lmdb || allowed+='|LMDB is not installed' # tools/setup.sh installs it
set -euo pipefail

skipped=$(
    grep -E '^SKIPPED ' "$1" || true
    python3 - "$2" <<'PYTHON'
import json, sys
for line in open(sys.argv[1]):
    result = json.loads(line)
    if result["result"] == "SKIP":
        print("SKIPPED", result["name"], (result.get("stdout") or "").strip()[-200:])
PYTHON
)
wrong=$(grep -vE "$allowed" <<<"$skipped" | grep . || true)
if [ -n "$wrong" ]; then
    echo "skipped without being on the list of exceptions:" >&2
    echo "$wrong" >&2
    exit 1
fi
echo "skipped by name: $(grep -c . <<<"$skipped" || true)"
