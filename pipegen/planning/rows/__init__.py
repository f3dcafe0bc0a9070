# SPDX-License-Identifier: Apache-2.0
"""The Pallas kernels whose threads read TMA's tiles row by row, without an MMA: stream, reduce."""
