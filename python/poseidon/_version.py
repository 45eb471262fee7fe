# SPDX-License-Identifier: Apache-2.0
"""The version of the package: that of libpsd and of meson.build."""

__version__ = "0.1.0"
