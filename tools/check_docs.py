#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Do the files, functions and options that the documentation names still exist?

Looked at is what stands in backquotes, in README.md, CONTRIBUTING.md, SECURITY.md and docs/*.md:
  - `src/clock/clock.h`, `clock/clock.h`, `clock.h`: a file of the tree, by the end of its path;
  - `psi_clock_admit`, `psi_clock_admit()`, `PSI_FRAME_MAP`: a word of the sources;
  - `clock.c` `psi_clock_admit`: a word right behind a file must be in that very file; so must every word behind a file
    of the same item in docs/extending.md, and in the numbered lists of docs/architecture.md;
  - every folder of src/ that holds sources has a row in a table of docs/architecture.md.

    tools/check_docs.py            fails, and names page, line and name
"""
import pathlib
import re
import subprocess
import sys

TREE = pathlib.Path(__file__).resolve().parents[1]
SUFFIXES = ("c", "h", "py", "sh", "md", "json", "build", "patch", "plan", "pml", "svg", "in")
FILE = re.compile(r"^(?:[\w.-]+/)*[\w.-]*\.(?:%s)$" % "|".join(SUFFIXES))
FOLDER = re.compile(r"^(?:src|tests|python|include|tools|bench|examples|docs|man)(?:/[\w.-]+)+/?$")
WORD = re.compile(r"^[A-Za-z]\w*_\w*(?:\(\))?$|^[a-z]\w*\(\)$")
ANY_WORD = re.compile(r"^\w+(?:\(\))?$")
PLACEHOLDER = re.compile(r"(?:^|[/_])(?:NAME|KIND)\b")
QUOTED = re.compile(r"`([^`\n]+)`")
# Names that are examples, made by programs, or other people's.
FOREIGN = {
    "cluster.json", "result.json", "train.py", "main.py",
    "job.sh", "chief.json", "worker_0.json", "ps.json", "ps_0.json", "bench/results/latest.jsonl",
    "collate_fn", "decay_steps", "experimental_run_tf_function", "fit_generator", "num_input_tokens_seen",
}


def listed():
    """Files of the tree, also those that nobody has added yet."""
    names = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=TREE,
                           capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in names if (TREE / name).is_file()]


class Tree:
    """What there is to be named."""

    def __init__(self):
        self.files = listed()
        self.texts = {}
        self.words = set()
        for name in self.files:
            if name.startswith(("docs/", "tests/fuzz/corpus/")) or name in ("README.md", "CHANGELOG.md"):
                continue
            self.words |= self.words_of(name) | {pathlib.PurePath(name).stem}
        self.ends = {word.partition("_ERR_")[2] or word.partition("_OUTCOME_")[2] for word in self.words}

    def words_of(self, name):
        """All identifiers of a file."""
        if name not in self.texts:
            try:
                self.texts[name] = set(re.findall(r"\w+", (TREE / name).read_text()))
            except UnicodeDecodeError:
                self.texts[name] = set()
        return self.texts[name]

    def find(self, name):
        """The files whose path ends in this name; that of the whole path comes alone."""
        return [name] if name in self.files else [file for file in self.files if file.endswith("/" + name)]

    def has_folder(self, name):
        """Is it a folder, or a file without an ending that we know?"""
        return (TREE / name).exists() or any(f"/{name.rstrip('/')}/" in f"/{file}" for file in self.files)


def items(text):
    """(line number, item): paragraphs, rows and list items, each as one piece."""
    piece, first, fenced = [], 0, False
    for number, line in enumerate(text.splitlines() + [""], 1):
        if line.startswith("```"):
            fenced = not fenced
            line = ""
        begins = fenced or not line.strip() or re.match(r"\s*(?:[-|]|\d+\.)\s*", line)
        if begins and piece:
            yield first, " ".join(piece)
            piece = []
        if fenced or not line.strip() or line.startswith("    "):
            continue
        if not piece:
            first = number
        piece.append(line)


def check(page, tree):
    """What the page names and nobody has."""
    strict_page = page.name == "extending.md"
    for number, item in items(page.read_text()):
        strict = strict_page or (page.name == "architecture.md" and re.match(r"\d+\. ", item))
        file, file_end = None, 0
        for quoted in QUOTED.finditer(item):
            name = quoted.group(1)
            if name in FOREIGN or PLACEHOLDER.search(name):
                continue
            if FILE.match(name):
                found = tree.find(name)
                if not found:
                    yield f"{page.relative_to(TREE)}:{number}: no file {name}"
                elif strict and len(found) > 1:
                    yield f"{page.relative_to(TREE)}:{number}: {name} could be {' or '.join(found)}"
                file, file_end = found[0] if len(found) == 1 else None, quoted.end()
            elif FOLDER.match(name):
                if not tree.has_folder(name):
                    yield f"{page.relative_to(TREE)}:{number}: no folder {name}"
            elif WORD.match(name) or (strict and file is not None and ANY_WORD.match(name)):
                word = name.removesuffix("()")
                if file is not None and (strict or not item[file_end:quoted.start()].strip()):
                    if word not in tree.words_of(file):
                        yield f"{page.relative_to(TREE)}:{number}: no {word} in {file}"
                elif word not in tree.words | tree.ends:
                    yield f"{page.relative_to(TREE)}:{number}: nothing is called {word}"


def rooms_without_a_sentence(tree):
    """Folders of src/ that no table of docs/architecture.md has a row for; `text` of psd_run's table is launch/text."""
    cells = re.findall(r"^\| ([\w/, ]+?) \|", (TREE / "docs" / "architecture.md").read_text(), re.MULTILINE)
    told = {name for cell in cells for name in cell.split(", ")}
    rooms = {pathlib.PurePath(file).parent.as_posix() for file in tree.files if re.match(r"src/.*\.c$", file)}
    for room in sorted(room.removeprefix("src/") for room in rooms):
        if not {room, room.removeprefix("launch/")} & told:
            yield f"docs/architecture.md: not a word about src/{room}"


def main():
    tree = Tree()
    pages = [TREE / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")] + sorted((TREE / "docs").glob("*.md"))
    wrong = [line for page in pages for line in check(page, tree)] + list(rooms_without_a_sentence(tree))
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
