# SPDX-License-Identifier: Apache-2.0
"""The points of a script with Model.fit at which its job can be saved, and from which it can go on: those of its first fit
(poseidon.tensorflow.fit_points).

What a script does before its first fit, it does again. Then its data are read to the point; a digest tells whether they are what they
were. Its callbacks hear of nothing on the way: their attributes, and what of the script's variables may have changed, are kept
(variables.py)."""

import json
import os

import keras
import poseidon
import tensorflow
from poseidon import _due, _parts
from poseidon.tensorflow import fit_points

from ..common import notes, resumed, seeds
from .callbacks import First
from .pieces import Words
from .variables import Unknown, Variables

VERSION = 1
TIMEOUT_S = 1800.0
ADVICE = ("use poseidon.tensorflow.Checkpoint in the script, or checkpoints of its own, and run it without --checkpoint "
          "and --resume (docs/checkpoints.md)")
_WORDS = 1 << 64


class Points(fit_points.Owner):
    """Of one script. Thread: that of the script which trains."""

    def __init__(self, session):
        self._session = session
        self._due = _due.Due(TIMEOUT_S) if _due.wanted() else None
        self._kept = self._read() if resumed.is_resumed() else None
        self._fit = self._fitted = self._found = None
        self._callbacks = []  # of the script
        self._fits = 0
        self._whole = 0  # a digest of what was read in this epoch

    def _read(self):
        session, head = self._session, resumed.head()
        found = poseidon.context().checkpoint_resumed()
        if found is None or head.get("framework") != "keras":
            session.refuse("the checkpoint that the job goes on from has nothing of a plain script of Keras", ADVICE)
        if head.get("version") != VERSION:
            session.refuse(f"the checkpoint is of version {head.get('version')}, expected {VERSION}", ADVICE)
        resumed.check_circumstances(session, **_versions())
        return _parts.decode(found[1])

    # ---- what the session tells

    @property
    def are_of_use(self):
        """Whether this fit has points."""
        return self._fit is not None

    @property
    def passes_over(self):
        """Whether nothing is to be computed."""
        return self._fit is not None and self._fit.passes_over

    def begin_fit(self, fitted, pieces, callbacks):
        """The callbacks in whose place fit gets others. Points are those of the first fit."""
        self._fits += 1
        if self._fits > 1:
            self.lead_nowhere("it calls Model.fit more than once: checkpoints are written during the first")
            self._fit = None
            return callbacks
        if self._due is None and self._kept is None:
            return callbacks
        self._callbacks = [each for each in callbacks if type(each).__module__ != First.__module__]
        self._fitted, kept, self._kept = fitted, self._kept, None
        self._fit = fit_points.FitPoints(self, self._due, kept, pieces.dataset)
        if kept is not None and self._session.rank == 0:
            notes.tell(f"{notes.script_name()} goes on from its checkpoint: {kept['steps']} steps are passed over")
        return self._fit.callbacks(callbacks)

    def passing(self, own):
        """A function that trains, which only reads on the way."""
        return self._fit.passing(own) if self.passes_over else own

    def lead_nowhere(self, reason):
        """There are no points in how it trains from here on."""
        if self._kept is not None:
            self._session.refuse(f"the job goes on from a checkpoint, but {reason}", ADVICE)
        if self._due is not None:
            self._session.tell_once(f"no checkpoint is written from here on, as {reason}; {ADVICE}")

    # ---- what FitPoints asks

    def head(self):
        return {"plain": json.dumps({"framework": "keras", "version": VERSION, "seed": seeds.of_job(),
                                     "hash_seed": os.environ.get("PYTHONHASHSEED"),
                                     **resumed.circumstances(self._session, **_versions())})}

    def look(self):
        if self._fit.model.run_eagerly:
            raise fit_points.NotKept("its model runs eagerly, and may change what nobody sees")
        if not self._fitted.variables:
            raise fit_points.NotKept("which variables its training step uses could not be found out")
        if self._fitted.draws_with_state:
            raise fit_points.NotKept("its training step draws random numbers by an operation with a hidden state "
                                     f"({self._fitted.draws_with_state}); keras.random and tf.random.Generator have one that can be kept")
        try:
            self._found = Variables(self._callbacks, self._fit.made_by_python)
        except Unknown as error:
            raise fit_points.NotKept(str(error)) from None

    def variables(self):
        step = self._session.step
        return [step._seen, step._digests, *self._fitted.variables, *self._found.of_models]

    def keep(self):
        return {"values": dict(self._found.values), "steps": self._session._steps, "samples": self._session._samples,
                "whole": self._session.step.digests()[1] % _WORDS}

    def put_back(self, kept):
        if kept["whole"] != self._whole:
            raise fit_points.NotKept("its data are not what they were, or come in another order")
        try:
            self._found.put_back(kept["values"])
        except Unknown as error:
            raise fit_points.NotKept(str(error)) from None
        self._session._steps, self._session._samples = kept["steps"], kept["samples"]

    def begin_epoch(self):
        self._whole = 0

    def read(self, element):
        words = Words(*tensorflow.unstack(element[1], len(Words._fields)))
        self._whole = (self._whole + int(words.digest)) % _WORDS

    def cannot(self, problem):
        self._session.tell_once(f"no checkpoint is written: {problem}; {ADVICE}")

    def refuse(self, problem):
        self._session.refuse(f"the job goes on from a checkpoint, but {problem}", "begin anew, or " + ADVICE)


def _versions():
    return {"keras": keras.__version__, "tensorflow": tensorflow.__version__}
