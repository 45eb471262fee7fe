# SPDX-License-Identifier: Apache-2.0
"""psd_bench as users run it: what it writes, draws, skips and refuses. How fast things are is not
asked here."""

import json
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as xml

import pytest

from helpers import HERE, program

BENCH = HERE.parents[1] / "bench"
FIELDS = {"name": str, "transport": str, "workers": int, "servers": int, "bytes": int, "value": float,
          "unit": str}


def run_bench(*words, environment=None):
    return subprocess.run([program("psd_bench"), *map(str, words)], capture_output=True, text=True,
                          timeout=240, env=environment)


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    """The results of a short run, and where they lie."""
    path = tmp_path_factory.mktemp("bench") / "results.jsonl"
    done = run_bench("--quick", "--alone", "--workers", 2, "--sizes", "64,1M", "--json", path)
    assert done.returncode == 0, done.stderr
    return path, [json.loads(line) for line in path.read_text().splitlines()]


def test_lines_have_what_programs_need(lines):
    """If this fails, programs cannot read the results, or a figure has no value."""
    for line in lines[1]:
        for name, kind in FIELDS.items():
            assert isinstance(line[name], (int, float) if kind is float else kind), line
        assert line["value"] >= 0, line
        assert (line["reference"] is None) == (line["ratio"] is None), line
    names = {line["name"] for line in lines[1]}
    assert {"push_pull_in_place", "push_pull", "sum_in_place", "push_pull_streamed", "push_pull_p99",
            "push_pull_rate", "push_pull_cpu", "ceiling_full", "ceiling_sockets"} <= names
    assert {line["timing"] for line in lines[1] if line["name"] == "push_pull"} == {"call", "touch"}
    assert {line["bytes"] for line in lines[1]} == {64, 1 << 20}


def test_plots_are_drawn(lines, tmp_path):
    """If this fails, a chart is missing or no browser can read it."""
    subprocess.run([sys.executable, BENCH / "plot.py", lines[0], tmp_path], check=True,
                   capture_output=True, timeout=120)
    assert not (tmp_path / "latency.svg").exists(), "nothing of one worker was measured"
    for name in ("throughput_shm", "throughput_tcp", "ratio"):
        root = xml.parse(tmp_path / f"{name}.svg").getroot()
        assert root.findall(".//{http://www.w3.org/2000/svg}polyline"), name


def test_time_to_the_first_barrier():
    """If this fails, psd_bench start says nothing of a number of workers, or has a job that does not end well."""
    done = run_bench("--quick", "start")
    assert done.returncode == 0, done.stderr
    rows = re.findall(r"^\| (\d+) \| ([0-9.]+) \| ([0-9.]+)-([0-9.]+) \|$", done.stdout, re.M)
    assert [int(row[0]) for row in rows] == [1, 4], done.stdout
    assert all(0 < float(row[2]) <= float(row[1]) <= float(row[3]) < 120 for row in rows), done.stdout


def test_gradients_of_a_model():
    """If this fails, psd_bench train measures no model, or a tensor of it arrives wrong beside an emulated backward."""
    done = run_bench("--quick", "--alone", "--backward", 20, "train")
    assert done.returncode == 0, done.stderr
    for title in ("sum, a table for each tensor", "sum, what it adds to backward"):
        assert re.search(rf"^\| 345104 B \| {title} \| call \|", done.stdout, re.M), done.stdout


