#!/usr/bin/env bash
# Are psd_bench's ceilings as fast as the programs they were modelled on?
#   bench/check_ceilings.sh FOLDER [RUNS]
# FOLDER holds psceil.c, tcpps.c and pp.c; without it there is nothing to compare, and the check is
# skipped. Both sides run in turn, RUNS times (default 7); medians are compared, and best runs. Fails
# when a ceiling reaches less than 0.97 of its model in both. Needs a quiet machine.
set -euo pipefail
cd "$(dirname "$0")/.."
folder=${1:-}
runs=${2:-7}
bench=bin/psd_bench

if [ -z "$folder" ] || [ ! -f "$folder/psceil.c" ]; then
    echo "check_ceilings: skipped: no folder with psceil.c, tcpps.c and pp.c given"
    exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for program in psceil tcpps pp; do
    gcc -O3 -march=native -w -pthread "$folder/$program.c" -o "$work/$program"
done

# Ours: one line "NAME BYTES VALUE" for each figure that has a model.
ours() { # TRANSPORT WORKERS SIZES
    "$bench" --transport "$1" --workers "$2" --sizes "$3" --repeat 3 --json "$work/ours.jsonl" \
        ceilings >/dev/null 2>&1
    python3 - "$work/ours.jsonl" "$2" >>"$work/ours" <<'PYTHON'
import json, sys
for line in map(json.loads, open(sys.argv[1])):
    ping = line["name"].startswith("ping_")
    if line["name"].endswith("_p50") if ping else line["unit"] == "GB/s":
        value = 1 / line["value"] if ping else line["value"]
        print(line["name"].removesuffix("_p50"), sys.argv[2], line["bytes"], value)
PYTHON
}

# Theirs, in the same form, under our names.
theirs_memory() { # MEGABYTES
    "$work/psceil" "$1" 3 2 | sed -nE \
        -e "s/^psceil full .*median ([0-9.]+).*/ceiling_full 2 $(($1 << 20)) \1/p" \
        -e "s/^psceil blocked-full .*median ([0-9.]+).*/ceiling_blocked 2 $(($1 << 20)) \1/p" \
        -e "s/^psceil fused-server-only .*median ([0-9.]+).*/ceiling_fused 2 $(($1 << 20)) \1/p" \
        -e "s/^psceil copyin\(nt\) .*median ([0-9.]+).*/ceiling_copyin_nt 2 $(($1 << 20)) \1/p" \
        -e "s/^psceil copyin\(libc\) .*median ([0-9.]+).*/ceiling_copyin_libc 2 $(($1 << 20)) \1/p" \
        >>"$work/theirs"
}

theirs_sockets() { # KILOBYTES WORKERS
    "$work/tcpps" "$1" 256 "$2" 0.3 |
        sed -E "s/.* ([0-9.]+) GB.*/ceiling_sockets $2 $(($1 << 10)) \1/" >>"$work/theirs"
    if [ "$2" = 1 ]; then
        SPIN=1 "$work/tcpps" "$1" 256 1 0.3 |
            sed -E "s/.* ([0-9.]+) GB.*/ceiling_sockets_spin 1 $(($1 << 10)) \1/" >>"$work/theirs"
    fi
}

theirs_ping() { # MODE NAME
    "$work/pp" "$1" 64 20000 | sed -E "s/.* p50 ([0-9.]+) .*/\1/" |
        awk -v name="$2" '{ print name, 1, 64, 1 / $1 }' >>"$work/theirs"
}

for run in $(seq "$runs"); do
    [ -t 2 ] && printf '\rrun %d of %d' "$run" "$runs" >&2
    ours shm 2 4M,64M
    theirs_memory 4
    theirs_memory 64
    ours tcp 1 4k,4M,32M
    theirs_sockets 4 1
    theirs_sockets 4096 1
    theirs_sockets 32768 1
    ours tcp 2 4M,32M
    theirs_sockets 4096 2
    theirs_sockets 32768 2
    ours shm 1 64
    ours tcp 1 64
    theirs_ping shmspin ping_shm_spin
    theirs_ping shmfutex ping_shm
    theirs_ping tcpspin ping_tcp_spin
    theirs_ping tcp ping_tcp
    theirs_ping unixspin ping_unix_spin
    theirs_ping unix ping_unix
done
[ -t 2 ] && printf '\r\033[K' >&2

python3 - "$work/ours" "$work/theirs" <<'PYTHON'
import statistics, sys

def read(path):
    values = {}
    for line in open(path):
        name, workers, size, value = line.split()
        values.setdefault((name, int(workers), int(size)), []).append(float(value))
    return values

ours, theirs = read(sys.argv[1]), read(sys.argv[2])
slow = 0
print("| ceiling | workers | bytes | of its model, by medians | by best runs | |")
print("|:---|---:|---:|---:|---:|:---|")
for key in theirs:
    middle = statistics.median(ours[key]) / statistics.median(theirs[key])
    best = max(ours[key]) / max(theirs[key])
    good = max(middle, best) >= 0.97
    slow += not good
    print(f"| {key[0]} | {key[1]} | {key[2]} | {middle:.2f} | {best:.2f} | {'' if good else 'TOO SLOW'} |")
sys.exit(1 if slow else 0)
PYTHON
