# SPDX-License-Identifier: Apache-2.0
"""What `make install` leaves: headers, libraries, programs and manuals that need no source tree."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from helpers import HERE, bin_directory, program, worker_environment

TREE = HERE.parents[1]


def build_directory():
    """The Meson build that the programs under test come from, or None."""
    directory = (bin_directory() / "psd_run").resolve().parent
    return directory if (directory / "build.ninja").exists() else None


pytestmark = [
    pytest.mark.skipif(build_directory() is None, reason="the programs are not in a Meson build"),
    pytest.mark.skipif(shutil.which("pkg-config") is None, reason="no pkg-config"),
]


class Prefix:
    """An installation below a directory that nothing else uses."""

    def __init__(self, directory):
        self.directory = directory
        run("meson", "install", "-C", build_directory(), "--no-rebuild", "--quiet",
            "--destdir", directory)
        (programs,) = directory.glob("**/bin")
        self.bin = programs
        self.root = programs.parent
        (self.pkgconfig,) = directory.glob("**/pkgconfig")
        self.lib = self.pkgconfig.parent
        self.environment = {**os.environ, "PKG_CONFIG_PATH": str(self.pkgconfig),
                            "PKG_CONFIG_SYSROOT_DIR": str(directory)}


def run(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                            timeout=300, check=False, **options)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    return Prefix(tmp_path_factory.mktemp("destdir"))


def test_only_public_headers_are_installed(prefix):
    """If this fails, people can include what we want to change tomorrow."""
    headers = sorted(path.relative_to(prefix.root).as_posix()
                     for path in prefix.root.glob("include/**/*.h"))
    assert headers == ["include/psd/elastic.h", "include/psd/psd.h", "include/psd/reader.h", "include/psd/status.h"]
    programs = sorted(path.name for path in prefix.bin.iterdir())
    assert programs == ["ps_master", "ps_server", "psd_run"]


EXTERNAL = TREE / "examples" / "external"


def copy_example(source, target):
    """What the example is made of. A job that was run there leaves logs, and a program that make
    would take for a new one."""
    for name in ("Makefile", "trainer.c"):
        shutil.copy(source / name, target)


def test_example_is_copied_as_it_was_written(tmp_path):
    """If this fails, whoever tried the example as the README says breaks the next `make test`."""
    used, target = tmp_path / "used", tmp_path / "target"
    shutil.copytree(EXTERNAL, used, dirs_exist_ok=True)
    target.mkdir()
    (used / "logs" / "poseidon_log_1").mkdir(parents=True, exist_ok=True)
    (used / "poseidon_run.log").touch()
    (used / "trainer").write_text("old")
    copy_example(used, target)
    assert sorted(path.name for path in target.iterdir()) == ["Makefile", "trainer.c"]


@pytest.mark.skipif(shutil.which("git") is None or not (TREE / ".git").exists(),
                    reason="not a git checkout")
@pytest.mark.parametrize("name", ["trainer", "logs/poseidon_log_1/master.log", "poseidon_run.log"])
def test_what_the_example_leaves_is_ignored(name):
    """If this fails, trying the example leaves files that somebody commits by mistake."""
    run("git", "check-ignore", f"examples/external/{name}", cwd=TREE)


@pytest.mark.parametrize("how", ["shared", "static"])
def test_program_outside_the_tree(prefix, start, tmp_path, how):
    """If this fails, nobody can build a worker against the installed library."""
    copy_example(EXTERNAL, tmp_path)
    run("make", "static" if how == "static" else "trainer", cwd=tmp_path, env=prefix.environment)
    linked = run("readelf", "-d", tmp_path / "trainer")
    assert ("libpsd.so.0" in linked) == (how == "shared")
    environment = {"LD_LIBRARY_PATH": str(prefix.lib)} if how == "shared" else {}
    job = start("--workers", 2, "--servers", 2, "--", tmp_path / "trainer", bin_path=prefix.bin,
                environment=environment)
    assert job.wait() == 0, job.stderr()
    assert job.stdout().count("y = 3.00 x + 1.00\n") == 2
    assert str(prefix.bin / "ps_server") in job.run_log()


def test_hello_as_cplusplus_and_c(prefix, start, tmp_path):
    """If this fails, the example of the manual does not compile elsewhere."""
    flags = run("pkg-config", "--cflags", "--libs", "psd", env=prefix.environment).split()
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", TREE / "examples" / "hello.c", "-o",
        tmp_path / "hello", *flags, f"-Wl,-rpath,{prefix.lib}")
    job = start("--workers", 3, "--", tmp_path / "hello", bin_path=prefix.bin)
    assert job.wait() == 0, job.stderr()
    assert job.stdout().count(": 30\n") == 3
    if shutil.which("c++"):
        program = tmp_path / "version.cc"
        program.write_text("#include <psd/psd.h>\n"
                           "int main() { return psd_version() == nullptr; }\n")
        run("c++", "-Wall", "-Wextra", "-Werror", program, "-o", tmp_path / "version", *flags,
            f"-Wl,-rpath,{prefix.lib}")
        run(tmp_path / "version")


@pytest.fixture
def make_install():
    """`make install` into a directory, from a copy of the build: another prefix links the programs anew, and while that
    lasts nobody can start them."""
    copy = TREE / f"build-install-{os.getpid()}"
    try:
        shutil.copytree(build_directory(), copy, symlinks=True)
        run("meson", "setup", "--reconfigure", copy, cwd=TREE)
        yield lambda *arguments: run("make", "-o", "setup", "-o", "build", "install", f"BUILD={copy}", *arguments, cwd=TREE)
    finally:
        shutil.rmtree(copy, ignore_errors=True)


@pytest.mark.parametrize("how", ["DESTDIR", "PREFIX"])
def test_hint_of_make_install_works(make_install, tmp_path, how):
    """If this fails, people paste what `make install` prints, and the compiler finds nothing."""
    root = tmp_path / "root"
    said = make_install(*((f"DESTDIR={root}", "PREFIX=/usr") if how == "DESTDIR"
                          else (f"PREFIX={root}",)))
    hint = "\n".join(re.findall(r"^    (export .*)$", said, re.MULTILINE))
    copy_example(EXTERNAL, tmp_path)
    bare = {name: value for name, value in os.environ.items()
            if not name.startswith("PKG_CONFIG") and name != "LD_LIBRARY_PATH"}
    flags = run("sh", "-ec", f"{hint}\npkg-config --cflags --libs psd", env=bare)
    assert f"-I{root}/" in flags and f"-L{root}/" in flags
    run("sh", "-ec", f"{hint}\nmake trainer\nldd ./trainer | grep 'libpsd.so.0 => {root}/'",
        cwd=tmp_path, env=bare)
    found = run("sh", "-ec", f"{hint}\ncommand -v psd_run; echo $MANPATH", env=bare)
    programs, manuals = found.split()
    assert programs.startswith(f"{root}/")
    assert (pathlib.Path(manuals.split(":")[0]) / "man1" / "psd_run.1").exists()


def test_versions_agree(prefix):
    """If this fails, the library and its pkg-config file tell different versions."""
    version = run("pkg-config", "--modversion", "psd", env=prefix.environment).strip()
    assert (prefix.lib / f"libpsd.so.{version}").exists()


@pytest.mark.parametrize("name", ["ps_master", "ps_server", "psd_bench", "psd_sim", "hello",
                                  "mnist"])
def test_programs_tell_their_version(prefix, name):
    """If this fails, nobody can say which version a report is about, or what a program is for."""
    version = run("pkg-config", "--modversion", "psd", env=prefix.environment).strip()
    assert run(program(name), "--version") == f"{name} {version}\n"
    assert name in run(program(name), "-h")


@pytest.mark.parametrize("page", ["psd_run.1", "ps_master.8", "ps_server.8", "psd_bench.1"])
def test_manuals(prefix, page):
    """If this fails, `man` shows nothing, or the page does not know an option of the program."""
    installed = page != "psd_bench.1"  # which measures a checkout
    path = (prefix.root / "share" / "man" / f"man{page[-1]}" if installed else TREE / "man") / page
    assert path.exists()
    manual = path.read_text().replace("\\-", "-")
    usage = run(prefix.bin / page[:-2] if installed else program(page[:-2]), "-h")
    options = set(re.findall(r"^ +(?:-\w, )?--(\w+)", usage, re.MULTILINE))
    if page == "psd_run.1":  # points to -h for the settings, all but this one
        settings = usage[usage.index("\nsettings"):]
        options -= set(re.findall(r"^ +--(\w+)", settings, re.MULTILINE)) - {"on_worker_death"}
    missing = {name for name in options if not re.search(rf"\b{name}\b", manual)}
    assert not missing
    if shutil.which("man"):
        result = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", path],
                                capture_output=True, text=True, check=False)
        assert (result.returncode, result.stderr) == (0, "")


def test_psdlib_matches_the_header(prefix, tmp_path):
    """If this fails, test workers in Python hand structures to libpsd that it reads differently."""
    script = ("import ctypes, psdlib\n"
              "for name, kind in psdlib.STRUCTS.items():\n"
              "    offsets = (f'{f[0]}@{getattr(kind, f[0]).offset}' for f in kind._fields_)\n"
              "    print(name, ctypes.sizeof(kind), *offsets)\n")
    said = run(sys.executable, "-c", script, env={**os.environ, **worker_environment()})
    lines = []
    for line in said.splitlines():
        name, _, *fields = line.split()
        prints = "".join(f'printf(" {field}@%zu", offsetof(struct {name}, {field}));'
                         for field in (word.split("@")[0] for word in fields))
        lines.append(f'printf("{name} %zu", sizeof(struct {name})); {prints} puts("");')
    program = tmp_path / "sizes.c"
    program.write_text("#include <stdio.h>\n#include <psd/psd.h>\nint main(void) {\n"
                       + "\n".join(lines) + "\nreturn 0; }\n")
    run("cc", "-I", prefix.root / "include", program, "-o", tmp_path / "sizes")
    assert run(tmp_path / "sizes") == said


def test_manual_of_the_cluster_file(prefix):
    """If this fails, a key of the cluster file can only be found in the source."""
    manual = (prefix.root / "share" / "man" / "man5" / "psd-cluster.json.5").read_text()
    source = "".join(path.read_text() for path in (TREE / "src" / "cluster").glob("cluster_*.c"))
    keys = set(re.findall(r'\{"(\w+)", JSON_', source))
    assert len(keys) > 15
    missing = {key for key in keys if not re.search(rf"\b{key}\b", manual)}
    assert not missing


def complete(prefix, *words):
    """What bash offers for the last of the words."""
    script = (f"source {prefix.root}/share/bash-completion/completions/psd_run; "
              f"COMP_WORDS=(psd_run \"$@\"); COMP_CWORD=$#; _psd_run; "
              "printf '%s\\n' \"${COMPREPLY[@]}\"")
    return run("bash", "-c", script, "bash", *words, env={
        **prefix.environment, "PATH": f"{prefix.bin}:{os.environ['PATH']}"}).split()


def test_completion(prefix):
    """If this fails, Tab offers nothing, or what psd_run does not know."""
    assert complete(prefix, "s") == ["show", "stop", "scale", "secret"]
    assert complete(prefix, "--clus") == ["--cluster_config"]
    assert complete(prefix, "--on_worker_death", "c") == ["continue"]
    assert complete(prefix, "logs", "--si") == ["--since"]
    assert "--heartbeat_ms" in complete(prefix, "--h")
