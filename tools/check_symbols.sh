#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# libpsd.so exports psd_* and nothing else: tools/check_symbols.sh BUILD_DIRECTORY
set -euo pipefail
library=$1/libpsd.so

exported=$(nm -D --defined-only "$library" | awk '{print $3}')
foreign=$(grep -v '^psd_' <<<"$exported" || true)
if [ -n "$foreign" ]; then
    echo "libpsd.so exports more than psd_*:" >&2
    echo "$foreign" >&2
    exit 1
fi
# What the manual promises is there.
missing=$(grep -ho '\bpsd_[a-z_]*(' include/psd/*.h | tr -d '(' | sort -u |
    grep -vxF -f <(sort -u <<<"$exported") || true)
declared=$(grep -h 'PSD_API' include/psd/*.h)
for name in $missing; do
    if grep -q "\b$name(" <<<"$declared"; then
        echo "libpsd.so lacks $name" >&2
        exit 1
    fi
done
echo "libpsd.so exports $(wc -l <<<"$exported") symbols, all psd_*"
