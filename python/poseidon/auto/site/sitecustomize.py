# SPDX-License-Identifier: Apache-2.0
"""What psd_run puts before a Python worker: waits until torch, TensorFlow, Keras or JAX is imported, then
poseidon.auto acts.

Until then nothing but sys and os is used, which Python has loaded anyway. The directory takes itself
out of sys.path, and the sitecustomize that it hides runs as it would have."""

import os
import sys

_HERE = os.path.dirname(os.path.abspath(__file__))
# What is called in poseidon.auto when they have been imported.
_FRAMEWORKS = {"torch": "begin", "tensorflow": "begin_tensorflow", "keras": "begin_keras",
               "tf_keras": "begin_tf_keras", "jax": "begin_jax", "optax": "begin_optax",
               "transformers.trainer": "begin_huggingface", "accelerate.accelerator": "begin_huggingface",
               "ignite.engine": "begin_ignite", "skorch.net": "begin_skorch",
               "lightning.pytorch.trainer.trainer": "begin_lightning",
               "pytorch_lightning.trainer.trainer": "begin_lightning"}
# What a script of PyTorch has in its text.
_LIBRARIES = (b"torch", b"lightning", b"transformers", b"accelerate", b"ignite", b"skorch", b"fastai", b"timm")
# How variables end that tell a script which worker it is.
_RANKS = ("RANK", "PROCID", "TF_CONFIG")
# What scripts take from torchrun, which has set it.
_OF_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


# What else it sets, and what other systems have taken from it.
_MORE_OF_TORCHRUN = ("GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME",
                     "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT",
                     "TORCHELASTIC_MAX_RESTARTS")


class _Environment(os._Environ):
    """os.environ, which notes whether the script asks which worker it is, and tells one that was written for
    torchrun."""

    asked_for_rank = False
    told_rank = False
    copied_at = None  # where the script has asked for all names last

    def keys(self):
        _Environment.copied_at = _where(sys._getframe(1))
        return super().keys()

    def __getitem__(self, name):
        asker = _asker() if isinstance(name, str) and name.endswith(_RANKS) else None
        asks = asker is not None and not _is_library(asker)  # torch and others look for themselves
        if asks:
            _Environment.asked_for_rank = True
        try:
            found = super().__getitem__(name)
        except KeyError:
            if name not in _OF_TORCHRUN or _Environment.told_rank or not _is_taken_by_script():
                raise
            _Environment.told_rank = _tell_as_torchrun()
            _leave_files("it was written for torchrun")
            found = super().__getitem__(name)
        if asks:
            _leave_files("the script asks which worker it is")
        return found


def _where(frame):
    return id(frame), frame.f_code, frame.f_lasti


def _asker():
    """The file of who asks for a variable. Who copies all of them asks for none, and poseidon has to know."""
    frame = sys._getframe(2)
    if _where(frame) == _Environment.copied_at:  # dict(os.environ)
        return None
    while frame is not None and frame.f_globals.get("__name__") in ("os", "_collections_abc", "collections.abc"):
        if frame.f_code.co_name not in ("get", "getenv", "__getitem__"):
            return None
        frame = frame.f_back
    name = frame.f_globals.get("__name__", "") if frame is not None else ""
    if name.split(".")[0] in ("poseidon", "_poseidon_auto"):
        return None
    return "" if frame is None else frame.f_code.co_filename


def _is_library(file):
    return file.startswith(("<frozen", os.path.dirname(os.__file__))) or "site-packages" in file or \
        "dist-packages" in file


def _is_taken_by_script():
    """Whether its own code takes a variable (os.environ["RANK"]), and does not ask whether it is there."""
    code = sys._getframe(2).f_globals.get("__name__"), sys._getframe(2).f_code.co_filename
    return code[0] not in ("os", "_collections_abc", "collections.abc") and not _is_library(code[1])


def _tell_as_torchrun():
    _load()
    from _poseidon_auto.torch import torchrun

    return torchrun.tell_script()


