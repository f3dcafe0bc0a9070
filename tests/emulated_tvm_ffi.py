# SPDX-License-Identifier: Apache-2.0
"""A kernel that is called through TVM FFI, in the emulator: what tests/test_emulator.py runs."""

import numpy as np
import pytest

import pipegen


def main() -> None:
    with pipegen.emulator(arch="sm_90a") as emulated:
        from cutlass import Float32, Int32, cute

        @cute.kernel
        def scale(source: cute.Tensor, out: cute.Tensor, factor: Float32, count: Int32):
            thread, _, _ = cute.arch.thread_idx()
            block, _, _ = cute.arch.block_idx()
            index = block * 128 + thread
            if index < count:
                out[index] = source[index] * factor

        @cute.jit
        def launch(source: cute.Tensor, out: cute.Tensor, factor: Float32, count: Int32):
            scale(source, out, factor, count).launch(grid=(2, 1, 1), block=(128, 1, 1))

        size = cute.sym_int()
        fakes = [cute.runtime.make_fake_compact_tensor(Float32, (size,)) for _ in range(2)]
        compiled = cute.compile(launch, *fakes, Float32(0), Int32(0), options="--enable-tvm-ffi")
        source, out = np.arange(200, dtype=np.float32), np.zeros(200, np.float32)
        compiled(source, out, 3.0, 200)
        assert (out == 3 * source).all()
        # A finding is raised through the call, as without TVM FFI.
        with pytest.raises(pipegen.EmulationError, match="after the end of"):
            compiled(source, out, 3.0, 256)
        # Tensors that are made for TVM FFI say that they are on a GPU, too.
        made = [cute.runtime.from_dlpack(each, enable_tvm_ffi=True) for each in (source, out)]
        again = cute.compile(launch, *made, Float32(0), Int32(0), options="--enable-tvm-ffi")
        again(*made, 5.0, 200)
        assert (out == 5 * source).all()
        assert len(emulated.launches) == 3
    with pytest.raises(Exception, match="device"):  # a CPU array is refused again
        compiled(source, out, 3.0, 200)
    print("all of it held")


if __name__ == "__main__":
    main()
