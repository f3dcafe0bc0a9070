# SPDX-License-Identifier: Apache-2.0
"""Runs the compiled kernel on the CPU: captures its launch, and executes its PTX."""
