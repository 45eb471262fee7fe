# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel of the Python package (PEP 517), with nothing but Python's own library.

The wheel carries libpsd and the programs as `meson install` leaves them, so nobody who installs it needs
a compiler, and the small libraries that a bare machine may lack. OpenSSL is the system's: its
security updates are, too; so is GnuTLS, under libmicrohttpd. PSD_WHEEL_BUILD names the Meson build (default: build/ of the tree)."""

import base64
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import zipfile

TREE = pathlib.Path(__file__).resolve().parents[1]
PACKAGE = TREE / "python" / "poseidon"
PROGRAMS = ("psd_run", "ps_master", "ps_server")
CARRIED = ("libjansson.so", "libseccomp.so")
LOADED = "libmicrohttpd.so.12"  # when a page is opened, so ldd does not know
# Zip files know no time before 1980; one time for all makes equal trees give equal wheels.
WHEN = (1980, 1, 1, 0, 0, 0)


def project():
    """What pyproject.toml says: the few fields that are used here."""
    import tomllib  # of Python 3.11; only building needs it

    return tomllib.loads((TREE / "pyproject.toml").read_text())["project"]


def version():
    (found,) = re.findall(r'^__version__ = "(.+)"$', (PACKAGE / "_version.py").read_text(), re.M)
    (built,) = re.findall(r"^  version: '(.+)',$", (TREE / "meson.build").read_text(), re.M)
    if found != built:
        sys.exit(f"wheel: python/poseidon/_version.py says {found}, meson.build {built}")
    return found


def tag():
    platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    return f"py3-none-{platform}"


def metadata():
    fields = project()
    lines = ["Metadata-Version: 2.1", f"Name: {fields['name']}", f"Version: {version()}",
             f"Summary: {fields['description']}", f"License: {fields['license']}",
             f"Requires-Python: {fields['requires-python']}"]
    lines += [f"Requires-Dist: {need}" for need in fields["dependencies"]]
    lines += ["Description-Content-Type: text/markdown", "", ""]
    return "\n".join(lines) + (TREE / "docs" / "python.md").read_text()


def entry_points():
    scripts = project()["scripts"]
    return "[console_scripts]\n" + "".join(f"{name} = {goal}\n" for name, goal in scripts.items())


class Wheel:
    """A wheel being written. Every file is listed with its digest in RECORD, which comes last."""

    def __init__(self, directory, tag_):
        self.name = f"poseidon-{version()}-{tag_}.whl"
        self.info = f"poseidon-{version()}.dist-info"
        self.zip = zipfile.ZipFile(pathlib.Path(directory) / self.name, "w", zipfile.ZIP_DEFLATED)
        self.record = []

    def add(self, name, content, mode=0o644):
        content = content.encode() if isinstance(content, str) else content
        entry = zipfile.ZipInfo(name, WHEN)
        entry.external_attr = (0o100000 | mode) << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        self.zip.writestr(entry, content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        self.record.append(f"{name},sha256={digest},{len(content)}\n")

    def close(self, tag_):
        self.add(f"{self.info}/METADATA", metadata())
        self.add(f"{self.info}/entry_points.txt", entry_points())
        self.add(f"{self.info}/licenses/LICENSE", (TREE / "LICENSE").read_bytes())
        self.add(f"{self.info}/WHEEL", "Wheel-Version: 1.0\nGenerator: poseidon\n"
                 f"Root-Is-Purelib: false\nTag: {tag_}\n")
        self.record.append(f"{self.info}/RECORD,,\n")
        self.zip.writestr(zipfile.ZipInfo(f"{self.info}/RECORD", WHEN), "".join(self.record))
        self.zip.close()
        return self.name


def install(build, root):
    """`meson install` below `root`: without the symbols that only debuggers want."""
    if not (build / "build.ninja").exists():
        sys.exit(f"wheel: {build} is not built: run make first")
    # pip hides the packages of the system from what it starts; Meson is one of them.
    environment = {name: value for name, value in os.environ.items()
                   if not name.startswith("PYTHON")}
    subprocess.run(["meson", "install", "-C", build, "--no-rebuild", "--quiet", "--strip",
                    "--destdir", root], check=True, stdout=subprocess.DEVNULL, env=environment)
    (programs,) = root.glob("**/bin/psd_run")
    (library,) = (path for path in root.glob("**/libpsd.so.0") if path.exists())
    return programs.parent, library


def needed(program):
    """The libraries that we carry, as the loader finds them here: their names and files."""
    said = subprocess.run(["ldd", program], check=True, capture_output=True, text=True).stdout
    for name, path in re.findall(r"^\s*(\S+) => (/\S+)", said, re.M):
        if name.startswith(CARRIED):
            yield name, pathlib.Path(path)


def loaded():
    """What psd_run loads when it needs it: name and file, or nothing where this machine has none."""
    said = subprocess.run(["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False).stdout
    found = re.search(rf"^\s*{re.escape(LOADED)} .* => (/\S+)$", said, re.M)
    return {LOADED: pathlib.Path(found[1])} if found else {}


def copyright_of(library):
    """Debian's statement for the package of a file."""
    said = subprocess.run(["dpkg", "-S", library.resolve()], capture_output=True, text=True,
                          check=False).stdout
    package = said.split(":")[0]
    path = pathlib.Path("/usr/share/doc") / package / "copyright"
    return path.read_bytes() if package and path.exists() else None


