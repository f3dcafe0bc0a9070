# SPDX-License-Identifier: Apache-2.0
"""`pipegen tune` without a GPU: the candidates, who goes on, the results file, what is written."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import fake_gpu
import pytest
from click.testing import CliRunner

from pipegen.cli import main
from pipegen.compiling.installed import dsl
from pipegen.description_file import load_description, parse_description
from pipegen.errors import InputError
from pipegen.measuring.protocol import Entrant
from pipegen.measuring.shapes import load_list
from pipegen.tuning import jobs, proposing, search, space
from pipegen.tuning.executors import Place, check_executor, place
from pipegen.tuning.halving import Stage, tune_shape
from pipegen.tuning.order import USUAL, model_tiles, nvidia_tiles, tile_cost, tiles_for
from pipegen.tuning.ranking import failures, losing, mean_ratio, overall
from pipegen.tuning.results import Results, description_digest, read_results, write_results
from pipegen.tuning.writing import updated_text, write_best

ROOT = Path(__file__).parent.parent
SHAPES = [(1024, 576, 7168), (4096, 4096, 4096)]
TOML = """pipegen = 1

[kernel]
op = "gemm"
backend = "cute"
arch = "sm_90a"
name = "k"

# mine
[cluster]
shape = [2, 1]  # two
"""


@pytest.fixture
def description():
    return parse_description(TOML)


def candidate_of(description, *values):
    found = space.Planner(description).candidate(values)
    assert found is not None
    return found


def test_what_the_rules_refuse_is_dropped_with_the_rule(description):
    tiles = [(128, 256), (128, 176), (64, 16)]
    planner = space.Planner(description)
    found, left = planner.first(proposing.proposals(description, (256, 512, 4096), tiles), 1000)
    names = [each.name for each in found]
    assert left == 0
    assert "k__m128_n256_k64_c2x1" in names
    assert "k__m64_n16_k128_c1x1_w1" in names
    assert "k__m128_n176_k64_c1x1_pingpong" in names
    assert all("pingpong" not in name for name in names if "n256" in name)
    count, why = space.reasons(planner.dropped)["PG204"]
    assert set(space.reasons(planner.dropped)) == {"PG204"}
    assert count == 3  # ping-pong with 128 x 256, in each cluster
    assert "256 registers" in why
    assert len({each.text for each in found}) == len(names) == len(set(names))


def words_of(description, shape, tiles):
    return [space.spelled(values) for values in proposing.proposals(description, shape, tiles)]


def test_what_is_tried_depends_on_the_size(description):
    few = words_of(description, (128, 512, 4096), [(64, 32), (128, 256)])
    # 2 x 16 tiles of 64 x 32: four CTAs for each are 128, and eight are more than there are SMs.
    assert "m64_n32_k128_c2x1_w1_split4" in few
    assert not any("split8" in word or "pingpong_split" in word for word in few)
    assert not any("n256" in word for word in few if "split" in word)  # small tiles alone
    many = words_of(description, (4096, 4096, 4096), [(64, 32), (128, 256)])
    assert not any("split" in word for word in many)  # every SM has a tile
    # A cluster needs two tiles on that side; and what has none comes first.
    assert not any("c2x1" in word for word in few if word.startswith("m128"))
    assert any("c2x1" in word for word in many if word.startswith("m128"))
    singles = ["c1x1" in word for word in many]
    assert singles == sorted(singles, reverse=True)


def test_values_that_give_the_same_module_count_once(description):
    same = [(("tile.m", 128), ("tile.n", 256)), (("tile.m", 128),), (("tile.n", 128),)]
    found, _ = space.Planner(description).first(same, 10)
    assert [each.values for each in found] == [same[0], same[2]]


def test_no_more_is_planned_than_is_asked_for(description):
    planner = space.Planner(description)
    values = [(("tile.n", 300),), *((("tile.n", n),) for n in (64, 128, 192, 256))]
    found, left = planner.first(values, 2)
    assert [each.values for each in found] == [(("tile.n", 64),), (("tile.n", 128),)]
    assert left == 2
    assert [each.code for each in planner.dropped] == ["PG203"]
    planner.first(values, 2)
    assert len(planner.dropped) == 1  # refused once


def test_a_kept_key_stays(description):
    proposals = proposing.proposals(description, SHAPES[1], [(128, 192)])
    found, _ = space.Planner(description, keep=["cluster.shape"]).first(proposals, 100)
    assert found
    for candidate in found:
        assert "cluster.shape" not in dict(candidate.values)
        assert "CLUSTER_M, CLUSTER_N = 2, 1" in candidate.text


def test_a_search_starts_without_what_it_sets(description):
    assert space.without(description).cluster.shape is None
    assert space.without(description, ["cluster.shape"]).cluster.shape == (2, 1)


def test_neighbours_differ_in_one_value(description):
    candidate = candidate_of(description, ("tile.m", 128), ("tile.n", 192), ("tile.k", 64))
    found = proposing.variations(candidate, "gemm", stages=5, buffers=4)
    assert (*candidate.values, ("scheduler.raster_group", 16)) in found
    assert (*candidate.values, ("pipeline.mainloop.stages", 4)) in found
    assert (*candidate.values, ("pipeline.epilogue.stages", 2)) in found
    assert (*candidate.values, ("role.producer.registers", 24)) in found
    assert all(len(set(values) - set(candidate.values)) == 1 for values in found)
    made, _ = space.Planner(description).first(found, 100)
    assert len(made) > 5
    raster = proposing.raster_variations(candidate)
    assert {dict(values)["scheduler.raster_group"] for values in raster} == {4, 16, 32}


@pytest.mark.parametrize("op", ["stream", "reduce"])
def test_what_moves_bytes_has_candidates_too(op):
    backend = "pallas" if op == "reduce" else "cute"
    toml = f'pipegen = 1\nkernel = {{ op = "{op}", backend = "{backend}", arch = "sm_90a" }}\n'
    description = parse_description(toml)
    proposed = proposing.proposals(description, (4096, 4096, 1), [])
    found, _ = space.Planner(description).first(proposed, 100)
    assert len(found) > 3
    assert not proposing.raster_variations(found[0])
    # The longest row of a reduce is no matter of speed.
    assert ("tile.n" in space.searched(op)) == (op == "stream")


# The tile that was fastest on an H200 (docs/tuning.md) is the first, or among the first few.
@pytest.mark.parametrize(
    ("shape", "tile", "place"),
    [
        ((128, 576, 7168), (64, 16), 1),
        ((128, 2112, 7168), (64, 32), 1),
        ((128, 4096, 7168), (64, 64), 1),
        ((1024, 576, 7168), (64, 96), 2),
        ((1024, 2112, 7168), (256, 64), 2),
        ((4096, 576, 7168), (128, 144), 1),
        ((4096, 2112, 7168), (128, 176), 1),
        ((4096, 7168, 16384), (128, 176), 2),
    ],
)
def test_the_model_names_the_tile_that_was_fastest(shape, tile, place):
    assert tile in model_tiles(shape, 132, place)


def test_the_cost_of_a_tile():
    # 132 tiles: one wave; 133: two. 64 x 64 loads longer than it multiplies.
    assert tile_cost((64 * 132, 64, 128), 64, 64, 132) == pytest.approx(4 + 2)
    assert tile_cost((64 * 133, 64, 128), 64, 64, 132) == pytest.approx(2 * 6)


def test_the_usual_tiles_are_tried_at_every_size():
    for shape in SHAPES:
        tiles = tiles_for(shape, 132, 3)
        assert tiles[:3] == model_tiles(shape, 132, 3)
        assert set(USUAL) <= set(tiles)
    assert tiles_for(SHAPES[0], 132, 3, first=[(128, 48)])[:2] == [
        (128, 48),
        model_tiles(SHAPES[0], 132, 1)[0],
    ]


def test_nvidias_heuristics_are_optional(monkeypatch):

    monkeypatch.setitem(sys.modules, "nvMatmulHeuristics", None)
    with pytest.raises(InputError, match="pip install nvidia-matmul-heuristics"):
        nvidia_tiles(SHAPES, ("bf16", "bf16"), ("k", "k"), 4)


def test_nvidias_heuristics_propose_tiles():
    pytest.importorskip("nvMatmulHeuristics")
    found = nvidia_tiles(SHAPES, ("bf16", "bf16"), ("k", "k"), 4)
    assert len(found) == len(SHAPES)
    assert all(1 <= len(tiles) <= 4 for tiles in found)
    with pytest.raises(InputError, match="nothing is known of i8"):
        nvidia_tiles(SHAPES, ("i8", "i32"), ("k", "k"), 4)


def entrants(tmp_path, *names):
    paths = [tmp_path / f"{name}.py" for name in names]
    for path in paths:
        path.write_text("# SPDX\n", encoding="utf-8")
    return [Entrant(path.stem, path) for path in paths]


STAGES = (Stage(3, 0.001, 2), Stage(5, 0.01, 1))


def test_the_slower_half_stops(tmp_path):
    names = [f"k__m64_n{n}_x" for n in (16, 32, 64, 128)]
    timed = []

    class Counting(fake_gpu.FakeGpu):
        def time(self, names, rounds, seconds):
            timed.append((sorted(names), rounds))
            return super().time(names, rounds, seconds)

    gpu = Counting(1.0)
    shape = (4096, 4096, 4096)
    found = tune_shape(gpu, shape, entrants(tmp_path, *names), ["cublas"], STAGES, [names[0]])
    order = sorted(names, key=lambda name: fake_gpu.seconds_of(shape, name))
    assert timed[0] == (sorted([*names, "cublas"]), 3)
    # The two fastest, and the one that always goes on; the last stage keeps one of them.
    assert timed[1] == (sorted({*order[:2], names[0], "cublas"}), 5)
    assert [timing.name for timing in found.ranked] == [order[0], names[0]]
    best = found.ranked[0]
    assert best.seconds == pytest.approx(fake_gpu.seconds_of(shape, order[0]))
    assert best.ratios["cublas"].ratio == pytest.approx(fake_gpu.PEER_SECONDS / best.seconds)
    assert found.shares[order[0]] == 1.0
    assert set(found.shares) == set(names)
    assert found.peers["cublas"] == ("", fake_gpu.PEER_SECONDS)


def test_who_is_wrong_or_hangs_is_reported_and_never_ranked(tmp_path):
    names = [f"k__m64_n{n}_x" for n in (48, 80, 96, 128)]
    found = tune_shape(fake_gpu.Faulty(1.0), SHAPES[0], entrants(tmp_path, *names), [], STAGES)
    assert [timing.name for timing in found.ranked] == [names[3]]
    assert found.out[names[0]].startswith("wrong")
    assert "hang" in found.out[names[1]]
    assert "SIGSEGV" in found.out[names[2]]
    assert set(found.shares) == {names[3]}
    nobody = tune_shape(fake_gpu.Faulty(1.0), SHAPES[0], entrants(tmp_path, names[0]), [], STAGES)
    assert (nobody.ranked, list(nobody.out)) == ((), [names[0]])


def compiled(job):
    return jobs.Compiled(job.name, job.text, b"object")


@pytest.fixture
def found_by(description, monkeypatch):
    """Searches with a fake GPU and no compiler: what came out, and the results."""
    monkeypatch.setattr(search, "compile_candidate", compiled)
    monkeypatch.setattr(fake_gpu.FakeGpu, "measured", [])
    proposed = {
        shape: proposing.proposals(description, shape, tiles_for(shape, 132, 3)) for shape in SHAPES
    }

    def run(results, factory="fake_gpu:FakeGpu", **more):
        options = search.Options(("cublas",), factory=factory, **more)
        saved = []
        with ThreadPoolExecutor(2) as pool, ThreadPoolExecutor(1) as one:
            outcome = search.search(
                description, proposed, options, results, Place(pool, one, 1), "Fake GPU",
                saved.append,
            )  # fmt: skip
        jobs.close()
        return outcome, saved

    return run


def test_a_search_finds_what_the_formula_says(found_by):
    outcome, saved = found_by(Results())
    assert len(saved) == 2 * len(SHAPES)  # after each size, in both rounds
    first, second = outcome.shapes
    assert fake_gpu.tile_of(first.ranked[0].name) == model_tiles(SHAPES[0], 132, 1)[0]
    # Two tiles cost the same there.
    costs = [
        tile_cost(SHAPES[1], m, n, 132)
        for m, n in (fake_gpu.tile_of(second.ranked[0].name), model_tiles(SHAPES[1], 132, 1)[0])
    ]
    assert costs[0] == costs[1]
    assert all("_r16" in result.ranked[0].name for result in outcome.shapes)  # by the neighbours
    assert outcome.described == "k__as_described"
    for result in outcome.shapes:
        assert 0 < result.shares[outcome.described] <= 1
    ranking = overall(outcome.shapes)
    assert ranking[0].share >= ranking[-1].share
    assert mean_ratio(outcome.shapes, "cublas") > 0
    assert losing(outcome.shapes, "cublas", 1e9)
    assert not losing(outcome.shapes, "cublas", 0.0)


def test_without_refining_there_is_one_round(found_by):
    outcome, saved = found_by(Results(), near=0)
    assert len(saved) == len(SHAPES)
    assert not any("_r16" in name for name in outcome.candidates)


def test_fewer_candidates_are_compiled(found_by):
    outcome, _ = found_by(Results(), near=0, most=5)
    assert {len(result.shares) for result in outcome.shapes} == {6}  # and the description
    assert set(outcome.candidates) == {n for result in outcome.shapes for n in result.shares}
    assert outcome.left_out > 0


def test_the_fastest_of_each_size_may_be_tried_at_all(found_by):
    outcome, _ = found_by(Results(), most=5, for_all=True)
    fastest = fake_gpu.tile_of(outcome.shapes[0].ranked[0].name)
    elsewhere = outcome.shapes[1].shares
    assert fastest in map(fake_gpu.tile_of, elsewhere)
    alone, _ = found_by(Results(), most=5)
    assert fastest not in map(fake_gpu.tile_of, alone.shapes[1].shares)


def test_peers_are_timed_once(found_by):
    """In the last round: one that tunes itself takes longer than all candidates."""
    results = Results()
    found_by(results)
    assert {("coarse" in key, bool(entry["peers"])) for key, entry in results.entries.items()} == {
        (True, False),
        (False, True),
    }
    results = Results()
    found_by(results, near=0)
    assert all(entry["peers"] for entry in results.entries.values())


def test_a_search_goes_on_where_it_was(found_by, tmp_path):
    results = Results()
    before, _ = found_by(results)
    path = tmp_path / "k.tune.json"
    write_results(path, results)
    fake_gpu.FakeGpu.measured.clear()
    again, saved = found_by(read_results(path))
    assert fake_gpu.FakeGpu.measured == saved == []
    assert again.resumed == 2 * len(SHAPES)
    assert [r.ranked for r in again.shapes] == [r.ranked for r in before.shapes]
    # One size is lost: it alone is measured again.
    partial = read_results(path)
    key = next(key for key in partial.entries if "coarse" in key)
    del partial.entries[key]
    found_by(partial)
    assert len(fake_gpu.FakeGpu.measured) == 1
    # Other candidates: everything again.
    fake_gpu.FakeGpu.measured.clear()
    found_by(read_results(path), most=4, near=0)
    assert len(fake_gpu.FakeGpu.measured) == len(SHAPES)


def test_a_hang_is_paid_for_once(found_by):
    results = Results()
    first, _ = found_by(results, factory="fake_gpu:Faulty", near=0)
    hung = {name for name, (why, _) in failures(first.shapes).items() if "hang" in why}
    assert hung
    assert not hung & {timing.name for result in first.shapes for timing in result.ranked}
    for entry in results.entries.values():
        entry["space"] = "another"  # so that it is measured again
    second, _ = found_by(results, factory="fake_gpu:Faulty", near=0)
    assert hung <= set(second.not_compiled)
    assert not hung & {name for result in second.shapes for name in result.out}
    wrong = {name for name, (why, _) in failures(second.shapes).items() if "wrong" in why}
    assert wrong  # costs nothing, and is tried again


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    path = tmp_path / "package.json"
    path.write_text('{"name": "mine"}', encoding="utf-8")
    with pytest.raises(InputError, match="no results file"):
        read_results(path)
    path.write_text("{", encoding="utf-8")
    with pytest.raises(InputError, match="cannot be read"):
        read_results(path)
    assert read_results(tmp_path / "absent.json").entries == {}


def test_the_best_goes_into_the_description_and_comments_stay(description):
    values = (("tile.m", 128), ("tile.n", 192), ("scheduler.consumers", "ping-pong"))
    text = updated_text(TOML, candidate_of(description, *values))
    assert text.startswith(TOML.partition("shape")[0])
    assert "# mine" in text
    assert "shape" not in text  # the default again, which is what was measured
    changed = parse_description(text)
    assert (changed.tile.m, changed.tile.n, changed.scheduler.consumers) == (128, 192, "ping-pong")
    kept = updated_text(TOML, candidate_of(description, *values), keep=["cluster.shape"])
    assert "shape = [2, 1]  # two" in kept
    roles = (("role.consumer.warpgroups", 1), ("tile.m", 64), ("pipeline.mainloop.stages", 3))
    changed = parse_description(updated_text(TOML, candidate_of(description, *roles)))
    assert changed.role["consumer"].warpgroups == 1
    assert changed.pipeline["mainloop"].stages == 3


def test_what_is_written_is_what_was_measured(description):
    """The module of the changed description is the candidate's, but for its name."""
    from pipegen.planning import plan
    from pipegen.rendering import render

    for proposal in proposing.proposals(description, SHAPES[1], [(128, 176), (64, 16)])[::3]:
        candidate = candidate_of(description, *proposal)
        changed = parse_description(updated_text(TOML, candidate))
        (text,) = render(plan(changed), formatted=False).values()
        body = candidate.text.replace(candidate.name, "k").partition('"""')[2]
        assert text.partition('"""')[2] == body


