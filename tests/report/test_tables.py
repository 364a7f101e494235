"""Tables depend on the records alone, stand beside the published values, and hide nothing."""

import csv

import pytest

import made_up_study as made_up
from depthtime import paths
from depthtime.analyse.aggregate import analyse
from depthtime.errors import ConfigError, RecordError
from depthtime.records import read_json, write_json
from depthtime.report.published import PUBLISHED, load_published
from depthtime.report.tables import BUILDERS, TABLES, write_tables


def rows(name):
    with (TABLES / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def text(name):
    return (TABLES / f"{name}.md").read_text(encoding="utf-8")


def on_another_corpus(study):
    """The same study with its text from another source."""
    corpora = {name: corpus.model_copy(update={"source": "docstrings"}) for name, corpus in study.corpora.items()}
    return study.model_copy(update={"corpora": corpora})


def test_the_same_records_give_the_same_bytes(study):
    write_tables(study)
    before = {path.name: path.read_bytes() for path in TABLES.iterdir()}
    write_tables(study)
    assert {path.name: path.read_bytes() for path in TABLES.iterdir()} == before
    assert set(before) == {f"{name}.{kind}" for name in BUILDERS for kind in ("md", "csv")}


@pytest.mark.parametrize("name", BUILDERS)
def test_every_row_says_seeds_and_what_is_equal(study, name):
    write_tables(study)
    assert rows(name)
    for row in rows(name):
        assert row["seeds"]
        assert row["equal"]
    header = text(name).splitlines()[2]
    assert "seeds" in header
    assert "held equal" in header


@pytest.mark.parametrize("name", BUILDERS)
def test_every_caption_names_the_command_and_the_records(study, name):
    write_tables(study)
    caption = text(name).splitlines()[0]
    assert "`depthtime report`" in caption
    assert "`results/" in caption


@pytest.mark.parametrize("name", BUILDERS)
def test_every_table_has_a_caption_for_the_snakemake_report(name):
    assert (made_up.REPOSITORY / "workflow/report" / f"{name}.rst").read_text(encoding="utf-8").strip()


def test_perplexities_stand_beside_the_published_ones(study):
    write_tables(study)
    table = rows("perplexity_by_step")
    assert [row["step"] for row in table] == ["500", "1000", "1500", "2000", "2500", "3000"]
    assert [row["discrete_published"] for row in table] == ["229", "166.9", "139.7", "127.2", "118", "113.7"]
    assert [row["ode_published"] for row in table] == ["219.8", "163.2", "142.1", "132.2", "124.7", "119.9"]
    final = read_json(paths.analysis("core"))["runs"]["ode"]["final"]
    assert float(table[-1]["ode_mean"]) == pytest.approx(final["mean"], rel=1e-7)
    assert float(table[-1]["ode_low"]) == pytest.approx(final["low"], rel=1e-7)
    assert f"{final['mean']:.1f} [{final['low']:.1f}, {final['high']:.1f}]" in text("perplexity_by_step")


def test_published_values_do_not_stand_beside_another_corpus(study):
    write_tables(on_another_corpus(study))
    assert "published" not in text("perplexity_by_step")
    assert all(row["published"] == "" for row in rows("references"))
    assert all(row["published_step_s"] == "" for row in rows("cost"))


def test_references_stand_beside_the_published_ones_of_their_dataset_alone(study):
    write_tables(study)
    shown = {(row["dataset"], row["reference"]): row["published"] for row in rows("references") if row["published"]}
    assert shown == {("ptb_continuumlm", "unigram"): "426.8", ("ptb_continuumlm", "bigram_add_1"): "321.5"}
    assert "Kneser-Ney, order 3" in text("references")


def test_cost_ratios_are_to_the_first_run_at_the_same_threads(study):
    write_tables(study)
    ratios = {(row["run"], row["threads"]): float(row["step_ratio"]) for row in rows("cost")}
    assert ratios["core/discrete", "1"] == ratios["core/discrete", "2"] == 1
    assert ratios["core/ode", "1"] == pytest.approx(0.212 / 0.062)
    assert ratios["core/ode", "2"] == pytest.approx(0.115 / 0.038)
    assert "about 290" in text("cost")


def test_differences_are_listed_for_every_compared_group(study):
    write_tables(study)
    listed = {(row["group"], row["at"]) for row in rows("difference")}
    groups = {"core", "first_appearance", "standard", "tuned"}
    assert listed == {(group, at) for group in groups for at in ("final", "best")} | {("standard", "test")}


def test_an_undecided_difference_is_inconclusive_with_the_seeds_it_would_take(study):
    for place, seed in enumerate(study.groups["standard"].seeds):
        record = read_json(paths.record("standard", "discrete", seed))
        last = made_up.point(3000, record["final"]["perplexity"] * (1 + 0.02 * (place - 1.1)), 87192)
        made_up.change_run("standard", "ode", seed, final=last)
    analyse(study, "standard")
    write_tables(study)
    line = next(row for row in text("difference").splitlines() if row.startswith("| standard") and "| final" in row)
    needed = next(row for row in rows("difference") if (row["group"], row["at"]) == ("standard", "final"))
    assert f"inconclusive; about {int(needed['seeds_needed']):,} seeds would decide" in line


def test_a_diverged_seed_is_seen_in_every_table_that_rests_on_it(study):
    made_up.diverge("core", "ode", 44, at=1700)
    analyse(study, "core")
    write_tables(study)
    for name in ("perplexity_by_step", "variants", "difference", "summary"):
        assert "diverged" in text(name)
    row = next(row for row in rows("variants") if (row["group"], row["run"]) == ("core", "ode"))
    assert (row["final_mean"], row["seeds"], row["diverged"]) == ("", "5", "44")


def test_the_chosen_learning_rate_is_marked_and_one_seed_says_so(study):
    write_tables(study)
    chosen = [row["candidate"] for row in rows("tuning") if row["chosen"] == "True"]
    selects = [row.select for row in study.groups.values() if row.select is not None]
    searches = dict.fromkeys((s.group, candidates) for s in selects for candidates in s.among.values())
    assert chosen == [candidates[-1] for _, candidates in searches]  # the made-up study takes the highest rate
    assert len(set(searches)) == len(searches) > len(selects)
    assert "n = 1" in text("tuning")
    assert all(row["best_low"] == "" for row in rows("tuning"))


def test_a_search_that_serves_two_groups_is_shown_once(study):
    shared = study.groups["gpt_form"].select.model_copy(
        update={"among": {"scaled": study.groups["gpt_form"].select.among["diffeq"]}}
    )
    row = study.groups["gpt_step"].model_copy(update={"select": shared})
    write_tables(study.model_copy(update={"groups": {**study.groups, "gpt_step": row}}))
    candidates = [row["candidate"] for row in rows("tuning") if row["group"].startswith("gpt_")]
    assert "diffeq_low" in candidates
    assert len(set(candidates)) == len(candidates)


def test_a_study_without_tuning_has_an_empty_table_that_says_so(study):
    groups = {name: row for name, row in study.groups.items() if row.select is None and not row.against}
    groups["gpt_form"] = study.groups["gpt_form"].model_copy(update={"select": None})  # measured, so it stays
    write_tables(study.model_copy(update={"groups": groups}))
    assert "no rows" in text("tuning")
    assert "no rows" in text("controls")


def test_controls_are_held_against_both_runs_of_the_pair_by_seed(study):
    write_tables(study)
    table = {(row["group"], row["run"]): row for row in rows("controls")}
    seeds = study.groups["controls"].seeds
    for group, run in (("controls", "shared"), ("ablations", "euler_4")):
        for baseline in ("discrete", "ode"):
            ours, theirs = (
                [read_json(paths.record(g, r, seed))["final"]["perplexity"] for seed in seeds]
                for g, r in ((group, run), ("tuned", baseline))
            )
            mean = sum(100 * (a / b - 1) for a, b in zip(ours, theirs, strict=True)) / len(seeds)
            assert float(table[group, run][f"tuned_{baseline}_gap_mean"]) == pytest.approx(mean, rel=1e-6)
    assert "parameters" in table["controls", "shared"]["equal"]
    assert "parameters, recipe" in table["controls", "one_block"]["equal"]


def test_an_analysis_of_other_seeds_is_refused(study):
    path = paths.analysis("core")
    write_json(path, {**read_json(path), "seeds": [42]})
    with pytest.raises(RecordError, match=r"analysis/core.json: is of other runs or seeds"):
        write_tables(study)


def test_a_bench_record_without_a_needed_time_is_refused(study):
    record = read_json(paths.measured("bench"))
    others = [row for row in record["rows"] if (row["run"], row["threads"]) != ("core/ode", 2)]
    write_json(paths.measured("bench"), {**record, "rows": others})
    with pytest.raises(RecordError, match=r"bench.json: has no times for \[\('core/ode', 2\)\]"):
        write_tables(study)


def test_a_published_curve_of_the_wrong_length_is_an_error(study):
    PUBLISHED.write_text(PUBLISHED.read_text(encoding="utf-8").replace("229.0, ", ""), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"published.yaml: perplexity_by_step.runs.discrete has 5 values"):
        load_published(study)


def test_a_missing_published_key_is_named(study):
    PUBLISHED.write_text(PUBLISHED.read_text(encoding="utf-8").replace("  ratio: 3.2", ""), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"published.yaml: cost.ratio: missing"):
        load_published(study)


def test_runs_with_stored_weights_are_held_against_generated_ones_by_seed(study):
    write_tables(study)
    table = {(row["group"], row["run"]): row for row in rows("diffeqformer")}
    for group, run in (("gpt_form", "gpt"), ("gpt_form", "parallel"), ("gpt_form", "constant")):
        gaps = []
        for seed in study.groups[group].seeds:
            ours, theirs = (
                read_json(paths.record(g, r, seed))["final"]["perplexity"] for g, r in ((group, run), (group, "diffeq"))
            )
            gaps.append(100 * (ours / theirs - 1))
        assert float(table[group, run]["gap_percent_mean"]) == pytest.approx(sum(gaps) / len(gaps), rel=1e-6, abs=1e-9)
    assert table["gpt_form", "diffeq"]["gap_percent_mean"] == ""
    published = load_published(study)
    assert published.gaps("diffeqformer", "llama_form", "llama") == [pytest.approx(100 * (10.17 / 9.68 - 1))]
    assert len(published.gaps("diffeqformer", "gpt_form", "gpt")) == 5


def test_groups_of_another_source_stay_out_of_the_first_sources_tables(study):
    write_tables(study)
    for name in ("summary", "difference", "variants", "controls"):
        assert {row["group"] for row in rows(name)} <= {
            g for g, row in study.groups.items() if row.source == "continuumlm"
        }
    assert {row["group"] for row in rows("diffeqformer")} == {"gpt_form", "gpt_step", "gpt_rates"}
