#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# push_pull between two hosts with 1 Gbit/s each way: how much of the line is used, in both
# directions at once? The hosts are two network namespaces with a cable between them, each end of
# it shaped by a token bucket. Needs root; skipped otherwise.
#   bench/shaped.sh [RATE_MBIT] [SIZES]     default: 1000 16M,64M
# Prints a table; lines for programs are appended to bench/results/latest.jsonl.
set -euo pipefail
cd "$(dirname "$0")/.."
rate=${1:-1000}
sizes=${2:-16M,64M}
bin=$PWD/bin
results=bench/results/latest.jsonl

skip() { echo "shaped: skipped: $*"; exit 0; }
[ "$(id -u)" = 0 ] || skip "network namespaces need root"
command -v tc >/dev/null && command -v ip >/dev/null || skip "no ip and tc: apt-get install iproute2"

mark=$$
hosts=("psdbench${mark}a" "psdbench${mark}b")
ends=("pb${mark}a" "pb${mark}b")
addresses=(10.214.7.1 10.214.7.2)
work=$(mktemp -d)
daemons=()

clean() {
    for pid in "${daemons[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait || true
    for host in "${hosts[@]}"; do ip netns del "$host" 2>/dev/null || true; done
    rm -rf "$work"
}
trap clean EXIT

ip netns add "${hosts[0]}" 2>/dev/null || skip "this system makes no network namespaces"
ip netns add "${hosts[1]}"
ip link add "${ends[0]}" netns "${hosts[0]}" type veth peer name "${ends[1]}" netns "${hosts[1]}"
for i in 0 1; do
    ip -n "${hosts[i]}" addr add "${addresses[i]}/24" dev "${ends[i]}"
    ip -n "${hosts[i]}" link set lo up
    ip -n "${hosts[i]}" link set "${ends[i]}" up
    tc -n "${hosts[i]}" qdisc add dev "${ends[i]}" root tbf rate "${rate}mbit" burst 256kb \
        latency 50ms || skip "this system shapes no traffic (tbf)"
done

# Master and server on one host, the worker on the other.
"$bin/psd_run" secret "$work/secret"
export PSD_SECRET_FILE=$work/secret
mkfifo "$work/ready"
ip netns exec "${hosts[0]}" "$bin/ps_master" --workers 1 --servers 1 --bind "${addresses[0]}" \
    --port 0 --ready_fd 3 3>"$work/ready" >"$work/master" 2>&1 &
daemons+=($!)
read -r -t 20 master <"$work/ready" ||
    { echo "shaped: the master does not start:" >&2; cat "$work/master" >&2; exit 1; }
ip netns exec "${hosts[0]}" "$bin/ps_server" --index 0 --master_address "$master" \
    --bind "${addresses[0]}" >"$work/server" 2>&1 &
daemons+=($!)

sent() { ip -n "${hosts[$1]}" -j -s link show dev "${ends[$1]}" |
    python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["stats64"]["tx"]["bytes"])'; }

export PSD_MASTER_ADDRESS=$master PSD_RANK=0
before=("$(sent 0)" "$(sent 1)")
"$bin/psd_bench" --workers 1 --sizes "$sizes" --seconds 2 --repeat 5 --json "$work/lines" \
    --launch "exec ip netns exec ${hosts[1]} $bin/psd_bench --control \$PSD_BENCH_CONTROL" \
    >"$work/table" || { cat "$work/table" "$work/server" >&2; exit 1; }
after=("$(sent 0)" "$(sent 1)")

mkdir -p "$(dirname "$results")"
python3 - "$work/lines" "$rate" "$((after[1] - before[1]))" "$((after[0] - before[0]))" "$results" <<'PYTHON'
import json, sys
path, rate, up, down, results = sys.argv[1:]
line_rate = int(rate) / 1000
print(f"\n### Two hosts, {rate} Mbit/s each way: payload in each direction at once\n")
print("| tensor | timed | Gbit/s | of the line | min-max | target |\n|---:|:---|---:|---:|---:|:---|")
with open(results, "a") as out:
    for line in map(json.loads, open(path)):
        if line["unit"] != "GB/s":
            continue
        speeds = [8 * line[key] for key in ("value", "min", "max")]
        ratios = [speed / line_rate for speed in speeds]
        verdict = ">= 0.94: " + ("met" if ratios[0] >= 0.94 else "MISSED")
        size = f"{line['bytes'] >> 20} MiB"
        call = line["timing"] == "call"
        print(f"| {size} | {'call' if call else 'write, call, read'} | {speeds[0]:.3f} | "
              f"{ratios[0]:.3f} | {ratios[1]:.3f}-{ratios[2]:.3f} | {verdict if call else ''} |")
        line.update(name="shaped_" + line["name"], transport="tls", value=speeds[0], unit="Gbit/s",
                    min=speeds[1], max=speeds[2], reference=line_rate, reference_name="line",
                    ratio=ratios[0])
        out.write(json.dumps(line) + "\n")
print(f"\n{int(up) / 1e6:.0f} MB went up and {int(down) / 1e6:.0f} MB down, frames and all.")
PYTHON
