#!/usr/bin/env bash
# Tests the tests: every planted bug (bugs/*.patch) must be caught by the test that it names.
#
#   tests/sim/check_bugs.sh [BUG...]             default: all of them
#   tests/sim/check_bugs.sh apply                only looks whether all patches still apply
#   SHARD=2/4 tests/sim/check_bugs.sh            every fourth bug, beginning with the second
#   JOBS=2 tests/sim/check_bugs.sh               so many shards at once
#   RATE=300 tests/sim/check_bugs.sh             tells of those that psd_sim catches in how many of so many
#                                                seeds: what few seeds catch escapes when what is drawn
#                                                shifts, and wants a unit test
#   KEEP=DIRECTORY tests/sim/check_bugs.sh       remembers there what was caught; a run that was
#                                                interrupted goes on where it was
#
# A patch says what is broken, and by what it has to be noticed:
#
#   Caught by: sim 2000                          psd_sim, within so many seeds
#   Caught by: plan FILE [SEEDS]                 psd_sim --plan tests/sim/plans/FILE, within so many
#                                                seeds from its own on (default: that one alone, and
#                                                the bug escapes when what is drawn shifts)
#   Caught by: unit NAME FUNCTION                build/test_NAME; FUNCTION is the one that fails
#   Caught by: unit-tcp NAME FUNCTION            the same with PSD_TRANSPORT=tcp
#
# Works on a copy of the tree. Only what the test needs is built; ccache makes that quick. A test
# that does not pass without the bug, a patch that does not apply, a build that fails and a test
# that is still running after DEADLINE seconds (default 300) are failures, not catches.
#
# SPDX-License-Identifier: Apache-2.0
set -euo pipefail

root=$(cd "$(dirname "$0")/../.." && pwd)
bugs=$root/tests/sim/bugs
deadline=${DEADLINE:-300}
shard=${SHARD:-1/1}
jobs=${JOBS:-1}
keep=${KEEP:-}
rate=${RATE:-}

die()
{
    echo "check_bugs: $*" >&2
    exit 2
}

apply_only=
if [ "${1:-}" = apply ]; then
    apply_only=yes
    shift
fi
if [ $# -eq 0 ]; then
    names=()
    for patch in "$bugs"/*.patch; do
        names+=("$(basename "$patch" .patch)")
    done
    set -- "${names[@]}"
fi
for bug; do
    [ -f "$bugs/$bug.patch" ] || die "no $bugs/$bug.patch"
    grep -q '^Caught by: ' "$bugs/$bug.patch" || die "$bug.patch names no test (Caught by: ...)"
done

if [ -n "$apply_only" ]; then
    cd "$root"
    for bug; do
        patch -p1 --dry-run --silent <"$bugs/$bug.patch" >/dev/null || die "$bug does not apply"
    done
    echo "$# patches apply"
    exit 0
fi

# Several at once: each shard is a process of its own.
if [ "$jobs" -gt 1 ]; then
    pids=()
    for ((i = 1; i <= jobs; i++)); do
        JOBS=1 SHARD=$i/$jobs "$0" "$@" &
        pids+=($!)
    done
    failed=0
    for pid in "${pids[@]}"; do
        wait "$pid" || failed=$?
    done
    exit "$failed"
fi

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
tree=$scratch/tree
mkdir "$tree"
(cd "$root" && tar cf - --exclude=./.git --exclude='./build*' --exclude=./bin --exclude='./.venv*' \
    --exclude=./data .) | tar xf - -C "$tree"
cd "$tree"
# The same paths from the build folder as in any other checkout, so that ccache has the objects.
export CCACHE_BASEDIR=$tree CCACHE_NOHASHDIR=1
meson setup build >"$scratch/log" 2>&1 || die "meson setup: $(tail -n 5 "$scratch/log")"
# What was caught before counts again only for the very same sources.
sources=$(find src include tests bench examples meson.build meson_options.txt -type f \
    ! -path 'tests/sim/bugs/*' -print0 | sort -z | xargs -0 sha256sum | sha256sum | cut -c1-16)

field() # BUG NUMBER: a word of its line
{
    sed -n 's/^Caught by: //p' "$bugs/$1.patch" | head -n 1 | cut -d' ' -f"$2"
}

target() # BUG
{
    case $(field "$1" 1) in
    sim | plan) echo tests/sim/psd_sim ;;
    unit | unit-tcp) echo "test_$(field "$1" 2)" ;;
    *) die "$1.patch: \"$(field "$1" 1)\" is no kind of test" ;;
    esac
}

build() # BUG
{
    ninja -C build --quiet "$(target "$1")" >"$scratch/log" 2>&1 || {
        grep -m 3 -A 6 'error:' "$scratch/log" || tail -n 20 "$scratch/log"
        die "$1: the build failed"
    }
}

run() # BUG [SEEDS]: runs its test; the output goes to $scratch/out
{
    local kind word seeds
    kind=$(field "$1" 1)
    word=$(field "$1" 2)
    seeds=$(field "$1" 3)
    case $kind in
    sim) timeout -k 5 "$deadline" build/tests/sim/psd_sim --seeds "${2:-$word}" ;;
    plan) timeout -k 5 "$deadline" build/tests/sim/psd_sim --plan "tests/sim/plans/$word" \
        --seeds "${seeds:-1}" ;;
    unit) timeout -k 5 "$deadline" "build/test_$word" ;;
    unit-tcp) PSD_TRANSPORT=tcp timeout -k 5 "$deadline" "build/test_$word" ;;
    esac >"$scratch/out" 2>&1
}

# Without any bug every one of these tests passes; each is asked once.
declare -A sound
check_sound() # BUG
{
    local what
    what="$(field "$1" 1) $(field "$1" 2)"
    [ "$(field "$1" 1)" != plan ] || what="$what $(field "$1" 3)"
    [ "$(field "$1" 1)" != sim ] || what=sim
    [ -z "${sound[$what]:-}" ] || return 0
    build "$1"
    run "$1" 200 || {
        tail -n 20 "$scratch/out"
        die "$what fails without any planted bug"
    }
    sound[$what]=yes
}

# What the test said, in one line.
saw()
{
    sed -n 's/.*\(seed [0-9]*\) failed: /\1: /p; s/.*plan .* failed: //p; s/^\[  *FAILED *\] \(test_[a-z0-9_]*\).*/\1/p;
            s/.*assertion failed/assertion failed/p' "$scratch/out" | head -n 1 | cut -c1-90
}