def test_peers_that_are_not_installed_are_skipped():
    """If this fails, nobody can run the benchmark without installing everything first."""
    done = run_bench("--quick", "--transport", "shm", "--workers", 2, "--sizes", 64,
                     environment={"PATH": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    assert "OpenMPI: skipped: OpenMPI is not installed: make bench-peers" in done.stderr
    assert "push_pull, in place" in done.stdout


def test_sparse_tables(tmp_path):
    """If this fails, psd_bench sparse measures no job or checks none, needs caches that are not installed, or its charts
    cannot be read."""
    path = tmp_path / "sparse.jsonl"
    done = run_bench("--quick", "--json", path, "sparse", environment={"PATH": "/nonexistent"})
    assert done.returncode == 0, done.stderr
    for missing in ("Redis", "memcached"):
        assert f"skipped: {missing} is not installed: make bench-peers" in done.stdout
    figures = [json.loads(line) for line in path.read_text().splitlines()]
    jobs = [line for line in figures if line["name"].startswith("sparse job: ")]
    assert {line["transport"] for line in jobs} == {"shm", "tcp"}
    assert {line["name"].split(": ")[1] for line in jobs} >= {
        "lookup", "push", "push and lookup", "lookup, zipf", "push and lookup, zipf", "push, new ids", "push, new ids for old"}
    assert {line["width"] for line in jobs} == {1, 16, 64, 256, 4096}
    assert all(line["value"] > 0 for line in figures)
    assert all(line["ratio"] > 0 for line in figures if line.get("reference_name"))
    subprocess.run([sys.executable, BENCH / "plot_sparse.py", path, tmp_path], check=True, capture_output=True, timeout=120)
    for name in ("sparse_speed", "sparse_ratio"):
        root = xml.parse(tmp_path / f"{name}.svg").getroot()
        assert len(root.findall(".//{http://www.w3.org/2000/svg}rect")) > 5, name


@pytest.mark.skipif(not (shutil.which("redis-server") and shutil.which("memcached")),
                    reason="Redis or memcached is not installed: make bench-peers")
def test_sparse_tables_beside_caches(tmp_path):
    """If this fails, nobody can compare sparse tables with Redis and memcached, or a cache gave other rows than were stored."""
    path = tmp_path / "sparse.jsonl"
    done = run_bench("--quick", "--json", path, "sparse")
    assert done.returncode == 0, done.stderr
    figures = [json.loads(line) for line in path.read_text().splitlines()]
    beside = {(line["reference_name"], line["transport"]) for line in figures if line["name"] == "sparse job: lookup"}
    assert beside >= {(name, transport) for name in ("Redis", "memcached") for transport in ("shm", "tcp")}


def test_workers_by_another_launcher(tmp_path):
    """If this fails, jobs that psd_run does not start cannot be measured."""
    launch = f"{program('psd_run')} -o {tmp_path} --workers 1 --servers 1 --pass env -- " \
             f"{program('psd_bench')} --control $PSD_BENCH_CONTROL"
    done = run_bench("--quick", "--workers", 1, "--sizes", 4096, "--launch", launch)
    assert done.returncode == 0, done.stderr
    assert "| 4 KiB | push_pull, ordinary memory |" in done.stdout


def test_fewer_cores():
    """If this fails, a part of a machine cannot be measured as if it were all of it."""
    done = run_bench("--quick", "--alone", "--cores", 1, "--transport", "shm", "--workers", 2, "--sizes", "64k")
    assert done.returncode == 0, done.stderr
    assert "| 64 KiB | ceiling: copyin(libc) |" in done.stdout


def test_a_job_that_does_not_start():
    """If this fails, a benchmark without workers waits, or nobody learns why."""
    done = run_bench("--quick", "--workers", 1, "--sizes", 64, "--launch",
                     "echo no machine is free; exit 5")
    assert done.returncode == 1
    assert "the launched job ended before its workers were there" in done.stderr
    kept = re.search(r"all that the launched job said is in (/tmp/psd_bench\.\w+); the end of it:\nno machine is free\n",
                     done.stderr)
    assert kept, done.stderr
    shutil.rmtree(kept[1])


@pytest.mark.parametrize("words", [("siute",), ("--sizes", "3"), ("--transport", "udp"),
                                   ("suite", "--workers", "2"), ("--repeat", "1000"), ("--cores", "5000")])
def test_wrong_options(words):
    """If this fails, a typing error starts ten minutes of something else."""
    done = run_bench(*words)
    assert done.returncode == 2
    assert "psd_bench:" in done.stderr
