# SPDX-License-Identifier: Apache-2.0
"""What automatic distribution has in common for scripts of all frameworks."""
