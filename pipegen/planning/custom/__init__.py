# SPDX-License-Identifier: Apache-2.0
"""op = "custom": the user's own graph of roles, tensors and rings."""