def test_an_edited_module_is_left_alone(tmp_path, description):
    path = tmp_path / "k.toml"
    path.write_text(TOML, encoding="utf-8")
    assert CliRunner().invoke(main, ["generate", str(path)]).exit_code == 0
    module = path.with_suffix(".py")
    candidate = candidate_of(description, ("tile.n", 192))
    assert [what for _, what in write_best(path, candidate)] == ["updated", "updated"]
    assert "TILE_M, TILE_N, TILE_K = 128, 192, 64" in module.read_text()
    edited = module.read_text() + "# mine\n"
    module.write_text(edited, encoding="utf-8")
    other = candidate_of(description, ("tile.n", 128))
    assert write_best(path, other)[1][1] == "was edited, and left alone"
    assert module.read_text() == edited
    assert "128" in path.read_text()
    module.unlink()
    assert "not written" in write_best(path, candidate)[1][1]


@pytest.mark.parametrize("word", ["", "dask", "dask://", "threads", "ray://x"])
def test_a_wrong_executor_is_named(word):
    with pytest.raises(InputError, match="no such executor"):
        check_executor(word)


def test_processes_compile_and_measure():
    """Jobs and results are plain data: another process takes them, and gives them back."""
    job = jobs.MeasureJob(
        SHAPES[0], (compiled(_job("k__m64_n96_x")),), (), factory="fake_gpu:FakeGpu"
    )
    with place("processes", 1) as found:
        here = found.measuring.submit(jobs.measure, job).result()
        there = found.compiling.submit(jobs.measure, job).result()
    assert here == there
    assert here.ranked[0].name == "k__m64_n96_x"
    jobs.close()


