# SPDX-License-Identifier: Apache-2.0
"""Scripts with graphs and sessions of TensorFlow 1 that know nothing of Poseidon."""
