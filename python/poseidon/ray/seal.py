# SPDX-License-Identifier: Apache-2.0
"""The job's secret on its way through Ray.

Arguments and results of Ray's tasks cross the network in the clear unless the cluster has TLS, lie in its object store,
and may be spilled to disks. So the secret goes sealed: each actor makes a pair of X25519 keys (RFC 7748) and tells the
public one; the driver makes a pair for each actor, and what both agree on gives, by HKDF-SHA256 (RFC 5869), a pad for the
secret and a key for its HMAC. Every pair is used once. Who only reads learns nothing; who can answer for an actor can
run code on the cluster anyway.

Python's integers take a time that depends on their values. An observer who could measure that sees one computation for
each key, and the key is never used again.

Nothing here is for larger or for several messages."""

from __future__ import annotations

import hashlib
import hmac
import secrets

SECRET_BYTES = 32
_TAG_BYTES = 32
_PRIME = 2**255 - 19
_BASE_POINT = (9).to_bytes(32, "little")


class SealError(ValueError):
    """What arrived was not sealed for this key, or was changed on the way."""


def x25519(scalar: bytes, point: bytes) -> bytes:
    """RFC 7748, section 5: the Montgomery ladder."""
    k = (int.from_bytes(scalar, "little") & ~7 & ((1 << 254) - 1)) | (1 << 254)
    x1 = int.from_bytes(point, "little") & ((1 << 255) - 1)
    x2, z2, x3, z3 = 1, 0, x1, 1
    for bit in reversed(range(255)):
        if k >> bit & 1:
            x2, z2, x3, z3 = _step(x1, x3, z3, x2, z2, True)
        else:
            x2, z2, x3, z3 = _step(x1, x2, z2, x3, z3, False)
    return (x2 * pow(z2, _PRIME - 2, _PRIME) % _PRIME).to_bytes(32, "little")


def _step(x1: int, x2: int, z2: int, x3: int, z3: int, swapped: bool) -> tuple[int, int, int, int]:
    """One rung: the first point doubled, and the sum of both."""
    a, b = x2 + z2, x2 - z2
    aa, bb = a * a % _PRIME, b * b % _PRIME
    e = aa - bb
    da, cb = (x3 - z3) * a, (x3 + z3) * b
    doubled = aa * bb % _PRIME, e * (aa + 121665 * e) % _PRIME
    added = (da + cb) ** 2 % _PRIME, x1 * (da - cb) ** 2 % _PRIME
    return (*added, *doubled) if swapped else (*doubled, *added)


def _keys(shared: bytes, context: bytes) -> tuple[bytes, bytes]:
    """HKDF-SHA256: the pad, and the key of the tag."""
    if not any(shared):
        raise SealError("the other side's public key is not one")
    key = hmac.digest(b"poseidon.ray 1", shared, "sha256")
    pad = hmac.digest(key, context + b"\x01", "sha256")
    return pad, hmac.digest(key, pad + context + b"\x02", "sha256")


def _xor(first: bytes, second: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(first, second))


class KeyPair:
    """Of one process, for one message."""

    def __init__(self) -> None:
        self._private: bytes | None = secrets.token_bytes(32)
        self.public = x25519(self._private, _BASE_POINT)

    def _agree(self, other: bytes, sender: bytes, recipient: bytes, name: str
               ) -> tuple[bytes, bytes]:
        if self._private is None:
            raise SealError("this key was used before")
        private, self._private = self._private, None
        return _keys(x25519(private, other), hashlib.sha256(sender + recipient).digest() +
                     name.encode())

    def seal(self, secret: bytes, recipient: bytes, name: str) -> bytes:
        """For the owner of this public key, as the one of this name."""
        pad, key = self._agree(recipient, self.public, recipient, name)
        hidden = _xor(secret, pad)
        return self.public + hidden + hmac.digest(key, hidden, "sha256")

    def open(self, sealed: bytes, name: str) -> bytes:
        """What seal() was given."""
        if len(sealed) != 32 + SECRET_BYTES + _TAG_BYTES:
            raise SealError(f"a sealed secret of {len(sealed)} bytes")
        sender, hidden, tag = sealed[:32], sealed[32:64], sealed[64:]
        pad, key = self._agree(sender, sender, self.public, name)
        if not hmac.compare_digest(hmac.digest(key, hidden, "sha256"), tag):
            raise SealError(f"the job's secret was not sealed for {name}, or was changed on the way")
        return _xor(hidden, pad)