def _job(name):
    return jobs.CompileJob(name, "# SPDX\n", 60.0, cached=False)


def test_a_cluster_of_two_workers():
    distributed = pytest.importorskip("distributed")
    job = jobs.MeasureJob(
        SHAPES[0], (compiled(_job("k__m64_n96_x")),), (), factory="fake_gpu:FakeGpu"
    )
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None, protocol="tcp"
        ) as cluster,
        place(cluster.scheduler_address.replace("tcp://", "dask://"), 1) as found,
    ):
        assert found.at_once == 2
        futures = [found.measuring.submit(jobs.measure, replace(job, shape=s)) for s in SHAPES]
        assert [future.result().shape for future in futures] == SHAPES


def test_no_cluster_is_said():
    pytest.importorskip("distributed")
    with (
        pytest.raises(InputError, match="no dask scheduler answers"),
        place("dask://127.0.0.1:9", 1),
    ):
        pass


def test_a_candidate_that_cannot_be_compiled_is_no_end(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    text = "raise SystemExit(3)\nimport cutlass\n--compile-only\n"
    found = jobs.compile_candidate(jobs.CompileJob("k", text, 60.0))
    assert found.object is None
    assert found.failed


@pytest.mark.skipif(not dsl("cute").usable, reason="needs the CuTe DSL")
def test_a_candidate_compiles_to_an_object_that_is_kept(description, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    candidate = candidate_of(description, ("tile.m", 64), ("tile.n", 32), ("tile.k", 64))
    job = jobs.CompileJob(candidate.name, candidate.text, 120.0)
    found = jobs.compile_candidate(job)
    assert found.failed == ""
    assert found.object.startswith(b"\x7fELF")
    again = jobs.compile_candidate(job)
    assert (again.object, again.seconds) == (found.object, 0.0)


def invoke(*arguments, **more):
    return CliRunner().invoke(main, [str(each) for each in arguments], **more)


GEMM = ROOT / "generated" / "cute" / "gemm_sm90_c2x1.toml"


def test_a_dry_run_lists_the_candidates(tmp_path):
    done = invoke("tune", GEMM, "--shape", "1024,576,7168", "--dry-run", "--format", "json")
    assert done.exit_code == 0, done.output
    data = json.loads(done.stdout)
    assert any("m64_n96" in name for name in data["candidates"])
    assert all(each["rule"] == "PG204" for each in data["dropped"])
    plain = invoke("tune", GEMM, "--shapes", "bar", "--dry-run", "--most", "7")
    assert "at most 7 at a size" in plain.stdout
    assert "dropped by PG204" in plain.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shape", "1,2"), ""),
        (("--shape", "big"), "is no size"),
        (("--shapes", "nobody"), "no list that comes with pipegen"),
        (("--against", "cubls"), "Nearest valid choice: cublas"),
        (("--keep", "tile.q"), "is no key that is searched"),
        (("--executor", "ray"), "no such executor"),
        (("--most", "0"), "most"),
    ],
)
def test_faults_of_the_call_are_named(arguments, message, tmp_path):
    done = invoke("tune", GEMM, *arguments, "--results", tmp_path / "r.json")
    if not message:
        assert done.exit_code == 0  # a skip, for want of a GPU
        assert "SKIP" in done.output
        return
    assert done.exit_code == 2
    assert message in done.output
    assert not list(tmp_path.iterdir())


