# SPDX-License-Identifier: Apache-2.0
"""`pipegen new` in a real terminal (a pty), where it asks."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path


def answer_in_a_terminal(arguments, answers, tmp_path):
    """Runs `pipegen new` in a terminal, types the answers and then Enter; what was shown."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pipegen", "new", *arguments],
        cwd=tmp_path,
        stdin=child,
        stdout=child,
        stderr=child,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
    )
    os.close(child)
    os.write(parent, ("\n".join(answers) + "\n" * 30).encode())
    shown = b""
    while True:
        try:
            piece = os.read(parent, 4096)
        except OSError:
            break
        if not piece:
            break
        shown += piece
    assert process.wait(timeout=60) == 0, shown.decode()
    assert (tmp_path / "asked.toml").exists()
    assert (tmp_path / "asked.py").exists()
    return re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")
