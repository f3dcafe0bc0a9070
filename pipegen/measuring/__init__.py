# SPDX-License-Identifier: Apache-2.0
"""Numbers and speed on this machine's GPU: the one way in which pipegen checks and times modules.

What decides (`statistics`, `shapes`, `rounds`, `rows`) is pure. What needs torch and a GPU
(`operators`, `peers`, `clocks`, `worker`) runs in a process of its own, which `process` starts and
watches: a kernel that hangs costs its time limit and no more.
"""
