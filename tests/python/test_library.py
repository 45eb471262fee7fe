# SPDX-License-Identifier: Apache-2.0
"""The package repeats what the headers say: structures, codes, names, the version."""

import ctypes
import re
import subprocess

from conftest import TREE
from poseidon import _library
from poseidon._errors import Status

HEADERS = TREE / "include" / "psd"


def test_structures_match_the_header(tmp_path):
    """If this fails, the package hands structures to libpsd that it reads differently."""
    lines, wanted = [], []
    for name, kind in _library.STRUCTS.items():
        fields = [field[0] for field in kind._fields_]
        wanted.append(" ".join([name, str(ctypes.sizeof(kind))] + [
            f"{field}@{getattr(kind, field).offset}" for field in fields]))
        prints = "".join(f'printf(" {field}@%zu", offsetof(struct {name}, {field}));'
                         for field in fields)
        lines.append(f'printf("{name} %zu", sizeof(struct {name})); {prints} puts("");')
    program = tmp_path / "sizes.c"
    program.write_text("#include <stdio.h>\n#include <psd/psd.h>\nint main(void) {\n"
                       + "\n".join(lines) + "\nreturn 0; }\n")
    subprocess.run(["cc", "-I", TREE / "include", program, "-o", tmp_path / "sizes"], check=True)
    said = subprocess.run([tmp_path / "sizes"], check=True, capture_output=True, text=True).stdout
    assert said.splitlines() == wanted


def test_codes_match_the_header():
    """If this fails, an error is told as another one."""
    found = re.findall(r"X\((\w+), (-?\d+),", (HEADERS / "status.h").read_text())
    assert {name: int(code) for name, code in found} == {each.name: each.value for each in Status}
    for each in Status:
        assert _library.library().psd_status_name(each.value).decode() == f"PSD_{each.name}"


def test_enums_match_the_header():
    """If this fails, Table(rule="adam") asks for another rule."""
    text = (HEADERS / "psd.h").read_text()
    values = {name: int(value) for name, value in re.findall(r"PSD_(\w+) =\s*(\d+),", text)}

    def of(prefix):
        return {name.removeprefix(prefix).lower(): value for name, value in values.items()
                if name.startswith(prefix)}

    assert of("USE_") == _library.USES and of("REDUCE_") == _library.REDUCES
    assert of("RULE_") == _library.RULES and of("SCHEDULE_") == _library.SCHEDULES
    assert of("INIT_") == _library.INITS and of("NAN_") == _library.NAN_POLICIES
    short = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
    assert {name: values[short[name]] for name in short} == _library.DTYPES


def test_versions_match():
    """If this fails, a release has two versions."""
    (version,) = re.findall(r"^  version: '([\d.]+)'", (TREE / "meson.build").read_text(), re.M)
    assert version == _library.__version__ == _library.library().psd_version().decode()
