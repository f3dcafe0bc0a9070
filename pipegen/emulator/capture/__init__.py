# SPDX-License-Identifier: Apache-2.0
"""Runs the host half of CuTe DSL kernels without a GPU, and records what it launches."""
