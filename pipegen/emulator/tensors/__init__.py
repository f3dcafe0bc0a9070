# SPDX-License-Identifier: Apache-2.0
"""Tensors on the CPU that a module takes for tensors of a GPU, with the little of torch it uses."""

from pipegen.emulator.tensors.tensor import Tensor
from pipegen.emulator.tensors.torch_like import TorchLike

__all__ = ["Tensor", "TorchLike"]
