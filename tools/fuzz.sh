#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Looks for inputs that break a decoder or a core, then shows how much of each the kept inputs reach.
#   tools/fuzz.sh [SECONDS]   fuzz every target of tests/fuzz for so long (default 60)
#   tools/fuzz.sh keep        add to tests/fuzz/corpus what earlier runs found and reaches new code
# Fails when anything was found, or when the kept inputs leave a decoder below 95 % of its lines.
set -euo pipefail
cd "$(dirname "$0")/.."

decoders=(src/wire/frame.c src/wire/meta.c src/wire/pack.c src/wire/rows.c src/wire/message_job.c
          src/wire/message_meet.c src/wire/message_table.c src/wire/message_view.c
          src/cluster/cluster_fields.c src/cluster/cluster_json.c src/cluster/cluster_nodes.c
          src/cluster/endpoint.c src/cluster/hostlist.c src/cluster/json_walk.c
          src/config/nearest.c src/cluster/numberlist.c src/config/options.c src/config/settings.c
          src/cluster/tf_config.c src/launch/plan/roles.c src/launch/meet/slurm.c src/launch/text/words.c
          src/launch/meet/rendezvous_file.c src/checkpoint/manifest.c src/checkpoint/scan.c
          src/checkpoint/safetensors.c src/checkpoint/tensors.c src/master/life_journal.c
          src/secure/pass.c src/secure/tls.c src/secure/tls_label.c src/secure/tls_records.c
          src/transport/address.c src/transport/stream/stream_in.c src/transport/shm/ring.c
          src/transport/stream/carrier_shm_receive.c src/transport/stream/shm_offer.c src/transport/shm/descriptors.c
          src/store/sparse/pieces_take.c examples/mnist/idx.c)
cover_min=95

# Not decoders, so without a limit: what runs behind them in the stateful targets.
cores=(src/server/{adopt,adopt_reports,answers,backup,hold,lane,loads,parked,pushes,reading,rounds,sessions,share,slots,stall,tables,views,why}.c
       src/master/{barrier,given,master,members,nodes,quorum,rebuild,rebuild_reports,rebuild_tables,sessions,tables,views,workers}.c
       src/client/core/{backup,control,core,lane_answers,lane_own,lane_queue,lane_requests,lane_send}.c
       src/client/core/{lanes,ops,order,share,tables,transfer}.c
       src/client/read/{reading,read_lanes,read_life,read_tables}.c
       src/client/host/{gather,gather_send,gathered,host,route}.c
       src/rpc/{inbox,peer,post}.c src/transport/shm/{shm_meet,lending}.c src/transport/stream/{carrier_shm,carrier_shm_send,stream,stream_out}.c)

build=build-fuzz
kept=tests/fuzz/corpus
found=$build/corpus      # grows from run to run
findings=$build/findings # inputs that crashed, leaked, hung or took too much memory
profiles=$build/profiles

targets=()
for source in tests/fuzz/fuzz_*.c; do
    name=$(basename "$source" .c)
    targets+=("${name#fuzz_}")
done

# The LLVM tools of this clang; Debian puts the version into their names.
tool() {
    local version
    version=$(clang -dumpversion)
    command -v "$1-${version%%.*}" || command -v "$1"
}

[ -f $build/build.ninja ] || CC=clang meson setup $build -Dfuzz=true >/dev/null
ninja -C $build --quiet $(printf "tests/fuzz/fuzz_%s " "${targets[@]}") \
    $(printf "tests/fuzz/cover_%s " "${targets[@]}")
for name in "${targets[@]}"; do
    mkdir -p "$found/$name" "$findings/$name"
done

# One line per target: what was run, what was found.
fuzz() {
    local name=$1 seconds=$2 log=$build/fuzz_$1.log dictionary=tests/fuzz/$1.dict runs
    local options=(-max_total_time="$seconds" -rss_limit_mb=1024 -timeout=5 -print_final_stats=1
                   -artifact_prefix="$findings/$name/")

    [ ! -f "$dictionary" ] || options+=(-dict="$dictionary")
    if ASAN_OPTIONS=quarantine_size_mb=16 \
        $build/tests/fuzz/fuzz_"$name" "${options[@]}" "$found/$name" "$kept/$name" 2>"$log"; then
        runs=$(awk '/stat::number_of_executed_units/ { print $2 }' "$log")
        printf '%-10s %12s runs in %s s, nothing found\n' "$name" "$runs" "$seconds"
    else
        printf '%-10s FOUND something: %s, input in %s\n' "$name" "$log" "$findings/$name"
        tail -n 20 "$log"
        return 1
    fi
}

# One line per file: how many of its lines the kept inputs reach. LEAST FILES...
report() {
    local least=$1
    shift
    awk -v least="$least" -v files="$*" '
        BEGIN { expected = split(files, list); for (i in list) { wanted[list[i]] = 1 } }
        $1 in wanted {
            count++
            printf "%-28s %5d lines, %7s reached\n", $1, $8, $10
            if ($10 + 0 < least) { low++ }
        }
        END {
            if (count != expected) { print count + 0 " files, expected " expected; exit 1 }
            if (low) { print low " below " least " %"; exit 1 }
        }' $profiles/report
}

cover() {
    local name objects=()

    rm -rf $profiles
    for name in "${targets[@]}"; do
        LLVM_PROFILE_FILE=$profiles/$name.raw \
            $build/tests/fuzz/cover_"$name" "$kept/$name" >/dev/null
        objects+=(-object "$build/tests/fuzz/cover_$name")
    done
    $(tool llvm-profdata) merge -o $profiles/all $profiles/*.raw
    $(tool llvm-cov) report "${objects[@]:1}" -instr-profile=$profiles/all \
        >$profiles/report 2>$profiles/warnings
    report 0 "${cores[@]}"
    report $cover_min "${decoders[@]}"
}

if [ "${1:-60}" = keep ]; then
    for name in "${targets[@]}"; do
        $build/tests/fuzz/fuzz_"$name" -set_cover_merge=1 -use_counters=0 "$kept/$name" "$found/$name" \
            2>$build/merge_"$name".log
        echo "$name: $(find "$kept/$name" -type f | wc -l) inputs kept"
    done
    exit
fi

failed=0
for name in "${targets[@]}"; do
    fuzz "$name" "${1:-60}" || failed=1
done
cover || failed=1
exit $failed
