# SPDX-License-Identifier: Apache-2.0
"""The release distance: the proof itself, plans that break it, and what the emitted files say.

JAX's interpreter computes each wgmma at once, so that no run on a CPU shows a stage that is filled
again while wgmma read it: these tests are about what the generator proves instead.
"""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pipegen as api
from pipegen.arithmetic import OperandRelease
from pipegen.description_file import description_from_data, load_description
from pipegen.errors import InputError
from pipegen.planning import families, plan
from pipegen.planning.release import release_numbers, release_problems

ROOT = Path(__file__).parent.parent
PALLAS = sorted((ROOT / "generated" / "pallas").glob("*gemm_sm90*.toml"))


def overwritten(release: OperandRelease, steps: int) -> list[tuple[int, int]]:
    """What the pipeline does, step by step: (step, wgmma) where a load hits a stage being read.

    As in jax's mosaic_gpu/pipeline.py: after the body of step t, stage t - delay_release is filled
    for step t - delay_release + stages, if there is such a step. The wgmma that may still run are
    the last `in_flight` of those issued; the ring is cut to the number of steps.
    """
    stages = min(release.stages, steps)
    hits = []
    for step in range(steps):
        running = range(max(0, step - release.in_flight + 1), step + 1)
        filled = step - release.delay_release + stages
        if step >= release.delay_release and filled < steps:
            hits += [(filled, read) for read in running if read % stages == filled % stages]
    return hits


@given(
    in_flight=st.integers(0, 6),
    delay_release=st.integers(0, 6),
    stages=st.integers(1, 8),
    steps=st.integers(1, 30),
)
def test_what_is_proven_overwrites_nothing(in_flight, delay_release, stages, steps):
    release = OperandRelease("a", in_flight, delay_release, stages)
    if not release.fault:
        assert overwritten(release, steps) == []


@given(in_flight=st.integers(1, 6), short=st.integers(1, 6), stages=st.integers(1, 8))
def test_what_is_read_too_long_is_overwritten(in_flight, short, stages):
    """The proof refuses no more than it must: each distance that is too short really races."""
    release = OperandRelease("a", in_flight, max(0, in_flight - short), stages + in_flight)
    assert "a silent race" in release.fault
    assert overwritten(release, 3 * release.stages)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((0, 0, 2), ""),
        ((1, 1, 2), ""),
        ((0, 1, 4), ""),
        ((2, 3, 4), ""),
        ((1, 0, 4), "a silent race"),
        ((2, 1, 4), "a silent race"),
        ((1, 4, 4), "none is left to load ahead"),
        ((1, 1, 1), "none is left to load ahead"),
        ((-1, 0, 4), "neither can be negative"),
        ((0, -1, 4), "neither can be negative"),
    ],
)
def test_faults_by_hand(numbers, words):
    fault = OperandRelease("b", *numbers).fault
    assert bool(fault) == bool(words)
    assert words in fault
    assert fault == "" or fault.startswith("b: ")


def described(style: str, mainloop: dict[str, int], **sections: object):
    return description_from_data(
        {
            "kernel": {"op": "gemm", "backend": "pallas", "arch": "sm_90a", "style": style},
            "pipeline": {"mainloop": mainloop},
            **sections,
        }
    )


@pytest.mark.parametrize("style", ["emit-pipeline", "warp-specialized"])
@pytest.mark.parametrize(
    ("mainloop", "distance"),
    [
        ({}, None),
        ({"in_flight": 0}, (0, 0)),
        ({"in_flight": 1}, (1, 1)),
        ({"in_flight": 2}, (2, 2)),
        ({"delay_release": 0}, (0, 0)),
        ({"delay_release": 1}, (1, 1)),
        ({"delay_release": 2}, (1, 2)),
        ({"in_flight": 0, "delay_release": 1}, (0, 1)),
    ],
)
def test_a_plan_states_what_it_proves(style, mainloop, distance):
    made = plan(described(style, mainloop))
    if distance is None:  # a lone warpgroup leaves one in flight, two compute in turn
        distance = (1, 1) if style == "emit-pipeline" else (0, 0)
    pipe = made.pipeline("mainloop")
    expected = [OperandRelease(each, *distance, pipe.stages) for each in ("a", "b")]
    assert list(pipe.releases) == expected
    in_flight, kept = distance
    for operand in ("a", "b"):
        stated = made.number(f"{operand}_release_distance").value
        assert stated == f"{in_flight} <= {kept} < {pipe.stages}"


@pytest.mark.parametrize("style", ["emit-pipeline", "warp-specialized"])
@pytest.mark.parametrize(
    "mainloop",
    [
        {"in_flight": 1, "delay_release": 0},
        {"in_flight": 2, "delay_release": 1},
        {"in_flight": 2, "stages": 2},
        {"delay_release": 2, "stages": 2},
    ],
)
def test_a_description_that_races_is_refused(style, mainloop):
    with pytest.raises(InputError) as caught:
        plan(described(style, mainloop))
    assert [problem.rule for problem in caught.value.problems] == ["PG301"]


