# SPDX-License-Identifier: Apache-2.0
"""The questions of `pipegen new` in a terminal: only what the table allows, and what follows of it.

After each answer that decides sizes a line says what the plan makes of it: stages, SMEM left,
occupancy.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from pipegen.planning import Plan

# Makes the data of a description from a name and the options.
Data = Callable[[str, Mapping[str, Any]], dict[str, Any]]


def ask(
    name: str | None, options: dict[str, Any], data: Data, option_of_key: Mapping[str, str]
) -> tuple[str, dict[str, Any]]:
    """Fill in what the command line left open by asking in the terminal."""
    from pydantic import ValidationError

    from pipegen.description import KernelDescription
    from pipegen.planning.defaults import resolve
    from pipegen.selection_table import kernels
    from pipegen.vocabulary import default_style

    def choose(key: str, question: str, choices: list[str]) -> None:
        if options[key] is None:
            options[key] = click.prompt(
                question, type=click.Choice(choices), default=choices[0], show_choices=True
            )

    def text(key: str, question: str, default: str) -> None:
        def checked(answer: str) -> str:
            complain(name or "kernel", {**options, key: answer}, option_of(key))
            return answer

        if options[key] is None:
            options[key] = click.prompt(question, default=default, value_proc=checked)
            tell(name or "kernel", options, data)

    def complain(name: str, options: Mapping[str, Any], option: str) -> None:
        _complain(data(name, _with_usual(options)), option, option_of_key)

    def checked_name(answer: str) -> str:
        complain(answer, options, "NAME")
        return answer

    keys = list(kernels())
    question = "Name of the kernel (a Python module name)"
    name = name or click.prompt(question, default="my_gemm", value_proc=checked_name)
    ops = unique(key[0] for key in keys)
    choose("op", "What does it compute", sorted(ops, key=lambda op: op != "gemm"))
    keys = [key for key in keys if key[0] == options["op"]]
    choose("backend", "Which DSL", unique(key[1] for key in keys))
    keys = [key for key in keys if key[1] == options["backend"]]
    choose("arch", "Which architecture", unique(key[2] for key in keys))
    keys = [key for key in keys if key[2] == options["arch"]]
    usual = default_style(str(options["op"]), str(options["backend"]))
    styles = unique(key[3] for key in keys) or [usual]
    choose("style", "Which style", sorted(styles, key=lambda style: style != usual))
    if options["op"] == "custom":
        from pipegen.cli.asking_graph import ask_graph

        return name, ask_graph(name, options, data)
    pairs = mainloop_pairs(name, options, data)
    if pairs:
        choose("producer", "Who fills a stage (the producer)", unique(p for p, _ in pairs))
        consumers = unique(c for p, c in pairs if p == options["producer"])
        choose("consumer", "Who empties it (the consumer)", consumers or [pairs[0][1]])
    rows = options["op"] in ("stream", "reduce")  # have no K
    mixed = options["op"] == "mixed_gemm"
    further = {"gemm": ["e4m3", "e5m2"], "stream": ["f32"], "reduce": ["f32"]}
    others = further.get(str(options["op"]), [])
    if options["op"] == "gemm" and options["backend"] == "pallas":
        others = [*others, "i8", *(["f32"] if options["arch"] == "sm_90a" else [])]
    choose("dtype", "Type of A" if mixed else "Operand type", ["bf16", "f16", *others])
    if mixed:
        choose("dtype_b", "Type of the weights", ["i8", "i4"])
        text("scale_group", "K that shares a scale (0: one for a channel)", "0")
    try:
        offered = resolve(
            # What is given already counts: loads by cp.async have no cluster to propose.
            KernelDescription.model_validate(data(name, {**options, "tile": None, "cluster": None}))
        )
    except ValidationError:
        return name, options  # an option has no such value: the description's own error says it
    tile, cluster = offered.tile, offered.cluster.shape or (1, 1)
    sizes = {"M": tile.m, "N": tile.n} if rows else {"M": tile.m, "N": tile.n, "K": tile.k}
    tell(name, options, data)
    text("tile", f"CTA tile {','.join(sizes)}", ",".join(map(str, sizes.values())))
    text("cluster", "Cluster M,N", f"{cluster[0]},{cluster[1]}")
    text("stages", "Mainloop stages (auto fills SMEM)", "auto")
    return name, options


def mainloop_pairs(name: str, options: Mapping[str, Any], data: Data) -> list[tuple[str, str]]:
    """Producer and consumer of the mainloop in each kernel that the table has for the answers.

    What was given on the command line counts: a gather is not offered loads by TMA.
    """
    from pydantic import ValidationError

    from pipegen.description import KernelDescription
    from pipegen.planning.variants import misfits
    from pipegen.selection_table import kernels

    op, backend, arch, style = (str(options[name]) for name in ("op", "backend", "arch", "style"))
    variants = kernels().get((op, backend, arch, style), ())
    try:
        described = KernelDescription.model_validate(
            data(name, {**options, "tile": None, "cluster": None})
        )
    except ValidationError:
        return []
    variants = tuple(v for v in variants if not misfits(v, described)) or variants
    return list(
        dict.fromkeys(
            (producer, consumer)
            for variant in variants
            for place, producer, consumer in variant.pipelines
            if place == "mainloop"
        )
    )


def tell(name: str, options: Mapping[str, Any], data: Data) -> None:
    """Print what the plan makes of the answers so far; nothing where they do not make one yet."""
    from pipegen.description_file import description_from_data
    from pipegen.errors import InputError
    from pipegen.planning import plan

    try:
        made = plan(description_from_data(data(name, _with_usual(options))))
    except InputError:
        return
    for line in consequences(made):
        click.echo(click.style(f"  {line}", dim=True))


def consequences(made: "Plan") -> list[str]:
    """What a plan costs and leaves, in one line or two."""
    from pipegen.hardware import HARDWARE

    hardware = HARDWARE[made.description.kernel.arch]
    numbers = {number.name: number.value for number in made.numbers}
    main = made.pipelines[0]
    parts = [f"{main.stages} stages of {main.stage_bytes / 1024:g} KiB ({main.construct})"]
    smem, blocks = numbers.get("smem_bytes"), numbers.get("blocks_per_sm")
    if isinstance(smem, int):
        room = numbers.get("smem_capacity")
        limit = room if isinstance(room, int) else hardware.smem_per_block
        parts.append(f"SMEM {smem} of {limit} B, {limit - smem} B left")
    if isinstance(blocks, int):
        threads = numbers.get("threads")
        threads = threads if isinstance(threads, int) else sum(r.threads for r in made.roles)
        parts.append(f"{blocks} block{'s' if blocks > 1 else ''} of {threads} threads an SM")
    if isinstance(columns := numbers.get("tmem_columns"), int):
        parts.append(f"{columns} of 512 TMEM columns")
    return ["; ".join(parts), f"limit: {made.stage_limit}"]


def _with_usual(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options with the usual answers where a description cannot be without one."""
    answered = dict(options)
    for key, usual in (("op", "gemm"), ("backend", "cute"), ("arch", "sm_90a")):
        answered[key] = answered[key] or usual
    return answered


def _complain(data: dict[str, Any], option: str, option_of_key: Mapping[str, str]) -> None:
    """Raise click's UsageError, so that the question is asked again, if the option is at fault.

    What is not answered yet stands at its default; faults of other options are not of interest.
    """
    from pipegen.description_file import description_from_data
    from pipegen.errors import InputError

    try:
        description_from_data(data)
    except InputError as error:
        for problem in error.problems:
            if option in (problem.file, option_of_key.get(problem.key)):
                raise click.UsageError(replace(problem, file="").paragraph()) from None


def option_of(key: str) -> str:
    """The option that holds an answer: `dtype_b` -> `--dtype-b`."""
    return "--" + key.replace("_", "-")


def unique(words: Any) -> list[str]:
    """The words in order, each once."""
    return list(dict.fromkeys(words))