class _Watch:
    """Looks at imports: a framework begins the work, poseidon means that the script does it
    itself."""

    def __init__(self):
        self.sessions = []  # poseidon.auto's, one for each framework that is here
        self.reason = None  # why nothing is to be done
        self.kind = os.environ.get("PSD_AUTO")  # on, warn, tf1
        self.names_only = self.kind == "names"  # TensorFlow 1's, for a script that distributes itself
        self.kind = "tf1" if self.names_only else self.kind
        self.alone = self.names_only or os.environ.get("PSD_WORLD_SIZE", "1") == "1"
        self.script = b"" if self.alone else _script()

    @staticmethod
    def script_asked_for_rank():
        """Whether the script may deal something out itself."""
        return _Environment.asked_for_rank

    @staticmethod
    def script_was_told_rank():
        """Whether it is one that was written for torchrun."""
        return _Environment.told_rank

    def find_spec(self, name, path=None, target=None):
        """Finds nothing by itself."""
        if name == "poseidon":
            self.reason = "the script imports poseidon itself"
            for session in self.sessions:
                session.step_aside(self.reason)
        elif name in _FRAMEWORKS and (name == "tensorflow" or not self.alone):
            return self._find_framework(name, path, target)
        return None

    def _find_framework(self, name, path, target):
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                self._follow(spec.loader, _FRAMEWORKS[name])
                return spec
        return None

    def _follow(self, loader, begin):
        execute = loader.exec_module

        def execute_and_begin(module):
            del loader.exec_module
            execute(module)
            session = getattr(_load(), begin)(self)
            if session is not None:
                self.sessions.append(session)

        loader.exec_module = execute_and_begin


def _load():
    """poseidon.auto under a name of its own: whether the script imports poseidon is to be seen."""
    import importlib.util

    if "_poseidon_auto" in sys.modules:
        return sys.modules["_poseidon_auto"]
    folder = os.path.dirname(_HERE)
    spec = importlib.util.spec_from_file_location(
        "_poseidon_auto", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def _script():
    """The text of the script that Python was called with."""
    for word in sys.orig_argv[1:]:
        if word in ("-m", "-c"):
            break
        if not word.startswith("-") and os.path.isfile(word):
            with open(word, "rb") as file:
                return file.read()
    return b""


def _forget_other_ranks():
    """psd_run may itself run where RANK is set, by torchrun or by a system of batch jobs: that is not the rank of this
    worker. What --personality torch tells carries the job's name."""
    if os.environ.get("TORCHELASTIC_RUN_ID") == os.environ.get("PSD_JOB_ID") or \
            not any(name in os.environ for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")):
        return
    for name in _OF_TORCHRUN + _MORE_OF_TORCHRUN:
        os.environ.pop(name, None)


def _keep_files_apart(script):
    """Before the script begins, where it has to do with PyTorch: later there may be threads, which would not
    have the view of files."""
    if any(word in script for word in _LIBRARIES):
        _load().begin_files(script)


def _leave_files(reason):
    if "_poseidon_auto" in sys.modules:
        sys.modules["_poseidon_auto"].leave_files(reason)


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


def _begin():
    watch = _Watch()
    if not watch.alone:
        if os.environ.get("PSD_RESUME"):
            _load()
            from _poseidon_auto.common import resumed

            resumed.begin_again_in_order()
        _forget_other_ranks()
    _keep_files_apart(watch.script)
    sys.meta_path.insert(0, watch)
    os.environ.__class__ = _Environment


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != _HERE]
if os.environ.get("PSD_AUTO") in ("on", "warn", "tf1", "names") and "PSD_WORLD_SIZE" in os.environ:
    try:
        _begin()
    except Exception as _problem:  # Python would say so and go on: every worker would train by itself
        import traceback

        traceback.print_exc()
        sys.stderr.write("automatic distribution could not begin, so the script was not started "
                         f"({type(_problem).__name__}: {_problem}); psd_run --auto off starts it as it is\n")
        sys.stderr.flush()
        os._exit(2)
_run_hidden()
