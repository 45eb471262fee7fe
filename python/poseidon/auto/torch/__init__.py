# SPDX-License-Identifier: Apache-2.0
"""Scripts of PyTorch that know nothing of Poseidon."""
