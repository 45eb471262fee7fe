# SPDX-License-Identifier: Apache-2.0
"""A Slurm cluster on the hosts of hosts.py: slurmctld on the launcher, slurmd on every host, and a
munged on each of them. It goes with its hosts.

By hand, as root:

    python3 tests/testbed/slurm.py 4          a shell on the launcher; sbatch, salloc and srun work"""

import os
import pathlib
import secrets
import shutil
import subprocess
import sys

import hosts

CPUS = 4  # that every node claims to have
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

CONFIG = """\
ClusterName=testbed
SlurmctldHost=launcher({address})
SlurmctldPort=17000
SlurmdPort=17001
SrunPortRange=17100-17999
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=3
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool.%n
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile={directory}/slurmctld.log
SlurmdLogFile={directory}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=15
MessageTimeout=60
InactiveLimit=0
KillWait=10
MinJobAge=10
MpiDefault=none
MpiParams=ports=18000-18999
JobRequeue=1
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def missing():
    """Why there can be no Slurm here; None: there can."""
    for name in ("munged", "slurmctld", "slurmd", "srun", "sbatch"):
        if shutil.which(name, path=PATH) is None:
            return f"{name} is not installed (tools/setup.sh test)"
    return hosts.missing()


class Slurm:
    """The cluster. `shared` is a directory of the user that all hosts see."""

    def __init__(self, bed):
        self.bed = bed
        self.directory = bed.directory / "slurm"
        self.directory.mkdir()
        self.shared = bed.directory / "shared"
        self.shared.mkdir()
        os.chown(self.shared, hosts.USER_ID, hosts.USER_ID)
        self.config = self.directory / "slurm.conf"
        self.key = self.directory / "munge.key"
        self.key.touch(0o600)
        self.key.write_bytes(secrets.token_bytes(128))
        self.write_config()
        self.daemon(bed.launcher, "munged")
        self.daemon(bed.launcher, "slurmctld", "-D", "-c", "-f", self.config)
        for host in bed.hosts[1:]:
            self.add(host)
        self.wait_until_ready()

    def write_config(self):
        (self.directory / "state").mkdir()
        nodes = [f"NodeName={host.name} NodeAddr={host.address} CPUs={CPUS} RealMemory=1000 "
                 "State=UNKNOWN" for host in self.bed.hosts[1:]]
        # Nothing here uses control groups, but slurmd looks for them, and version 2 it wants from systemd.
        (self.directory / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        self.config.write_text(CONFIG.format(directory=self.directory, nodes="\n".join(nodes),
                                             address=self.bed.launcher.address))

    def daemon(self, host, name, *arguments):
        """Starts a daemon on a host; with the host it ends."""
        words = [name, *arguments]
        if name == "munged":
            files = self.directory / f"munge.{host.name}"
            words = ["sh", "-c", "mkdir -p -m 755 /run/munge && exec munged --foreground "
                     f"--num-threads=2 --key-file={self.key} --log-file={files}.log "
                     f"--seed-file={files}.seed --pid-file=/run/munge/munged.pid"]
        with open(self.directory / f"{name}.{host.name}.out", "ab") as out:
            subprocess.Popen(host.inside("env", "-i", f"PATH={PATH}", *words, user="root"),
                             stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                             start_new_session=True)
        if name == "munged":
            hosts.until(lambda: self.run("munge", "-n", host=host, check=False).returncode == 0,
                        f"munged on {host.name}")

    def add(self, host):
        """A host that has just booted becomes a node again."""
        self.daemon(host, "munged")
        (self.directory / f"spool.{host.name}").mkdir(exist_ok=True)
        self.daemon(host, "slurmd", "-D", "-f", self.config, "-N", host.name)

    def is_ready(self):
        """Every node is idle: what was before is over."""
        found = self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False)
        return len(set(found.stdout.split())) == len(self.bed.hosts) - 1

    def wait_until_ready(self):
        hosts.until(self.is_ready, "all nodes are idle")

    # ------------------------------------------------------------------------------- commands ---

    def variables(self, **more):
        return {"HOME": f"/home/{hosts.USER}", "USER": hosts.USER, "LANG": "C.UTF-8",
                "PATH": f"/opt/poseidon/bin:{PATH}", "SLURM_CONF": self.config, **more}

    def inside(self, *command, host=None, environment=None, directory=None):
        """The command line that runs something as the user, on the launcher or a host."""
        variables = self.variables(**(environment or {}))
        return (host or self.bed.launcher).inside(
            "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *command,
            directory=directory or self.shared)

    def run(self, *command, host=None, check=True, environment=None, directory=None):
        return hosts.run(*self.inside(*command, host=host, environment=environment,
                                      directory=directory), check=check)

    def processes(self):
        """What runs on the hosts beside the cluster itself: {host: {pid: command line}}."""
        daemons = ("munged ", "slurmctld ", "slurmd ", ": slurmscriptd",
                   "sh -c mkdir -p -m 755 /run/munge")
        found = {}
        for host in self.bed.hosts:
            left = {pid: line for pid, line in host.processes().items()
                    if line and not line.startswith(daemons)}
            if left:
                found[host.name] = left
        return found

    def logs(self):
        """The last lines of its daemons, for a test that failed."""
        return "\n".join(f"{path.name}:\n{path.read_text(errors='replace')[-1500:]}"
                         for path in sorted(self.directory.glob("slurm*.log")))


def main():
    why = missing()
    if why is not None:
        sys.exit(f"slurm.py: {why}")
    bed = hosts.Testbed(int(sys.argv[1]) if len(sys.argv) > 1 else 4)
    try:
        slurm = Slurm(bed)
        print(f"nodes: {' '.join(host.name for host in bed.hosts[1:])}; {slurm.shared} is shared; "
              "exit takes everything away")
        subprocess.run(slurm.inside("sh", "-i"), check=False)
    finally:
        bed.remove()


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main()
