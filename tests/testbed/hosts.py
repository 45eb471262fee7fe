# SPDX-License-Identifier: Apache-2.0
"""Several hosts on one Linux machine: each has its own network, name, processes, mounts, user and
sshd. A switch joins them. Nothing of it is seen outside, and nothing is left when it goes.

By hand, as root:

    python3 tests/testbed/hosts.py 4          a shell on the launcher; host1 ... host4 answer to ssh

The user psd (no password, a key for ssh) exists on the hosts alone. Homes are separate, the rest of
the file system is shared, the checkout also as /opt/poseidon, so that psd can read it."""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
NETWORK = "10.213.0"
NETWORK6 = "fd00:213::"
USER, USER_ID = "psd", 7700
DEADLINE_S = 20

# Process 1 of a host. $1 is its directory, $2 its name, $3 and $4 its addresses.
BOOT = r"""
set -e
directory=$1 name=$2 address=$3 address6=$4 checkout=$5
hostname "$name"
mount --make-rprivate /
mount -t tmpfs -o mode=755 tmpfs /run
mkdir /run/sshd
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o mode=755 tmpfs /opt
mkdir /opt/poseidon
mount --bind "$checkout" /opt/poseidon
mount -t tmpfs -o mode=755 tmpfs /home
mkdir /home/psd
mount --bind "$directory/home" /home/psd
mount --bind "$directory/root" /root
for file in passwd group shadow hosts; do
    mount --bind "$directory/etc/$file" "/etc/$file"
done
ip link set lo up
deadline=$(($(date +%s) + 20))
until ip link show eth0 >/dev/null 2>&1; do
    [ "$(date +%s)" -lt "$deadline" ]
    sleep 0.02
done
ip addr add "$address/24" dev eth0
ip addr add "$address6/64" dev eth0 nodad
ip link set eth0 up
/usr/sbin/sshd -f "$directory/sshd_config" -E "$directory/sshd.log"
echo up >"$directory/up"
while :; do sleep 1000 & wait $! || :; done
"""

SSHD_CONFIG = """\
HostKey {directory}/host_key
PidFile /run/sshd.pid
AuthorizedKeysFile .ssh/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin no
UsePAM no
"""


def missing():
    """Why there can be no hosts here; None: there can."""
    if os.geteuid() != 0:
        return "namespaces need root"
    for name in ("sshd", "ip", "unshare", "nsenter", "setpriv", "ssh-keygen"):
        if shutil.which(name, path="/usr/sbin:/sbin:/usr/bin:/bin") is None:
            return f"{name} is not installed (tools/setup.sh test)"
    probe = subprocess.run(["unshare", "--net", "--pid", "--mount", "--uts", "--ipc", "--fork",
                            "true"], capture_output=True, text=True, check=False)
    return None if probe.returncode == 0 else f"no namespaces: {probe.stderr.strip()}"


def run(*command, check=True):
    return subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          check=check, timeout=DEADLINE_S)


def until(condition, what):
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {DEADLINE_S} s"
        time.sleep(0.01)


def first_child(pid):
    """The child of a process that only waits for one."""
    path = pathlib.Path(f"/proc/{pid}/task/{pid}/children")
    words = path.read_text().split() if path.exists() else []
    return int(words[0]) if words else None


