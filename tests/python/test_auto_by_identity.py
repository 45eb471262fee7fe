# SPDX-License-Identifier: Apache-2.0
"""Values that belong to objects (python/poseidon/auto/common/by_identity.py): no job is needed."""

import importlib.util
import pathlib

PATH = pathlib.Path(__file__).resolve().parents[2] / "python" / "poseidon" / "auto" / "common" / "by_identity.py"
spec = importlib.util.spec_from_file_location("poseidon_by_identity", PATH)
by_identity = importlib.util.module_from_spec(spec)
spec.loader.exec_module(by_identity)


class Thing:
    pass


def test_an_identity_given_to_another_object_brings_no_value_along():
    """If this fails, a dataset is taken for one that is gone, on some workers, and they seem to have different data."""
    known = by_identity.ByIdentity()
    first = Thing()
    identity = id(first)
    assert known.of(first, lambda _: "the first") == known.of(first, lambda _: "another") == "the first"
    del first
    others = []
    while not others or id(others[-1]) != identity:
        assert len(others) < 10000, "Python gave the identity to nobody"
        others.append(Thing())
    assert known.of(others[-1], lambda _: "the second") == "the second"


def test_what_cannot_be_referred_to_weakly_keeps_its_identity():
    """If this fails, a value passes to another object that got the same address."""
    known = by_identity.ByIdentity()
    values = {known.of([], lambda _, number=number: number) for number in range(10)}
    assert values == set(range(10))