# In how many of $rate seeds does psd_sim notice, which has just been built with the bug?
count_seeds() # BUG
{
    local word seed=1 last caught=0 how=()
    word=$(field "$1" 2)
    if [ "$(field "$1" 1)" = plan ]; then
        how=(--plan "tests/sim/plans/$word")
        seed=$(sed -n 's/^seed //p' "tests/sim/plans/$word")
    fi
    last=$((seed + rate - 1))
    while [ "$seed" -le "$last" ]; do
        timeout -k 5 "$deadline" build/tests/sim/psd_sim "${how[@]}" --first "$seed" \
            --seeds $((last - seed + 1)) >"$scratch/seeds" 2>&1 && break
        seed=$(sed -n 's/^replay: .*--\(seed\|first\) \([0-9]*\).*/\2/p' "$scratch/seeds" | tail -n 1)
        caught=$((caught + 1))
        if [ -z "$seed" ]; then
            echo "$caught of $rate seeds or more: it crashes"
            return
        fi
        seed=$((seed + 1))
    done
    echo "$caught of $rate seeds"
}

# Did the named test notice? A crash or a hang that the test itself ends names no function.
noticed() # BUG EXIT_CODE
{
    local function
    [ "$2" -ne 0 ] && [ "$2" -ne 124 ] && [ "$2" -ne 137 ] || return 1
    function=$(field "$1" 3)
    case $(field "$1" 1) in
    unit | unit-tcp) [ "$2" -ge 128 ] || grep -q "FAILED.*$function" "$scratch/out" ;;
    *) [ "$2" -eq 1 ] || [ "$2" -ge 128 ] ;;
    esac
}

try() # BUG: applies it, runs its test, prints a row; false: not caught
{
    local bug=$1 start=$SECONDS code=0 mark=
    [ -z "$keep" ] || mark=$keep/$bug.$(sha256sum "$bugs/$bug.patch" | cut -c1-16).$sources
    if [ -n "$mark" ] && [ -f "$mark" ]; then
        cat "$mark"
        return 0
    fi
    check_sound "$bug"
    patch -p1 --quiet <"$bugs/$bug.patch" >"$scratch/log" || die "$bug does not apply: $(cat "$scratch/log")"
    build "$bug"
    run "$bug" || code=$?
    case $rate:$(field "$bug" 1) in
    [0-9]*:sim | [0-9]*:plan) printf '%-45s %s\n' "$bug" "$(count_seeds "$bug")" ;;
    esac
    patch -p1 --quiet -R <"$bugs/$bug.patch"
    if ! noticed "$bug" "$code"; then
        printf '%-45s %-28s %5d  %s\n' "$bug" "$(target "$bug")" $((SECONDS - start)) \
            "NOT CAUGHT (exit code $code)"
        return 1
    fi
    printf '%-45s %-28s %5d  %s\n' "$bug" "$(target "$bug")" $((SECONDS - start)) "$(saw)" |
        tee "$scratch/row"
    if [ -n "$mark" ]; then
        mkdir -p "$keep"
        mv "$scratch/row" "$mark"
    fi
}

escaped=0
count=0
printf '%-45s %-28s %5s  %s\n' bug test s 'what it saw'
for bug; do
    count=$((count + 1))
    if [ $((count % ${shard#*/})) -eq $((${shard%/*} % ${shard#*/})) ]; then
        try "$bug" || escaped=$((escaped + 1))
    fi
done
if [ $escaped -gt 0 ]; then
    echo "$escaped planted bugs were not caught"
    exit 1
fi
