#!/usr/bin/env bash
# Every public header compiles alone, as C and as C++, with every warning on.
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
