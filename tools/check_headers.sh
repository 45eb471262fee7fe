#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every public header compiles alone, as C and as C++, with every warning on; and every source file names its licence.
set -euo pipefail
cd "$(dirname "$0")/.."

for header in include/psd/*.h; do
    for language in 'c -std=c11' 'c++ -std=c++17'; do
        # shellcheck disable=SC2086
        echo "#include <psd/$(basename "$header")>" |
            gcc -x $language -Iinclude -Wall -Wextra -Wpedantic -Werror -fsyntax-only -
    done
done
echo "public headers compile alone as C and C++"

# Scripts that tests run as users wrote them are left as they are.
unnamed=$(git ls-files '*.c' '*.h' '*.py' '*.sh' '*meson.build' ':!tests/python/plain' ':!tests/python/horovod' |
    xargs grep -L 'SPDX-License-Identifier: Apache-2.0' || true)
if [ -n "$unnamed" ]; then
    echo "without a line \"SPDX-License-Identifier: Apache-2.0\":" >&2
    echo "$unnamed" >&2
    exit 1
fi
echo "every source file names its licence"