def refuse_without_charts(psd_run):
    """A build that found no uPlot works, and nobody would look at its page before it is used elsewhere."""
    if b".uplot" not in psd_run.read_bytes() and os.environ.get("PSD_WHEEL_WITHOUT_CHARTS") != "1":
        sys.exit("wheel: not made: psd_run was built without its library of charts, and its page would show no curves. 'make setup', "
                 "with a network, fetches it (uPlot); then build again. PSD_WHEEL_WITHOUT_CHARTS=1 makes a wheel without.")


def add_native(wheel, build):
    with tempfile.TemporaryDirectory(prefix="psd_wheel.") as directory:
        programs, library = install(build, pathlib.Path(directory))
        wheel.add("poseidon/_native/lib/libpsd.so.0", library.read_bytes(), 0o755)
        for header in sorted((TREE / "include" / "psd").glob("*.h")):  # for what is compiled later
            wheel.add(f"poseidon/_native/include/psd/{header.name}", header.read_bytes())
        refuse_without_charts(programs / "psd_run")
        carried = {}
        for name in PROGRAMS:
            wheel.add(f"poseidon/_native/bin/{name}", (programs / name).read_bytes(), 0o755)
            carried.update(needed(programs / name))
    charts = TREE / ".uplot" / "LICENSE"  # what the build embeds comes from there
    if charts.exists():
        wheel.add(f"{wheel.info}/licenses/uPlot.LICENSE", charts.read_bytes())
    carried.update(loaded())
    for name, path in sorted(carried.items()):
        wheel.add(f"poseidon/_native/lib/{name}", path.read_bytes(), 0o755)
        statement = copyright_of(path)
        if statement is not None:
            wheel.add(f"{wheel.info}/licenses/{name}.copyright", statement)
        for license_ in sorted(set(re.findall(rb"/common-licenses/(LGPL[-.\d]*\d)", statement or b""))):
            text = pathlib.Path("/usr/share/common-licenses") / license_.decode()
            wheel.add(f"{wheel.info}/licenses/{name}.{text.name}", text.read_bytes())


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517."""
    del config_settings, metadata_directory
    wheel = Wheel(wheel_directory, tag())
    for path in sorted(PACKAGE.rglob("*")):
        inside = path.relative_to(PACKAGE.parent)
        if path.suffix in (".py", ".c", ".h") or path.name == "py.typed":
            wheel.add(inside.as_posix(), path.read_bytes())
    add_native(wheel, pathlib.Path(os.environ.get("PSD_WHEEL_BUILD", TREE / "build")))
    return wheel.close(tag())


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 660: the tree itself, and the programs of its build/."""
    del config_settings, metadata_directory
    wheel = Wheel(wheel_directory, "py3-none-any")
    wheel.add("poseidon.pth", f"{PACKAGE.parent}\n")
    return wheel.close("py3-none-any")


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517 wants it to exist."""
    raise NotImplementedError("poseidon has no source distribution: clone the repository")


if __name__ == "__main__":
    target = pathlib.Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    print(target / build_wheel(target))
