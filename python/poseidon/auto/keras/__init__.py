# SPDX-License-Identifier: Apache-2.0
"""Scripts of Keras that know nothing of Poseidon."""
