# SPDX-License-Identifier: Apache-2.0
"""Which TensorFlow a script was written for, by its source: such scripts get version 1's names.

A name is old when tf.compat.v1 has it and TensorFlow itself has not: no list of them is kept here. A
wrong guess would break a script that runs today, so a name counts

    always      where it is used for certain: outside of functions, of conditions, of try
    otherwise   if something calls the function around it, and nothing tells that the script knows
                version 2: names that only that has, tapes, Keras's fit, a look at the version

Modules of the script's own are read as it is, as far as it imports them."""

from __future__ import annotations

import ast
import dataclasses
import importlib.machinery
import os
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

_FILES_MAX = 200
_BYTES_MAX = 2 << 20
# What left TensorFlow altogether: --auto tf1 brings some of it back, and names the rest.
_LEFT = ("contrib", "layers")
# Lazy modules, the same in both versions: not to be loaded by looking.
_ALIKE = ("keras", "compat", "estimator", "lite")
_OF_VERSION_2 = ("function", "GradientTape")
_SWITCHES = ("disable_v2_behavior", "disable_eager_execution")
_VERSIONS = ("__version__", "VERSION")
_CAUGHT = {"AttributeError", "ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


class Old(NamedTuple):
    """A name of version 1, and where the script uses it."""

    name: str
    file: str
    line: int


@dataclasses.dataclass(frozen=True)
class _Place:
    """Where a piece of source stands."""

    certain: bool = True  # it runs when the script does
    guarded: bool = False  # the script has looked whether it can
    owner: str | None = None  # the outermost function or class around it


@dataclasses.dataclass
class _Evidence:
    """All that the files of a script show."""

    certain: list[Old] = dataclasses.field(default_factory=list)
    possible: list[tuple[Old, str | None]] = dataclasses.field(default_factory=list)
    knows_version_2: bool = False
    mentioned: set[str] = dataclasses.field(default_factory=set)  # names that are used anywhere

    def verdict(self) -> Old | None:
        if self.certain:
            return self.certain[0]
        if self.knows_version_2 or {"keras", "fit"} <= self.mentioned:
            return None  # version 1's names would take Keras away from it
        return next((old for old, owner in self.possible
                     if owner is None or owner in self.mentioned), None)


class _Names:
    """Which names exist, asked of the TensorFlow that is here."""

    def __init__(self, tensorflow: Any, version_1: Any) -> None:
        self._tensorflow, self._version_1 = tensorflow, version_1

    def is_old(self, path: tuple[str, ...]) -> bool:
        if not path or path[0] in _ALIKE:
            return False
        if path[0] in _LEFT or path[:2] == ("examples", "tutorials"):
            return True
        return _depth(self._version_1, path) > _depth(self._tensorflow, path)

    def is_new(self, path: tuple[str, ...]) -> bool:
        if not path or path[0] in _ALIKE:
            return False
        return path[0] in _OF_VERSION_2 or \
            _depth(self._tensorflow, path) > _depth(self._version_1, path)


def _depth(module: Any, path: Iterable[str]) -> int:
    """How many of the names lead somewhere."""
    count = 0
    for name in path:
        try:
            module = getattr(module, name)
        except Exception:  # pylint: disable=broad-exception-caught; a lazy module may raise anything
            break
        count += 1
    return count


def _tensorflow_path(module: str) -> tuple[str, ...] | None:
    """("compat", "v1") of tensorflow.compat.v1; None: it is something else."""
    first, *rest = module.split(".")
    return tuple(rest) if first == "tensorflow" else None


def _meanings(tree: ast.AST) -> dict[str, tuple[str, ...]]:
    """What names of a file stand for in TensorFlow. Those with two meanings are left out: the file
    chooses between versions itself."""
    found: dict[str, set[tuple[str, ...] | None]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for each in node.names:
                path = _tensorflow_path(each.name)
                whole = () if path is not None and each.asname is None else path
                found.setdefault(each.asname or each.name.split(".")[0], set()).add(whole)
        elif isinstance(node, ast.ImportFrom):
            path = _tensorflow_path(node.module or "") if node.level == 0 else None
            for each in node.names:
                meaning = None if path is None else (*path, each.name)
                found.setdefault(each.asname or each.name, set()).add(meaning)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, set()).add(None)
        elif isinstance(node, ast.arg):
            found.setdefault(node.arg, set()).add(None)
    return {name: path for name, paths in found.items() if len(paths) == 1
            for path in paths if path is not None}


def _chain(node: ast.AST) -> tuple[str, ...]:
    """("tf", "app", "flags") of tf.app.flags; (): it begins with something else than a name."""
    path: list[str] = []
    while isinstance(node, ast.Attribute):
        path.insert(0, node.attr)
        node = node.value
    return (node.id, *path) if isinstance(node, ast.Name) else ()


def _mentions(tree: ast.AST, words: Iterable[str]) -> bool:
    return any(isinstance(node, ast.Name) and node.id in words or
               isinstance(node, ast.Attribute) and node.attr in words for node in ast.walk(tree))


def _asks_version(tree: ast.AST, meanings: Iterable[str]) -> bool:
    """tf.__version__, tf.version.VERSION, hasattr(tf, ...)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _VERSIONS:
            asked = node
        elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Name) and \
                node.func.id in ("hasattr", "getattr"):
            asked = node.args[0]
        else:
            continue
        if _chain(asked)[:1] and _chain(asked)[0] in meanings:
            return True
    return False


def _named_versions(tree: ast.AST, meanings: Iterable[str]) -> set[str]:
    """Names that tell of a version: `IS_1 = tf.__version__ < "2"`."""
    return {target.id for node in ast.walk(tree) if isinstance(node, ast.Assign)
            and _asks_version(node.value, meanings) for target in node.targets
            if isinstance(target, ast.Name)}


def _catches(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or _mentions(handler.type, _CAUGHT)


class _Reader(ast.NodeVisitor):
    """One file."""

    def __init__(self, file: str, is_main: bool, place: _Place, tree: ast.AST, names: _Names,
                 evidence: _Evidence) -> None:
        self._file, self._is_main, self._place = file, is_main, place
        self._names, self._evidence = names, evidence
        self._meanings = _meanings(tree)
        self._versions = _named_versions(tree, self._meanings)
        self.imports: list[tuple[str, int, bool]] = []  # module, level, certain

    def _at(self, nodes: Iterable[ast.AST | None], **changes: Any) -> None:
        before = self._place
        self._place = dataclasses.replace(before, **changes)
        for node in nodes:
            if node is not None:
                self.visit(node)
        self._place = before

    def _see(self, path: tuple[str, ...], node: ast.AST) -> None:
        if self._place.guarded:
            return
        if self._names.is_old(path):
            old = Old(".".join(("tf", *path[:2])), self._file, node.lineno)
            if self._place.certain:
                self._evidence.certain.append(old)
            else:
                self._evidence.possible.append((old, self._place.owner))
        elif self._names.is_new(path) or path[-1:] and path[-1] in _SWITCHES:
            self._evidence.knows_version_2 = True

    def visit_Name(self, node: ast.Name) -> None:
        self._evidence.mentioned.add(node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self._evidence.mentioned.add(node.attr)
        name, *path = _chain(node) or ("",)
        if name in self._meanings:
            self._evidence.mentioned.update(path)
            self._see((*self._meanings[name], *path), node)
        else:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        for each in node.names:
            path = _tensorflow_path(each.name)
            self._evidence.mentioned.update(each.name.split("."))
            if path is None:
                self.imports.append((each.name, 0, self._runs()))
            else:
                self._see(path, node)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        path = _tensorflow_path(node.module or "") if node.level == 0 else None
        self._evidence.mentioned.update((node.module or "").split("."))
        if path is not None:
            for each in node.names:
                self._see((*path, each.name), node)
            return
        module = node.module or ""
        for name in (module, *(f"{module}.{each.name}".lstrip(".") for each in node.names)):
            if name:
                self.imports.append((name, node.level, self._runs()))

    def _runs(self) -> bool:
        return self._place.certain and not self._place.guarded

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._at([*node.decorator_list, *node.args.defaults, *node.args.kw_defaults, node.returns])
        self._at(node.body, certain=False, owner=self._place.owner or node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._at([node.body], certain=False)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._at([*node.decorator_list, *node.bases])
        self._at(node.body, owner=self._place.owner or node.name)

    def visit_If(self, node: ast.If | ast.IfExp) -> None:
        branches = [node.body, node.orelse]
        body, other = (each if isinstance(each, list) else [each] for each in branches)
        self.visit(node.test)
        if _asks_version(node.test, self._meanings) or _mentions(node.test, self._versions):
            self._evidence.knows_version_2 = True
            self._at([*body, *other], guarded=True)
        elif _mentions(node.test, ("__name__",)):
            self._at(body, guarded=self._place.guarded or not self._is_main)
            self._at(other, guarded=True)
        else:
            self._at([*body, *other], certain=False)

    visit_IfExp = visit_If

    def visit_Try(self, node: ast.Try) -> None:
        caught = any(map(_catches, node.handlers))
        self._at(node.body, guarded=self._place.guarded or caught)
        self._at(node.handlers, guarded=True)
        self._at([*node.orelse, *node.finalbody])


def _libraries() -> tuple[str, ...]:
    """Directories of what is not the script's own."""
    found = {os.path.realpath(path) for name, path in sysconfig.get_paths().items()
             if name in ("stdlib", "platstdlib", "purelib", "platlib")}
    return tuple(path + os.sep for path in sorted(found))


def _is_own(file: str, libraries: tuple[str, ...]) -> bool:
    return os.path.isfile(file) and \
        not os.path.realpath(file).startswith(libraries) and \
        not {"site-packages", "dist-packages"} & set(file.split(os.sep))


def _files_of(module: str, places: list[str] | None) -> Iterator[str]:
    """The files that importing a module runs, packages first. Nothing is imported."""
    name = ""
    for part in module.split("."):
        name = f"{name}.{part}".lstrip(".")
        try:
            spec = importlib.machinery.PathFinder.find_spec(name, places)
        except (ImportError, ValueError, AttributeError):
            return
        if spec is None:
            return
        if spec.origin is not None and spec.origin.endswith(".py"):
            yield spec.origin
        places = list(spec.submodule_search_locations or [])


def _parse(file: str) -> ast.AST | None:
    try:
        with open(file, "rb") as source:
            return ast.parse(source.read(_BYTES_MAX), file)
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # Python itself will say what is wrong with it


def find_version_1(scripts: Iterable[str], tensorflow: Any, version_1: Any) -> Old | None:
    """What shows that a script was written for version 1; None: nothing does."""
    names, evidence, libraries = _Names(tensorflow, version_1), _Evidence(), _libraries()
    scripts = list(scripts)
    waiting = [(script, True, True) for script in scripts]
    seen: dict[str, bool] = {}  # file: was it read as one that runs for certain?
    while waiting and len(seen) < _FILES_MAX:
        file, is_main, certain = waiting.pop(0)
        key = os.path.realpath(file)
        if seen.get(key, False) or key in seen and not certain or not _is_own(file, libraries):
            continue
        seen[key] = certain
        tree = _parse(file)
        if tree is None:
            continue
        reader = _Reader(file, is_main, _Place(certain=certain), tree, names, evidence)
        reader.visit(tree)
        for module, level, runs in reader.imports:
            places = [os.path.join(os.path.dirname(os.path.abspath(file)), *[".."] * (level - 1))] \
                if level > 0 else None
            waiting += [(each, False, certain and runs) for each in _files_of(module, places)]
    return evidence.verdict()


def is_old(path: Iterable[str], tensorflow: Any, version_1: Any) -> bool:
    """Whether only version 1 has tf.PATH."""
    return _Names(tensorflow, version_1).is_old(tuple(path))


def own_scripts() -> list[str]:
    """The script that this process runs; under a profiler, say, the one that this was given."""
    main = getattr(sys.modules.get("__main__"), "__file__", None)
    named = sys.argv[0] if getattr(sys, "argv", None) else None
    return list(dict.fromkeys(each for each in (main, named) if each))
