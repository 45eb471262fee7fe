# Short verbs in front of Meson. `make help` lists them.
BUILD := build
BIN := bin
BIN_PROGRAMS := ps_master ps_server psd_run bench/psd_bench tests/sim/psd_sim \
                examples/mnist examples/hello
SEEDS ?= 20000
SECONDS_EACH ?= 60
PROCESSES ?= 10000
JOBS ?= 2
MINUTES ?= 10
ONLY ?=
TARGETS ?=
PREFIX ?= /usr/local

# RUNS is how often, and means something else to each of them.
test-output: RUNS ?= 1000
test-faults flakes: RUNS ?= 10
elastic-runs: RUNS ?= 200

.PHONY: all help setup setup-test setup-frameworks build build-prove demo quick test test-all test-output test-faults test-ssh prove elastic-runs flakes bench bench-suite bench-sparse bench-peers fuzz sim models install wheel format clean

all: setup build

help:
	@echo "make           build everything into build/, programs into bin/"
	@echo "make demo      set up, build, and train on handwritten digits: 2 workers, 2 servers"
	@echo "make quick     an answer within a minute after a change: build, unit tests, 200 simulated and 8 real jobs"
	@echo "make test      set up, build, and run all tests but those that take hours"
	@echo "make test-all  what make test leaves out: real libraries, galleries, generated scripts; SHARD=1/4 for a part; goes on where it stopped"
	@echo "make test-output  what workers print: PROCESSES=$(PROCESSES) short ones, RUNS=1000 through tee and as many with threads; goes on where it was interrupted"
	@echo "make test-ssh  psd_run over ssh on hosts of its own (root), all of it"
	@echo "make test-faults  take every process and machine of a job away, RUNS=10 times, JOBS=$(JOBS) at once (root); goes on where it stopped"
	@echo "make prove     kill servers and masters of real jobs for MINUTES=$(MINUTES), JOBS=$(JOBS) at once; adds to docs/reliability.md, goes on where it stopped"
	@echo "make elastic-runs  RUNS=200 real jobs whose workers join, leave and die at random moments; goes on where it stopped"
	@echo "make flakes    each tier of tests RUNS=10 times with all cores kept busy; goes on where it stopped"
	@echo "make setup-frameworks  PyTorch, TensorFlow and JAX for the tests and examples, into .venv-frameworks"
	@echo "make bench     speed and latency beside the ceilings and the peers, about 10 minutes"
	@echo "make bench-suite  only what the project's targets name, each with its target"
	@echo "make bench-sparse  rows of sparse tables beside C, Redis, memcached and PyTorch; LARGE=1 for 10 and 50 million rows"
	@echo "make bench-peers  install the peers: OpenMPI, Redis, memcached, PyTorch"
	@echo "make sim       the simulator, SEEDS=$(SEEDS) seeds"
	@echo "make models    every state of the models of fail-over, and every bug planted in them; ONLY=sum for a part; goes on where it stopped"
	@echo "make fuzz      every fuzz target for SECONDS_EACH=$(SECONDS_EACH), and coverage of the decoders"
	@echo "make install   headers, libraries, programs, man pages into PREFIX=$(PREFIX) (DESTDIR works)"
	@echo "make wheel     the Python package with libpsd and the programs, into dist/"
	@echo "make format    clang-format over all C files"
	@echo "make clean     remove what was built"

setup:
	@tools/setup.sh build

setup-test:
	@tools/setup.sh test

# Where they cannot be had, the tests that need them are skipped by name.
setup-frameworks:
	@tools/setup.sh frameworks || [ $$? -eq 4 ]

build:
	@test -f $(BUILD)/build.ninja || (echo "configuring $(BUILD)/"; meson setup $(BUILD) >/dev/null)
	@echo "building into $(BUILD)/ (a minute or two the first time)"
	@ninja -C $(BUILD) --quiet $(TARGETS)
	@mkdir -p $(BIN)
	@for program in $(BIN_PROGRAMS); do ln -sf $(CURDIR)/$(BUILD)/$$program $(BIN)/; done
	@echo "programs are in $(BIN)/"
	@grep -q '\.uplot' $(BUILD)/psd_run || \
	    echo "WITHOUT CHARTS: psd_run's page will show no curves. 'make setup', with a network, fetches them (uPlot); then build again." >&2

# Beside the programs for people: the same with fail points (src/base/fail_points.h), for make prove.
PROVE_PROGRAMS := ps_master ps_server psd_run libpsd.so.0.1.0 tests/prove/psd_points examples/mnist
build-prove:
	@test -f build-prove/build.ninja || meson setup build-prove -Dfail_points=true -Dtests=disabled >/dev/null
	@ninja -C build-prove --quiet $(PROVE_PROGRAMS)

