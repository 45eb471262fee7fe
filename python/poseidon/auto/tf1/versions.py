# SPDX-License-Identifier: Apache-2.0
"""Whether `import tensorflow` is to be that of version 1, and what a script hears that should have said
so."""

import os
import sys

import tensorflow
from tensorflow.compat import v1

from ..common import notes
from . import surface, written_for


def choose(watch):
    """Shows version 1 where --auto tf1 or the script's source asks for it."""
    if watch.kind != "tf1":
        old = written_for.find_version_1(written_for.own_scripts(), tensorflow, v1)
        if old is None:
            _hint_at_failure()
            return
        _tell(old)
        watch.kind = "tf1"
    surface.show_version_1()


def _tell(old):
    if os.environ.get("PSD_RANK", "0") == "0":
        notes.tell(f"{notes.script_name()} was written for TensorFlow 1 ({old.name}, line {old.line} of "
                   f"{os.path.basename(old.file)}): it gets the names of that version, as with "
                   "--auto tf1; --auto off leaves it alone")


def _hint_at_failure():
    """A script that ends because a name of version 1 is missing."""
    before = sys.excepthook

    def explain(kind, error, trace):
        before(kind, error, trace)
        name = _missing(error)
        if name is not None:
            notes.tell(f"{notes.script_name()} uses {name}, which is TensorFlow 1's: "
                       "psd_run --auto tf1 gives it the names of that version")

    sys.excepthook = explain


def _missing(error):
    """tf.app of an error that says that there is none; None: it says something else."""
    if isinstance(error, ModuleNotFoundError) and error.name is not None:
        module = error.name
    elif isinstance(error, AttributeError) and isinstance(error.obj, type(sys)):
        module = f"{error.obj.__name__}.{error.name}"
    else:
        return None
    for prefix in ("tensorflow._api.v2.", "tensorflow."):
        if module.startswith(prefix):
            path = module[len(prefix):].split(".")
            return f"tf.{'.'.join(path)}" if written_for.is_old(path, tensorflow, v1) else None
    return None
