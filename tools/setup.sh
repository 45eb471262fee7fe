#!/usr/bin/env bash
# Installs what building and testing need on Debian 12: quiet and quick when nothing is missing.
#   tools/setup.sh build   compiler, Meson and the libraries (make, make demo)
#   tools/setup.sh test    the above, clang, cmocka, pytest and an independent safetensors reader
#   tools/setup.sh peers   what psd_bench is compared with: OpenMPI, and PyTorch in .venv-peers
set -euo pipefail
cd "$(dirname "$0")/.."

want=(gcc libc6-dev make meson ninja-build pkg-config libjansson-dev libssl-dev libseccomp-dev
      libopenblas-dev zlib1g-dev)
if [ "${1:-build}" = test ]; then
    want+=(libcmocka-dev clang clang-format llvm libclang-rt-14-dev g++ procps
           python3 python3-venv python3-pytest python3-numpy
           openssh-server openssh-client iproute2 util-linux strace)
elif [ "${1:-build}" = peers ]; then
    want+=(libopenmpi-dev openmpi-bin python3 python3-venv iproute2)
fi

missing=()
for package in "${want[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
        missing+=("$package")
done

if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: these Debian packages are missing and neither root nor sudo is at hand:" >&2
            echo "    apt-get install ${missing[*]}" >&2
            exit 3
        fi
        as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    if ! apt-cache show "${missing[@]}" >/dev/null 2>&1; then
        "${as_root[@]}" apt-get update -qq
    fi
    # Tests start an sshd of their own: installing one is no reason to open this machine's door.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
        trap '"${as_root[@]}" rm -f "$policy"' EXIT
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -o DPkg::Lock::Timeout=300 -y -qq --no-install-recommends "${missing[@]}" >/dev/null
fi

if [ "${1:-build}" = test ] && ! .venv/bin/python -c 'import safetensors' 2>/dev/null; then
    echo "setup: a Python environment with safetensors in .venv"
    /usr/bin/python3 -m venv --system-site-packages .venv
    .venv/bin/pip install --quiet --disable-pip-version-check 'safetensors==0.4.5'
fi

if [ "${1:-build}" = peers ] && ! .venv-peers/bin/python -c 'import torch, numpy' 2>/dev/null; then
    echo "setup: a Python environment with PyTorch in .venv-peers (a large download)"
    /usr/bin/python3 -m venv .venv-peers
    .venv-peers/bin/pip install --quiet --disable-pip-version-check 'torch==2.13.0' 'numpy==2.4.6'
fi
