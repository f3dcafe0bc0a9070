# SPDX-License-Identifier: Apache-2.0
"""The `stream` kernels: out = f(x) or out = f(x, y), elementwise over an (M, N) matrix."""
