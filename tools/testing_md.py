#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Which test shows which promise: writes the last part of docs/testing.md from the tests' own comments.

A test says in its comment what is broken if it fails ("If this fails, ..."). The page repeats the first of those
sentences, file by file and topic by topic. What stands above the marker in docs/testing.md is written by hand.

    tools/testing_md.py            fails when the page is not what the tests say, or a test says nothing
    tools/testing_md.py --write    writes the page
"""
import argparse
import ast
import pathlib
import re
import subprocess
import sys
import textwrap

TREE = pathlib.Path(__file__).resolve().parents[1]
PAGE = TREE / "docs" / "testing.md"
MARKER = "<!-- From here on tools/testing_md.py writes this page. Change the comments of the tests instead. -->\n"
WIDTH = 100
SAYS = re.compile(r"\bIf this fails,\s+")

# A topic, and the folders whose tests are about it. The longest prefix wins.
TOPICS = [
    ("Leaf tools, settings, descriptions of machines", ["src/base", "src/config", "src/cluster", "src/metric"]),
    ("The bytes on the wire", ["src/wire", "src/codec"]),
    ("Transports and connections", ["src/transport", "src/rpc"]),
    ("Shared memory on one host", ["src/transport/shm", "src/transport/stream/shm", "src/transport/stream/carrier_shm"]),
    ("Placement, clocks, views, tables", ["src/shard", "src/clock", "src/view", "src/table"]),
    ("Kernels, update rules, initial values", ["src/store"]),
    ("Servers and the master", ["src/server", "src/master", "src/daemon"]),
    ("The client", ["src/client"]),
    ("The public API, against a whole job in one process", ["tests/embedded"]),
    ("Saved files", ["src/checkpoint"]),
    ("Security", ["src/secure"]),
    ("psd_run, piece by piece", ["src/launch"]),
    ("Whole jobs: real processes, killed, cut off, fed with nonsense", ["tests/cluster"]),
    ("The Python package", ["tests/python"]),
    ("PyTorch", ["tests/python/test_torch", "tests/python/test_tensors"]),
    ("TensorFlow, Keras, JAX", ["tests/python/test_tensorflow", "tests/python/test_written_for"]),
    ("Plain scripts, distributed as they are", ["tests/python/test_auto", "tests/python/test_witness"]),
    ("Simulated jobs and fuzzing", ["tests/sim", "tests/fuzz", "tests/world"]),
    ("Examples and benchmarks", ["examples", "bench"]),
]

COMMENT = re.compile(r"/\*((?:(?!\*/).)*)\*/", re.DOTALL)
C_TEST = re.compile(r"(?:/\*((?:(?!\*/).)*)\*/\n)?(?:static )?void\s+(test_\w+)\(void \*\*\w+\)\s*\{", re.DOTALL)


def flat(text):
    """The words of a comment, without the stars at the beginning of its lines."""
    return " ".join(re.sub(r"^\s*\*(?!\w)", "", text, flags=re.MULTILINE).split())


def first_sentence(text):
    """Up to the first full stop that ends one."""
    found = re.match(r"(.+?[.!?])(?=\s+[A-Z\"'`0-9(]|$)", text)
    return found.group(1) if found else text


def head(path, text):
    """What a file of tests is about: the first sentence of its first comment."""
    if path.suffix == ".py":
        return first_sentence(flat(ast.get_docstring(ast.parse(text)) or ""))
    comment = flat(COMMENT.search(text).group(1))
    return first_sentence(comment.partition(" - ")[2].partition(" SPDX-")[0])


def tests_of(path, text):
    """(name, its comment) of every test in a file, in the order in which they stand there."""
    if path.suffix == ".c":
        return [(test.group(2), flat(test.group(1) or "")) for test in C_TEST.finditer(text)]
    functions = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)]
    return [(node.name, flat(ast.get_docstring(node) or "")) for node in sorted(functions, key=lambda node: node.lineno)
            if node.name.startswith("test_")]


def listed(*patterns):
    """Files of the tree, also those that nobody has added yet."""
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns], cwd=TREE,
                           capture_output=True, text=True, check=True).stdout.split()
    return [TREE / name for name in sorted(set(names)) if (TREE / name).exists()]


def topic_of(name):
    """The heading under which a file belongs, or None."""
    matches = [(len(prefix), heading) for heading, prefixes in TOPICS for prefix in prefixes if name.startswith(prefix)]
    return max(matches)[1] if matches else None


def entry(name, text):
    """One line of a list, wrapped; what Markdown would take for its own is escaped."""
    said = re.sub(r"([*<|])", r"\\\1", text)
    return textwrap.fill(f"- `{name}`: {said}", WIDTH, subsequent_indent="  ", break_long_words=False,
                         break_on_hyphens=False)


def section(path, errors):
    """One file of tests: what it is about, then what each test shows."""
    name, text = str(path.relative_to(TREE)), path.read_text()
    lines = []
    for test, comment in tests_of(path, text):
        said = SAYS.split(comment, maxsplit=1)
        if len(said) < 2:
            errors.append(f"{name}: {test} does not say what is broken \"If this fails, ...\"")
            continue
        lines.append(entry(test, first_sentence(said[1])))
    if not lines:
        return None
    about = textwrap.fill(f"**[{name}](../{name})**: {head(path, text)}", WIDTH, break_long_words=False,
                          break_on_hyphens=False)
    return about + "\n\n" + "\n".join(lines) + "\n"


def planted_bugs():
    """The first line of every patch, and who catches it."""
    lines = []
    for path in listed("tests/sim/bugs/*.patch"):
        what, caught = path.read_text().split("\n")[:2]
        lines.append(entry(path.stem, f"{what} ({caught.replace('Caught by: ', 'by ')})"))
    return ("Planted bugs (`tests/sim/bugs`): each patch breaks the code, and `tests/sim/check_bugs.sh` fails unless the\n"
            "test named in brackets sees it.\n\n" + "\n".join(lines) + "\n")


def kept_plans():
    """The first comment of every plan."""
    lines = []
    for path in listed("tests/sim/plans/*.plan"):
        said = " ".join(line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#"))
        lines.append(entry(path.stem, first_sentence(said)))
    return "Kept jobs (`tests/sim/plans`): each failed once, and is run by `meson test --suite sim`.\n\n" + \
        "\n".join(lines) + "\n"


def fuzz_targets():
    """What every target of fuzzing reads."""
    lines = [entry(path.stem, head(path, path.read_text())) for path in listed("tests/fuzz/fuzz_*.c")]
    return "Fuzz targets (`tests/fuzz`): no input may crash, hang or leak.\n\n" + "\n".join(lines) + "\n"


def anchor(heading):
    """As GitHub makes it of a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def generated(errors):
    """Everything behind the marker."""
    chapters = {heading: [] for heading, _ in TOPICS}
    for path in listed("*_test.c", "tests/**/test_*.py"):
        name = str(path.relative_to(TREE))
        heading = topic_of(name)
        if heading is None:
            errors.append(f"{name}: no topic of tools/testing_md.py has this folder")
            continue
        written = section(path, errors)
        if written:
            chapters[heading].append(written)
    chapters["Simulated jobs and fuzzing"] += [planted_bugs(), kept_plans(), fuzz_targets()]
    contents = "\n".join(f"- [{heading}](#{anchor(heading)})" for heading, sections in chapters.items() if sections)
    body = "\n".join(f"### {heading}\n\n" + "\n".join(sections) for heading, sections in chapters.items() if sections)
    return f"\n{contents}\n\n{body}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the page instead of comparing it")
    args = parser.parse_args()
    errors = []
    before = PAGE.read_text()
    if before.count(MARKER) != 1:
        sys.exit(f"{PAGE}: the marker is missing, or there twice: {MARKER}")
    after = before[:before.index(MARKER)] + MARKER + generated(errors)
    if errors:
        sys.exit("\n".join(errors))
    if args.write:
        PAGE.write_text(after)
    elif after != before:
        sys.exit("docs/testing.md is not what the comments of the tests say: run tools/testing_md.py --write")


if __name__ == "__main__":
    main()
