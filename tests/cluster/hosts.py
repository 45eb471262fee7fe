# SPDX-License-Identifier: Apache-2.0
"""Hosts for tests: network namespaces, so root only."""

import os
import subprocess

import pytest


def ip(*words, check=True):
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=check)


class Hosts:
    """Two namespaces and a cable between them."""

    def __init__(self):
        mark = f"{os.getpid() % 10000}"
        self.names = [f"psd{mark}a", f"psd{mark}b"]
        self.interfaces = [f"v{mark}a", f"v{mark}b"]
        self.addresses = ["10.213.7.1", "10.213.7.2"]
        ip("netns", "add", self.names[0])
        ip("netns", "add", self.names[1])
        ip("link", "add", self.interfaces[0], "netns", self.names[0], "type", "veth", "peer",
           "name", self.interfaces[1], "netns", self.names[1])
        for name, interface, address in zip(self.names, self.interfaces, self.addresses):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", interface)
            ip("-n", name, "link", "set", interface, "up")
            ip("-n", name, "link", "set", "lo", "up")

    def inside(self, host, *command):
        return ("ip", "netns", "exec", self.names[host], *map(str, command))

    def bytes(self, host):
        """What has come in and gone out through the host's end of the cable, in bytes."""
        table = subprocess.run(self.inside(host, "cat", "/proc/net/dev"), capture_output=True,
                               text=True, check=True).stdout
        (line,) = [line for line in table.splitlines() if f"{self.interfaces[host]}:" in line]
        fields = line.partition(":")[2].split()
        return int(fields[0]), int(fields[8])

    def remove(self):
        for name in self.names:
            ip("netns", "del", name, check=False)


@pytest.fixture
def hosts():
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    probe = ip("netns", "add", f"psd{os.getpid() % 10000}probe", check=False)
    if probe.returncode != 0:
        pytest.skip(f"no network namespaces here: {probe.stderr.strip()}")
    ip("netns", "del", f"psd{os.getpid() % 10000}probe")
    made = Hosts()
    yield made
    made.remove()
