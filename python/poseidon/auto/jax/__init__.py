# SPDX-License-Identifier: Apache-2.0
"""Scripts of JAX that know nothing of Poseidon."""
