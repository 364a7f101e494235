"""Analyses read exactly the declared records, refuse stale ones, mark diverged seeds and say what is equal."""

import pytest

import made_up_study as made_up
from depthtime import paths
from depthtime.analyse.aggregate import analyse
from depthtime.errors import RecordError
from depthtime.records import read_json


@pytest.fixture
def study(tmp_path, monkeypatch):
    """A made-up study in the current folder, analysed."""
    monkeypatch.chdir(tmp_path)
    study = made_up.load_study(tmp_path)
    made_up.write_study(study)
    return study


def core(study):
    analyse(study, "core")
    return read_json(paths.analysis("core"))


def test_means_are_over_seeds_on_the_perplexity_scale(study):
    entry = core(study)["runs"]["discrete"]["curve"][-1]
    values = [119.0 * (1 + shift) for shift in made_up.SHIFTS]
    assert (entry["step"], entry["n"], entry["num_scored"]) == (3000, 5, 87192)
    assert entry["mean"] == pytest.approx(sum(values) / 5)
    assert list(entry["perplexity"].values()) == pytest.approx(values)


def test_every_missing_record_is_named(study):
    for seed in (43, 45):
        paths.record("core", "ode", seed).unlink()
    with pytest.raises(RecordError) as caught:
        analyse(study, "core")
    assert "2 of 10" in str(caught.value)
    assert "results/records/core/ode/43.json" in str(caught.value)
    assert "results/records/core/ode/45.json" in str(caught.value)


def test_a_record_made_with_other_parameters_is_refused_as_stale(study):
    made_up.change_run("core", "ode", 44, digest="f" * 64)
    with pytest.raises(RecordError, match=r"core/ode/44.json: stale.*ffffffffffff.*snakemake core"):
        analyse(study, "core")


def test_a_record_of_another_run_is_refused(study):
    made_up.change_run("core", "ode", 44, seed=45)
    with pytest.raises(RecordError, match="claims to be core/ode/45"):
        analyse(study, "core")


def test_a_damaged_record_is_refused_with_what_it_lacks(study):
    path = paths.record("core", "ode", 44)
    path.write_text('{"schema": 1, "group": "core"}\n')
    with pytest.raises(RecordError, match="lacks run, seed"):
        analyse(study, "core")


def test_records_of_different_data_do_not_mix(study):
    made_up.change_run("core", "ode", 44, data={"split_sha256": "1" * 64})
    with pytest.raises(RecordError, match="different data"):
        analyse(study, "core")


def test_a_completed_record_without_an_evaluation_is_refused(study):
    record = read_json(paths.record("core", "ode", 44))
    made_up.change_run("core", "ode", 44, curve=record["curve"][:-1])
    with pytest.raises(RecordError, match=r"no evaluation at steps \[3000\]"):
        analyse(study, "core")


def test_a_leftover_record_of_a_dropped_seed_is_not_read(study):
    before = core(study)
    made_up.write_run(study, "core", "ode", 44)
    leftover = paths.record("core", "ode", 99)
    leftover.write_text("not even JSON")
    assert core(study) == before


def test_nothing_is_written_when_a_record_is_refused(study):
    before = paths.analysis("core").read_bytes()
    made_up.change_run("core", "ode", 44, digest="f" * 64)
    with pytest.raises(RecordError):
        analyse(study, "core")
    assert paths.analysis("core").read_bytes() == before


def test_the_same_records_give_the_same_bytes(study):
    before = paths.analysis("core").read_bytes()
    analyse(study, "core")
    assert paths.analysis("core").read_bytes() == before


def test_a_selected_learning_rate_is_part_of_what_a_record_must_match(study):
    assert read_json(paths.analysis("tuned"))["runs"]["ode"]["learning_rate"] == 2e-3
    selection = read_json(paths.selection("tuned"))
    selection["chosen"]["ode"]["learning_rate"] = 5e-4
    made_up.write_json(paths.selection("tuned"), selection)
    with pytest.raises(RecordError, match=r"tuned/ode/43.json: stale"):
        analyse(study, "tuned")


def test_a_diverged_seed_is_marked_and_leaves_no_mean(study):
    made_up.diverge("core", "ode", 44, at=1700)
    analysis = core(study)
    run, pair = analysis["runs"]["ode"], analysis["pairs"][0]
    assert run["diverged_seeds"] == {"44": 1700}
    assert run["curve"][2]["diverged"] == []  # step 1500: all five seeds were alive
    assert run["curve"][2]["n"] == 5
    for entry in (run["curve"][3], run["final"], run["best"]):
        assert entry["diverged"] == [44]
        assert (entry["n"], entry["mean"], entry["low"]) == (4, None, None)
    assert pair["final"]["diverged"] == [44]
    assert pair["final"]["difference"]["mean"] is None
    assert pair["final"]["by_seed"]["44"] is None
    assert pair["final"]["by_seed"]["42"] is not None
    assert pair["crossing"]["of_mean"] is None
    assert pair["crossing"]["num_crossing"] == 4


