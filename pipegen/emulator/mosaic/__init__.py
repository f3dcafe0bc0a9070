# SPDX-License-Identifier: Apache-2.0
"""Compiles Pallas kernels (Mosaic GPU) without a GPU, and records what they launch."""
