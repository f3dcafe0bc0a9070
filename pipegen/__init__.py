# SPDX-License-Identifier: Apache-2.0
"""pipegen: readable, standalone GPU kernels from a short description.

`plan(KernelDescription(...))` derives every number; `render(plan)` gives the files' text.
"""
