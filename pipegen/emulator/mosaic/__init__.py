# SPDX-License-Identifier: Apache-2.0
"""Compiles Pallas kernels of Mosaic GPU without a GPU, and records what their host code launches."""