demo: setup build
	bin/psd_run --workers 2 --servers 2 --replicas 1 bin/mnist

quick: setup-test build
	@tools/quick.sh $(BUILD) $(BIN)

test: setup-test setup-frameworks build build-prove
	@tools/test.sh

test-all: setup-test setup-frameworks build
	@tools/test_all.sh

# The state stays until all is done, so an interrupted run goes on; of a new build it begins anew.
test-output: setup-test build
	@test $(BUILD)/test-output.json -nt $(BUILD)/psd_run || rm -f $(BUILD)/test-output.json
	PSD_BIN=$(CURDIR)/$(BIN) .venv/bin/python tests/cluster/stress_output.py --processes $(PROCESSES) --runs $(RUNS) \
	    --state $(BUILD)/test-output.json

test-ssh: setup-test build
	PSD_BIN=$(CURDIR)/$(BIN) .venv/bin/python -m pytest -q -rs -p no:cacheprovider tests/cluster/test_ssh.py tests/cluster/test_slurm.py \
	    tests/cluster/test_psd_run_local.py tests/cluster/test_psd_run_load.py tests/cluster/test_terminal.py \
	    tests/cluster/test_rendezvous.py

test-faults: setup-test build
	PSD_BIN=$(CURDIR)/$(BIN) .venv/bin/python tests/cluster/faults.py --runs $(RUNS) --jobs $(JOBS) --only "$(ONLY)" \
	    --out $(CURDIR)/$(BUILD)/faults.tsv

prove: setup-test build-prove
	PSD_BIN=$(CURDIR)/build-prove .venv/bin/python tests/prove/prove.py --minutes $(MINUTES) --jobs $(JOBS)

elastic-runs: setup-test build
	PSD_BIN=$(CURDIR)/$(BIN) .venv/bin/python tests/prove/elastic_runs.py --runs $(RUNS) --out $(BUILD)/elastic-runs

flakes: setup-test setup-frameworks build
	@. tools/datasets.sh && tools/flakes.py --runs $(RUNS) $(FLAKES_ARGS)

bench: setup build
	bin/psd_bench
	@bench/shaped.sh
	@python3 bench/plot.py

bench-suite: setup build
	bin/psd_bench suite
	@bench/shaped.sh

bench-sparse: setup build
	bin/psd_bench $(if $(LARGE),--large) --json bench/results/sparse.jsonl sparse
	@if [ -x .venv-frameworks/bin/python ]; then \
	    .venv-frameworks/bin/python bench/torch_sparse.py --json bench/results/sparse.jsonl; \
	else \
	    echo "skipped: PyTorch is not installed: make bench-peers"; \
	fi
	@python3 bench/plot_sparse.py bench/results/sparse.jsonl

bench-peers:
	@tools/setup.sh peers
	@if [ -f $(BUILD)/build.ninja ]; then meson setup --reconfigure $(BUILD) >/dev/null; fi
	@$(MAKE) --no-print-directory build

fuzz: setup-test
	tools/fuzz.sh $(SECONDS_EACH)

sim: setup build
	bin/psd_sim --seeds $(SEEDS)

models:
	@tools/setup.sh models
	@tests/models/check.py --only "$(ONLY)" --out $(CURDIR)/$(BUILD)/models

install: setup build
	@meson configure $(BUILD) --prefix $(PREFIX) >/dev/null
	@meson install -C $(BUILD) --quiet >/dev/null
	@libdir=$$(meson introspect $(BUILD) --buildoptions | \
	    python3 -c 'import json, sys; print([o["value"] for o in json.load(sys.stdin) if o["name"] == "libdir"][0])'); \
	echo "installed into $(DESTDIR)$(PREFIX); outside the system's own paths use"; \
	$(if $(DESTDIR),echo "    export PKG_CONFIG_SYSROOT_DIR=$(DESTDIR)";) \
	echo "    export PKG_CONFIG_PATH=$(DESTDIR)$(PREFIX)/$$libdir/pkgconfig"; \
	echo "    export LD_LIBRARY_PATH=$(DESTDIR)$(PREFIX)/$$libdir"; \
	echo "    export PATH=$(DESTDIR)$(PREFIX)/bin:\$$PATH"; \
	echo "    export MANPATH=$(DESTDIR)$(PREFIX)/share/man:\$$MANPATH"

wheel: setup build
	@PSD_WHEEL_BUILD=$(CURDIR)/$(BUILD) python3 tools/wheel_backend.py dist

format:
	clang-format -i $$(git ls-files '*.c' '*.h')

clean:
	rm -rf build build-* bin dist
