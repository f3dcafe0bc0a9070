# SPDX-License-Identifier: Apache-2.0
"""Whatever value a key is given: a description is refused with paragraphs, or becomes a kernel.

Every kernel that has a template, with each key at bad and boundary values: one key at a time all of
them, two and three at a time a sample.
"""

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipegen import rendering
from pipegen.description_file import description_from_data
from pipegen.errors import InputError
from pipegen.planning import plan
from pipegen.selection_table import kernels
from pipegen.vocabulary import CONSUMERS, DTYPES, PRODUCERS

WHOLE = (0, -1, 1, 2, 3, 8, 24, 40, 96, 128, 256, 2**31 - 1, -(2**31), 2**31, "auto", 1.5)
TRUTH = (True, 0)
PAIRS = [[m, n] for m in (-1, 0, 1, 2, 3, 4, 16, 2**31 - 1) for n in (0, 1, 2, 3)]
PIPELINES = ("mainloop", "epilogue", "accumulator", "scheduler", "transform")
ROLES = ("producer", "consumer", "tma", "epilogue")

VALUES: dict[str, tuple[Any, ...]] = {
    "kernel.name": ("k", "class", "", "1k", 1),
    "dtype.a": (*DTYPES, "fp8", 8),
    "dtype.b": (*DTYPES, "fp8", 8),
    "dtype.acc": ("f32", "f16"),
    "dtype.out": (*DTYPES, "fp8", 8),
    "dtype.promote_every": WHOLE,
    "dtype.scale_group": WHOLE,
    "layout.a": ("k", "m", "n", 0),
    "layout.b": ("k", "n", "m", 0),
    "layout.gather": TRUTH,
    "layout.alignment": (0, -1, 2, 3, 4, 8, 16, 32, "16", True),
    "tile.m": WHOLE,
    "tile.n": WHOLE,
    "tile.k": WHOLE,
    "cluster.shape": (*PAIRS, [], [1], [1, 2, 3], ["a", "b"], 2, "2x1"),
    "cluster.cta_group": WHOLE,
    "scheduler.raster_group": WHOLE,
    "scheduler.tiles": ("static", "clc", "dynamic", 1),
    "scheduler.consumers": ("cooperative", "ping-pong", "pingpong", 1),
    "scheduler.split_k": WHOLE,
    "stream.y": ("none", "matrix", "row", "column", 1),
    "stream.blocks_per_sm": WHOLE,
    "integration.torch": TRUTH,
    "integration.jax": TRUTH,
    "pipegen": (0, 1, 2, "1"),
    "mainloop": (1, {}, {"stages": 2}),
}
for pipeline in PIPELINES:
    VALUES[f"pipeline.{pipeline}.stages"] = WHOLE
    VALUES[f"pipeline.{pipeline}.producer"] = (*PRODUCERS, "tcgen05", "warp")
    VALUES[f"pipeline.{pipeline}.consumer"] = (*CONSUMERS, "tcgen05", "warp")
    for option in ("try_ahead", "defer_sync", "expected_tx"):
        VALUES[f"pipeline.{pipeline}.{option}"] = TRUTH
    for key in ("in_flight", "delay_release"):
        VALUES[f"pipeline.{pipeline}.{key}"] = WHOLE
for role in ROLES:
    for key in ("warpgroups", "warps", "registers", "memory_thread_idx"):
        VALUES[f"role.{role}.{key}"] = WHOLE
    VALUES[f"role.{role}.split"] = ("m", "n", "k", 2)

# The other styles have the same rules and numbers as these.
KERNELS = tuple(kernel for kernel in kernels() if kernel[3] != "explicit-state")
# What the sampled descriptions begin with: an option that selects another template, or nothing.
VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"pipeline.mainloop.producer": "cp_async"},
    {"pipeline.mainloop.producer": "thread"},
    {"pipeline.epilogue.consumer": "tma_store"},
    {"scheduler.tiles": "clc"},
    {"scheduler.consumers": "ping-pong"},
    {"scheduler.split_k": 4},
    {"cluster.cta_group": 2},
    {"layout.gather": True},
    {"layout.alignment": 4},
    {"stream.y": "matrix"},
    {"stream.y": "row"},
)


def described(kernel: tuple[str, str, str, str], values: dict[str, Any]) -> dict[str, Any]:
    """The data of a file that names the kernel and gives these keys these values."""
    data: dict[str, Any] = {
        "kernel": dict(zip(("op", "backend", "arch", "style"), kernel, strict=True))
    }
    for key, value in values.items():
        *sections, leaf = key.split(".")
        table = data
        for section in sections:
            table = table.setdefault(section, {})
        table[leaf] = copy.deepcopy(value)
    return data


def answer(data: dict[str, Any]) -> str:
    """The kernel's text, or the paragraphs; anything else is a fault of pipegen."""
    try:
        (text,) = rendering.render(plan(description_from_data(data))).values()
    except InputError as error:
        text = str(error)
    assert text
    return text


@pytest.fixture(autouse=True, scope="module")
def _unformatted():
    """Black takes most of a kernel's time, and is not what these tests are about."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering, "format_text", lambda text: text)
        yield


@pytest.mark.parametrize("kernel", KERNELS, ids="-".join)
def test_each_key_at_each_value(kernel):
    for key, values in VALUES.items():
        for value in values:
            try:
                answer(described(kernel, {key: value}))
            except Exception as error:
                pytest.fail(f"{key} = {value!r}: {error!r}")


@settings(max_examples=1500, deadline=None, derandomize=True)
@given(
    kernel=st.sampled_from(KERNELS),
    variant=st.sampled_from(VARIANTS),
    keys=st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=2, unique=True),
    draw=st.data(),
)
def test_keys_together(kernel, variant, keys, draw):
    asked = {key: draw.draw(st.sampled_from(VALUES[key]), key) for key in keys}
    if "mainloop" in asked:
        asked = {"mainloop": asked["mainloop"]}
    answer(described(kernel, variant | asked))
