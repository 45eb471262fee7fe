# SPDX-License-Identifier: Apache-2.0
"""What long runs of the tests need: to go on where they were interrupted, and to be done in parts."""

import pathlib

import pytest


def pytest_addoption(parser):
    group = parser.getgroup("long runs")
    group.addoption("--passed", metavar="FILE", type=pathlib.Path,
                    help="leave out the tests that FILE names, and add those that pass")
    group.addoption("--shard", metavar="I/N", default="1/1", help="the I-th of N parts of the tests (default: 1/1)")


def read_shard(text):
    """("2/3") -> (1, 3)"""
    index, _, count = text.partition("/")
    if not (index.isdigit() and count.isdigit() and 1 <= int(index) <= int(count)):
        raise pytest.UsageError(f"--shard {text}: I/N is wanted, 1/3 for the first of three parts")
    return int(index) - 1, int(count)


@pytest.hookimpl(trylast=True)  # after -m and -k, so that the parts are equal
def pytest_collection_modifyitems(config, items):
    index, count = read_shard(config.getoption("shard"))
    path = config.getoption("passed")
    passed = set(path.read_text().splitlines()) if path and path.exists() else set()
    wanted, left_out = [], []
    for place, item in enumerate(items):
        (wanted if place % count == index and item.nodeid not in passed else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = wanted


class Keeper:
    """Writes down what passed as soon as it has, because nobody says goodbye to what is killed."""

    def __init__(self, path):
        self.path = path

    def pytest_runtest_logreport(self, report):
        if report.when == "call" and report.passed:
            with self.path.open("a") as file:
                file.write(f"{report.nodeid}\n")


def pytest_configure(config):
    path = config.getoption("passed")
    # With pytest-xdist the process that collects the reports of the others keeps them.
    if path and not hasattr(config, "workerinput"):
        path.parent.mkdir(parents=True, exist_ok=True)
        config.pluginmanager.register(Keeper(path))
