# SPDX-License-Identifier: Apache-2.0
"""Rows of a sparse table as a file that needs no Poseidon: safetensors, or NumPy's npz."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import numpy as np

from ._errors import InvalidError
from ._parts import NAMES
from ._sparse import SparseTable

_PART_BYTES = 4 << 20  # of one lookup: a lane of a server takes 16 MiB
_PART_ROWS = 1 << 18


def write_rows(table: SparseTable, path: Any, ids: Any, timeout: float) -> int:
    """Writes these ids, each once and sorted, and their rows as they are in the table's next step. Returns how many they are.
    The file appears when it is complete."""
    path = pathlib.Path(path)
    write = {".safetensors": _safetensors, ".npz": _npz}.get(path.suffix)
    if write is None:
        raise InvalidError(f"export sparse table {table.name} to {path}: expected a name that ends in .safetensors or .npz")
    asked = np.asarray(ids)
    if asked.dtype.kind not in "iu" and asked.size > 0:
        raise TypeError(f"export sparse table {table.name}: ids of type {asked.dtype.name}, expected integers")
    asked = np.unique(asked.astype(np.uint64 if asked.dtype == np.uint64 else np.int64))
    step = table.step
    values = _looked_up(table, asked, step, timeout)
    about = {"sparse_table": table.name, "dtype": table.dtype, "width": str(table.width), "step": str(step)}
    hidden = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with open(hidden, "xb") as file:
            write(file, asked, values, about)
        os.replace(hidden, path)
    finally:
        hidden.unlink(missing_ok=True)
    return len(asked)


def _looked_up(table: SparseTable, ids: np.ndarray, step: int, timeout: float) -> np.ndarray:
    """In parts, all of the same step."""
    values = table._target("export", ids, None)[1]
    rows = max(1, min(_PART_ROWS, _PART_BYTES // (table.width * values.itemsize)))
    for begin in range(0, len(ids), rows):
        part = slice(begin, begin + rows)
        table.lookup(ids[part], values[part], step).result(timeout)
    return values


def _safetensors(file: Any, ids: np.ndarray, values: np.ndarray, about: dict[str, str]) -> None:
    """Tensors `ids` and `values`; what they are is metadata."""
    ends = [ids.nbytes, ids.nbytes + values.nbytes]
    header = {"__metadata__": about,
              "ids": {"dtype": NAMES[ids.dtype.name], "shape": list(ids.shape), "data_offsets": [0, ends[0]]},
              "values": {"dtype": NAMES[about["dtype"]], "shape": list(values.shape), "data_offsets": ends}}
    text = json.dumps(header).encode()
    text += b" " * (-(len(text) + 8) % 64)
    file.write(len(text).to_bytes(8, "little") + text)
    file.write(ids.data)
    file.write(values.data)


def _npz(file: Any, ids: np.ndarray, values: np.ndarray, about: dict[str, str]) -> None:
    """Arrays of these names. NumPy has no bfloat16, so those become float32."""
    if about["dtype"] == "bfloat16":
        values = (values.astype(np.uint32) << 16).view(np.float32)
    np.savez(file, ids=ids, values=values, **{name: np.array(text) for name, text in about.items()})
