# SPDX-License-Identifier: Apache-2.0
"""Keeps back what XLA says to itself."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quietly() -> Iterator[None]:
    """What is written to the standard error stream is kept back, and told if something is raised.

    XLA misses a driver and a disassembler, and needs neither.
    """
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as said:
        os.dup2(said.fileno(), 2)
        try:
            yield
        except BaseException:
            said.seek(0)
            os.write(before, said.read())
            raise
        finally:
            os.dup2(before, 2)
            os.close(before)
