# SPDX-License-Identifier: Apache-2.0
"""Compiles emitted modules to SASS without a GPU, each in its own process, and reads the result."""
