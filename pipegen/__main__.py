# SPDX-License-Identifier: Apache-2.0
from pipegen.cli import run

run()