def test_an_op_with_nothing_to_search_is_named():
    custom = ROOT / "generated" / "cute" / "custom_sm90_convert.toml"
    done = invoke("tune", custom, "--dry-run")
    assert done.exit_code == 2
    assert "has nothing that a search may change" in done.output


def test_the_shown_table_and_lines(found_by):
    from rich.console import Console

    from pipegen.tuning.report import as_data, closing_lines, table

    outcome, _ = found_by(Results(), factory="fake_gpu:Faulty")
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table(outcome, ["cublas"]))
    shown = console.export_text()
    assert "1024x576x7168" in shown
    assert outcome.shapes[0].ranked[0].name.removeprefix("k__") in shown
    lines = "\n".join(closing_lines(outcome, ["cublas"]))
    assert "cublas: geometric mean" in lines
    assert "timed at every size" in lines
    assert "the description as it stands" in lines
    assert "OUT " in lines
    data = json.loads(json.dumps(as_data(outcome, ["cublas"])))
    assert data["shapes"][0]["ranked"][0]["values"]["tile.m"] in (64, 128, 256)
    assert data["overall"][0]["share"] <= 1


def test_the_bar_is_the_list_of_the_issue():
    assert len(load_list("bar").shapes) == 25
    assert load_description(GEMM).kernel.op == "gemm"


@pytest.mark.parametrize("page", ["docs/tuning.md", "README.md"])
def test_the_page_says_what_the_committed_search_found(page):
    done = subprocess.run(
        [sys.executable, "benchmarks/tuning_table.py", "--check", page],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_committed_search_is_one_that_a_search_goes_on_from():
    results = read_results(ROOT / "benchmarks" / "tune_gemm_sm90_bf16.json")
    shapes = {tuple(entry["shape"]) for entry in results.entries.values()}
    assert shapes == set(load_list("bar").shapes)
    digest = description_digest(load_description(ROOT / "benchmarks" / "gemm.toml"))
    assert all(key.startswith(f"{digest} | NVIDIA H200 | ") for key in results.entries)
