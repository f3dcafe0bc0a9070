# SPDX-License-Identifier: Apache-2.0
"""Writes the same kernels with other CTA tiles, for `hopper.py speed --tiles`.

    python benchmarks/tiles.py FOLDER DESCRIPTION.toml ... --tile 128,256,64 --tile 256,128,64

One module for each description and tile that can be: FOLDER/NAME__MxNxK.py. A fourth number is the
raster group: tile rows walked together. Needs pipegen, no GPU.
"""

import argparse
from pathlib import Path

from pipegen import InputError, load_description, plan, render
from pipegen.description import KernelDescription, Tile


def with_tile(
    description: KernelDescription, name: str, tile: tuple[int, int, int], raster: int | None
) -> str:
    """The module's text. Stages and roles that belong to the described tile are derived anew."""
    m, n, k = tile
    kernel = description.kernel.model_copy(update={"name": name})
    scheduler = description.scheduler.model_copy(update={"raster_group": raster})
    changed = description.model_copy(
        update={
            "kernel": kernel,
            "tile": Tile(m=m, n=n, k=k),
            "scheduler": scheduler if raster else description.scheduler,
            "pipeline": {},
            "role": {},
        }
    )
    (text,) = render(plan(changed)).values()
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("descriptions", nargs="+", type=Path)
    parser.add_argument(
        "--tile", action="append", required=True, help="M,N,K or M,N,K,raster group"
    )
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for path in arguments.descriptions:
        for word in arguments.tile:
            m, n, k, *raster = (int(size) for size in word.split(","))
            tile = "x".join(map(str, (m, n, k))) + "".join(f"_raster_{group}" for group in raster)
            name = f"{path.stem}__{tile}"
            try:
                text = with_tile(load_description(path), name, (m, n, k), *(raster or [None]))
            except InputError as error:
                print(f"{path.stem} {tile}: {error.problems[0].message}")
                continue
            written = arguments.folder / f"{name}.py"
            written.write_text(text, encoding="utf-8")
            print(written)


if __name__ == "__main__":
    main()
