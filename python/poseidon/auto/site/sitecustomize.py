# SPDX-License-Identifier: Apache-2.0
"""What psd_run puts before a Python worker: waits until torch is imported, then poseidon.auto acts.

Until then nothing but sys and os is used, which Python has loaded anyway. The directory takes itself
out of sys.path, and the sitecustomize that it hides runs as it would have."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Watch:
    """Looks at imports: torch begins the work, poseidon means that the script does it itself."""

    def __init__(self):
        self.session = None  # poseidon.auto's, once torch is here
        self.reason = None  # why nothing is to be done

    def find_spec(self, name, path=None, target=None):
        """Finds nothing by itself."""
        if name == "poseidon":
            self.reason = "the script imports poseidon itself"
            if self.session is not None:
                self.session.step_aside(self.reason)
        elif name == "torch":
            return self._find_torch(path, target)
        return None

    def _find_torch(self, path, target):
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec("torch", path, target)
            if spec is not None and spec.loader is not None:
                self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader):
        execute = loader.exec_module

        def execute_and_begin(module):
            del loader.exec_module
            execute(module)
            self.session = _load().begin(self)

        loader.exec_module = execute_and_begin


def _load():
    """poseidon.auto under a name of its own: whether the script imports poseidon is to be seen."""
    import importlib.util

    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        "_poseidon_auto", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _run_hidden():
    """The sitecustomize that would have run without this one."""
    for finder in sys.meta_path:
        spec = finder.find_spec("sitecustomize", None)
        if spec is not None and spec.loader is not None:
            module = type(sys)("sitecustomize")
            module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
            sys.modules["sitecustomize"] = module
            spec.loader.exec_module(module)
            return


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
if os.environ.get("PSD_AUTO") == "on" and os.environ.get("PSD_WORLD_SIZE", "1") != "1":
    sys.meta_path.insert(0, _Watch())
_run_hidden()