@pytest.mark.parametrize("operand", [0, 1])
def test_a_plan_that_races_is_refused_whoever_made_it(monkeypatch, operand):
    """A planner that gets one operand wrong: `plan` reads the plan, not the description."""
    family = families.FAMILIES["gemm_sm90_pallas"]

    def faulty(*arguments):
        made = family.plan(*arguments)
        pipe = made.pipeline("mainloop")
        wrong = list(pipe.releases)
        wrong[operand] = replace(wrong[operand], in_flight=wrong[operand].delay_release + 1)
        pipe = replace(pipe, releases=tuple(wrong))
        return replace(made, pipelines=(pipe, *made.pipelines[1:]))

    description = described("warp-specialized", {})
    assert list(release_problems(plan(description))) == []
    monkeypatch.setitem(families.FAMILIES, "gemm_sm90_pallas", replace(family, plan=faulty))
    with pytest.raises(InputError) as caught:
        plan(description)
    (problem,) = caught.value.problems
    assert problem.rule == "PG301"
    assert problem.message.startswith(f"{'ab'[operand]}: when a step ends, up to 1 wgmma")


def constants(tree: ast.Module) -> dict[str, object]:
    """The module's constants by name."""
    found: dict[str, object] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


def calls(tree: ast.Module, name: str) -> list[ast.Call]:
    """The calls of plgpu.NAME."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == name
    ]


def stated(text: str) -> list[OperandRelease]:
    """The distance of each operand as an emitted module's own calls have it."""
    tree = ast.parse(text)
    known = constants(tree)

    def value(node: ast.expr) -> int:
        number = known[node.id] if isinstance(node, ast.Name) else ast.literal_eval(node)
        assert isinstance(number, int)
        return number

    # The step awaits its wgmma by wgmma_wait, once; what it leaves out is in flight.
    (wait,) = calls(tree, "wgmma_wait")
    emitters = calls(tree, "emit_pipeline") + calls(tree, "emit_pipeline_warp_specialized")
    (emitter,) = emitters
    keywords = {each.arg: each.value for each in emitter.keywords}
    in_specs = keywords["in_specs"]
    assert isinstance(in_specs, ast.List)
    found = []
    for operand, spec in zip("ab", in_specs.elts, strict=True):
        assert isinstance(spec, ast.Call)
        delays = [each.value for each in spec.keywords if each.arg == "delay_release"]
        kept = value(delays[0]) if delays else 0
        stages = value(keywords["max_concurrent_steps"])
        found.append(OperandRelease(operand, value(wait.args[0]), kept, stages))
    return found


def through_a_pipeline(path: Path) -> bool:
    """Whether the kernel calls one of the two emitters itself."""
    return load_description(path).kernel.style in (None, "warp-specialized", "emit-pipeline")


# (Ping-pong has barriers of its own, and test_pallas_pingpong.py reads them.)
GEMMS = [
    path
    for path in PALLAS
    if not {"mixed", "pingpong"} & {*path.stem.split("_")} and through_a_pipeline(path)
]


@pytest.mark.parametrize("path", GEMMS, ids=lambda path: path.stem)
def test_the_emitted_calls_have_the_plans_distance(path):
    made = plan(load_description(path))
    text = path.with_suffix(".py").read_text(encoding="utf-8")
    assert tuple(stated(text)) == made.pipeline("mainloop").releases
    assert all(each.fault == "" for each in stated(text))
    first, _ = release_numbers(made.pipeline("mainloop").releases)
    assert text.count(str(first.value)) == 2  # the docstring and the constant


def test_an_edit_of_the_emitted_file_would_be_seen():
    """The comparison above sees a wait that leaves one wgmma more in flight."""
    path = ROOT / "generated" / "pallas" / "pallas_gemm_sm90_ws_in_flight.py"
    text = path.read_text(encoding="utf-8")
    assert [each.fault for each in stated(text)] == ["", ""]
    edited = text.replace("wgmma_wait(IN_FLIGHT)", "wgmma_wait(2)")
    assert edited != text
    assert all("a silent race" in each.fault for each in stated(edited))
    assert api.plan(load_description(path.with_suffix(".toml")))


def test_a_family_without_the_keys_refuses_them():
    for key in ("in_flight", "delay_release"):
        data = {
            "kernel": {"op": "gemm", "backend": "cute", "arch": "sm_90a"},
            "pipeline": {"mainloop": {key: 1}},
        }
        with pytest.raises(InputError) as caught:
            plan(description_from_data(data))
        assert [problem.key for problem in caught.value.problems] == [f"pipeline.mainloop.{key}"]