class Host:
    """One machine; number 0 is the launcher's."""

    def __init__(self, bed, number):
        self.bed = bed
        self.number = number
        self.name = f"host{number}" if number else "launcher"
        self.address = f"{NETWORK}.{number or 100}"
        self.address6 = f"{NETWORK6}{number or 100}"
        self.directory = bed.directory / self.name
        self.port = f"p{number}"
        self.pid = None
        self.holder = None

    # -------------------------------------------------------------------------------- files ---

    def write_files(self):
        for name in ("etc", "home/.ssh", "root"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.directory / "host_key")
        (self.directory / "sshd_config").write_text(SSHD_CONFIG.format(directory=self.directory))
        self.write_accounts()
        ssh = self.directory / "home" / ".ssh"
        shutil.copy(self.bed.key, ssh / "id_ed25519")
        shutil.copy(f"{self.bed.key}.pub", ssh / "authorized_keys")
        for path in [ssh, *ssh.iterdir()]:
            path.chmod(0o700 if path.is_dir() else 0o600)
        run("chown", "-R", f"{USER_ID}:{USER_ID}", self.directory / "home")
        (self.directory / "home").chmod(0o755)

    def write_accounts(self):
        """Without a password, but not locked: sshd lets keys in."""
        lines = {"passwd": f"{USER}:x:{USER_ID}:{USER_ID}::/home/{USER}:/bin/sh",
                 "group": f"{USER}:x:{USER_ID}:", "shadow": f"{USER}:*:19000::::::"}
        for name, line in lines.items():
            old = pathlib.Path("/etc", name).read_text().splitlines()
            kept = [other for other in old if not other.startswith(f"{USER}:")]
            (self.directory / "etc" / name).write_text("\n".join([*kept, line]) + "\n")
        (self.directory / "etc" / "shadow").chmod(0o640)
        names = [f"{host.address} {host.name}" for host in self.bed.hosts]
        (self.directory / "etc" / "hosts").write_text(
            "\n".join(["127.0.0.1 localhost", f"127.0.1.1 {self.name}", *names]) + "\n")

    # --------------------------------------------------------------------------------- power ---

    def boot(self):
        (self.directory / "up").unlink(missing_ok=True)
        with open(self.directory / "boot.log", "wb") as log:
            self.holder = subprocess.Popen(
                ["unshare", "--net", "--uts", "--ipc", "--mount", "--pid", "--fork",
                 "--kill-child", "--mount-proc", "sh", "-c", BOOT, "boot", str(self.directory),
                 self.name, self.address, self.address6, str(CHECKOUT)],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        until(lambda: first_child(self.holder.pid), f"{self.name} boots")
        self.pid = first_child(self.holder.pid)
        # The same MAC after every boot: the others remember it.
        run("ip", "link", "add", self.port, "netns", self.bed.switch.pid, "type", "veth", "peer",
            "name", "eth0", "address", f"02:13:00:00:00:{self.number:02x}", "netns", self.pid)
        self.bed.on_switch("ip", "link", "set", self.port, "master", "br0", "up")

    def wait_until_up(self):
        def is_up():
            assert self.holder.poll() is None, (self.directory / "boot.log").read_text()
            return (self.directory / "up").exists()

        until(is_up, f"{self.name} is up")

    def power_off(self):
        """Cut first: no last packet tells anybody."""
        self.cut()
        os.kill(self.pid, signal.SIGKILL)
        self.holder.wait(DEADLINE_S)
        self.bed.on_switch("ip", "link", "del", self.port, check=False)
        self.holder = None

    def cut(self):
        """The cable is still in, but nothing passes."""
        self.bed.on_switch("ip", "link", "set", self.port, "nomaster")

    def heal(self):
        self.bed.on_switch("ip", "link", "set", self.port, "master", "br0", "up")

    # ------------------------------------------------------------------------------- processes ---

    def inside(self, *command, user=USER, directory="/"):
        """The command line that runs something on this host. Of its process, the first child of
        the first is the command itself."""
        who = [] if user == "root" else ["setpriv", f"--reuid={USER_ID}", f"--regid={USER_ID}",
                                         "--clear-groups"]
        return ["nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p", "--wd=/", "--",
                *who, "env", "-C", str(directory), *map(str, command)]

    def processes(self):
        """What runs here beside the host itself: {pid: command line}."""
        found = {}
        if self.holder is None:
            return found
        own = os.readlink(f"/proc/{self.pid}/ns/pid")
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if not entry.name.isdigit() or os.readlink(entry / "ns" / "pid") != own:
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(
                    errors="replace").strip()
                state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
            except OSError:
                continue  # it ended while we looked
            if (int(entry.name) == self.pid or state == "Z" or line.startswith("sshd:")
                    or "/sshd -f " in line or line == "sleep 1000"):
                continue
            found[int(entry.name)] = line
        return found


class Testbed:
    """A launcher and `count` hosts."""

    def __init__(self, count):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="psd-testbed-"))
        self.directory.chmod(0o755)
        self.key = self.directory / "user_key"
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key)
        self.switch = None
        self.hosts = [Host(self, number) for number in range(count + 1)]
        try:
            self.start()
        except BaseException:
            self.remove()
            raise

    launcher = property(lambda self: self.hosts[0])

    def start(self):
        self.switch = subprocess.Popen(["unshare", "--net", "sleep", "infinity"],
                                       stdin=subprocess.DEVNULL, start_new_session=True)
        until(lambda: os.readlink(f"/proc/{self.switch.pid}/ns/net") !=
              os.readlink("/proc/self/ns/net"), "the switch")
        self.on_switch("ip", "link", "add", "br0", "type", "bridge", "forward_delay", "0")
        self.on_switch("ip", "link", "set", "br0", "up")
        for host in self.hosts:
            host.write_files()
        for host in self.hosts:
            host.boot()
        for host in self.hosts:
            host.wait_until_up()

    def on_switch(self, *command, check=True):
        return run("nsenter", "-t", self.switch.pid, "-n", "--", *command, check=check)

    def remove(self):
        for host in self.hosts:
            if host.holder is not None:
                if host.pid is not None:
                    with contextlib.suppress(ProcessLookupError):  # a host that did not come up
                        os.kill(host.pid, signal.SIGKILL)
                host.holder.kill()
                host.holder.wait(DEADLINE_S)
        if self.switch is not None:
            self.switch.kill()
            self.switch.wait(DEADLINE_S)
        shutil.rmtree(self.directory, ignore_errors=True)


def main():
    why = missing()
    if why is not None:
        sys.exit(f"hosts.py: {why}")
    bed = Testbed(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
    try:
        print(f"hosts: {' '.join(host.name for host in bed.hosts[1:])}; programs in "
              "/opt/poseidon/bin; exit takes everything away")
        subprocess.run(bed.launcher.inside("env", f"HOME=/home/{USER}", f"USER={USER}",
                                           "PATH=/opt/poseidon/bin:/usr/bin:/bin", "sh", "-i",
                                           directory=f"/home/{USER}"), check=False)
    finally:
        bed.remove()


if __name__ == "__main__":
    main()