def test_a_diverged_record_may_end_early(study):
    made_up.diverge("core", "ode", 44, at=1700)
    record = read_json(paths.record("core", "ode", 44))
    made_up.change_run("core", "ode", 44, curve=record["curve"][:3])
    assert core(study)["runs"]["ode"]["curve"][-1]["diverged"] == [44]


def test_one_seed_gives_no_intervals(study):
    analysis = read_json(paths.analysis("tuning"))
    final = analysis["runs"]["ode_mid"]["final"]
    assert (final["n"], final["sd"], final["low"]) == (1, None, None)
    assert final["mean"] > 0
    assert analysis["pairs"][0]["final"]["difference"]["p_value"] is None
    assert analysis["pairs"][0]["crossing"]["over_seeds"]["low"] is None


def test_pairs_are_every_later_run_minus_the_first(study):
    pairs = read_json(paths.analysis("tuning"))["pairs"]
    assert {pair["first"] for pair in pairs} == {"discrete_low"}
    assert [pair["second"] for pair in pairs] == ["discrete_mid", "discrete_high", "ode_low", "ode_mid", "ode_high"]


def test_differences_are_paired_by_seed(study):
    analysis = core(study)
    final = analysis["pairs"][0]["final"]
    first, second = (analysis["runs"][run]["final"]["perplexity"] for run in ("discrete", "ode"))
    assert final["by_seed"] == pytest.approx({seed: second[seed] - first[seed] for seed in first})
    percents = [100 * (second[seed] / first[seed] - 1) for seed in first]
    assert final["percent"]["mean"] == pytest.approx(sum(percents) / 5)
    assert final["difference"]["low"] < final["difference"]["mean"] < final["difference"]["high"]


def test_curves_cross_once_for_every_seed(study):
    crossing = core(study)["pairs"][0]["crossing"]
    assert crossing["num_crossing"] == crossing["num_seeds"] == 5
    assert 500 < crossing["step"] < 1000
    assert crossing["over_seeds"]["low"] < crossing["step"] < crossing["over_seeds"]["high"]


def test_what_is_equal_comes_from_the_records(study):
    pair = core(study)["pairs"][0]
    assert set(pair["equal"]) == {"data", "width", "data order", "steps", "optimiser", "schedule", "learning rate"}
    assert {"parameters", "nfe_forward", "flops_per_token_forward"} <= set(pair["not_equal"])
    assert pair["ratios"]["parameters"]["ratio"] == pytest.approx(1226272 / 1622816)
    assert pair["ratios"]["nfe_forward"]["ratio"] == pytest.approx(16 / 3)
    tuning = read_json(paths.analysis("tuning"))["pairs"][0]
    assert "learning rate" in tuning["not_equal"]


def test_a_test_part_is_analysed_where_there_is_one(study):
    standard = read_json(paths.analysis("standard"))
    assert standard["runs"]["ode"]["test"]["num_scored"] == 82430
    assert standard["pairs"][0]["test"]["difference"]["n"] == 3
    assert core(study)["runs"]["ode"]["test"] is None
    assert core(study)["pairs"][0]["test"] is None


def test_a_group_held_against_another_is_paired_with_its_runs_over_the_same_seeds(study):
    """`standard` in the place of a group of controls: two seeds, against both runs of `core` on the same data."""
    row, core = study.groups["standard"], study.groups["core"]
    controls = row.model_copy(
        update={"data": core.data, "seeds": core.seeds[1:3], "against": ("core/discrete", "core/ode")}
    )
    study = study.model_copy(update={"groups": {**study.groups, "standard": controls}})
    for run in controls.runs:
        for seed in controls.seeds:
            made_up.write_run(study, "standard", run, seed)
    analyse(study, "standard")
    found = read_json(paths.analysis("standard"))
    assert list(found["runs"]) == list(controls.runs)
    named = {(pair["first"], pair["second"]): pair for pair in found["pairs"]}
    assert list(named) == [
        ("core/discrete", "discrete"), ("core/discrete", "ode"), ("core/ode", "discrete"), ("core/ode", "ode"),
    ]  # fmt: skip
    for (first, second), pair in named.items():
        group, _, run = first.partition("/")
        for seed in controls.seeds:
            theirs, ours = (
                read_json(paths.record(*address, seed))["final"]["perplexity"]
                for address in ((group, run), ("standard", second))
            )
            assert pair["final"]["by_seed"][str(seed)] == pytest.approx(ours - theirs)
        assert set(pair["final"]["by_seed"]) == {str(seed) for seed in controls.seeds}
