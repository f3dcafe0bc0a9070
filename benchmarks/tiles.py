# SPDX-License-Identifier: Apache-2.0
"""Writes the same kernels with other CTA tiles, for `hopper.py speed --tiles`.

    python benchmarks/tiles.py FOLDER DESCRIPTION.toml ... --tile 128,256,64 --tile 256,128,64

One module for each description and tile that can be: FOLDER/NAME__MxNxK.py. Needs pipegen, no GPU.
"""

import argparse
from pathlib import Path

from pipegen import InputError, load_description, plan, render
from pipegen.description import KernelDescription, Tile


def with_tile(description: KernelDescription, name: str, tile: tuple[int, int, int]) -> str:
    """The module's text. Stages and roles that belong to the described tile are derived anew."""
    m, n, k = tile
    kernel = description.kernel.model_copy(update={"name": f"{name}__{m}x{n}x{k}"})
    changed = description.model_copy(
        update={"kernel": kernel, "tile": Tile(m=m, n=n, k=k), "pipeline": {}, "role": {}}
    )
    (text,) = render(plan(changed)).values()
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("descriptions", nargs="+", type=Path)
    parser.add_argument("--tile", action="append", required=True, help="M,N,K")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for path in arguments.descriptions:
        for word in arguments.tile:
            m, n, k = (int(size) for size in word.split(","))
            try:
                text = with_tile(load_description(path), path.stem, (m, n, k))
            except InputError as error:
                print(f"{path.stem} {m}x{n}x{k}: {error.problems[0].message}")
                continue
            written = arguments.folder / f"{path.stem}__{m}x{n}x{k}.py"
            written.write_text(text, encoding="utf-8")
            print(written)


if __name__ == "__main__":
    main()
