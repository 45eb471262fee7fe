# SPDX-License-Identifier: Apache-2.0
"""tf.ConfigProto with the fields that Poseidon's sessions always had.

A class of protocol buffers cannot have more fields, so this one has a ConfigProto inside, to which it
hands everything else."""

import functools

from tensorflow.core.protobuf import config_pb2

# distributed, master_address and client_id say who this worker is. The others tuned the original's
# transport; here they are taken, and nothing depends on them.
FIELDS = {"distributed": False, "master_address": "tcp://0.0.0.0:5555", "client_id": -1,
          "num_push_threads": 0, "num_pull_threads": 0, "block_size": 0, "use_sfb": False,
          "peer_addresses": (), "batch_size": 0}


class ConfigProto:
    """ConfigProto(distributed=..., master_address=..., client_id=..., and all of TensorFlow's)."""

    def __init__(self, **fields):
        own = {name: fields.pop(name) for name in FIELDS if name in fields}
        object.__setattr__(self, "_own", {**FIELDS, **own})
        object.__setattr__(self, "_proto", config_pb2.ConfigProto(**fields))

    def __getattr__(self, name):
        return self._own[name] if name in FIELDS else getattr(self._proto, name)

    def __setattr__(self, name, value):
        if name in FIELDS:
            self._own[name] = value
        else:
            setattr(self._proto, name, value)

    def CopyFrom(self, other):  # pylint: disable=invalid-name
        """As protocol buffers do it, of either kind."""
        self._own.update(getattr(other, "_own", FIELDS))
        self._proto.CopyFrom(plain(other))

    def __deepcopy__(self, memo):
        made = ConfigProto()
        made.CopyFrom(self)
        return made

    __copy__ = functools.partialmethod(__deepcopy__, None)

    def __repr__(self):
        return f"{self._own} {self._proto}"


def plain(config):
    """What TensorFlow takes."""
    return config._proto if isinstance(config, ConfigProto) else config
