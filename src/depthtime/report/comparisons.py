"""Tables that compare runs: perplexity by step, paired differences, all groups."""

from __future__ import annotations

from depthtime.report import wording as say
from depthtime.report.frame import (
    Row,
    Table,
    columns,
    equal_in_all,
    files,
    level,
    not_equal,
    published_note,
    seeds,
)
from depthtime.report.sources import Sources


def summary(sources: Sources) -> Table:
    """The answer in one row a comparison: final perplexities, gap, crossing, beside the published gap."""
    rows, words, groups = [], [], []
    for group, pair in sources.pairs():
        groups.append(group)
        first, second = pair["first"], pair["second"]
        runs, step = sources.analyses[group]["runs"], pair["curve"][-1]["step"]
        published = sources.published.gap_percent(group, first, second, step)
        final = pair["final"]
        rows.append(
            {"group": group, "first": first, "second": second, "step": step}
            | columns(runs[first]["final"], "first_") | columns(runs[second]["final"], "second_")
            | columns(final["percent"], "gap_percent_") | {"gap_percent_published": published}
            | {"crossing_step": pair["crossing"]["step"], "seeds": len(final["by_seed"]), "diverged": final["diverged"]}
            | {"equal": say.equal(pair["equal"]), "not_equal": say.unequal(pair)}
        )  # fmt: skip
        words.append(
            {
                "group": group,
                "compared": f"{sources.label(group, first)}, {sources.label(group, second)}",
                "first": say.interval(runs[first]["final"]),
                "second": say.interval(runs[second]["final"]),
                "gap": say.percent(final["percent"]),
                "published": say.percent({"mean": published, "low": None}),
                "curves cross at step": say.crossing(pair["crossing"]),
                "seeds": say.seeds({**final["difference"], "diverged": final["diverged"]}),
                "held equal": say.equal(pair["equal"]),
            }
        )
    caption = (
        "**Validation perplexity at the last step, second run against first.** Mean and "
        f"{level(sources.analyses[sources.main_group])} t interval over seeds; gap in percent of the first, paired by "
        "seed. Recipe: optimiser, schedule, learning rate. "
        f"{not_equal(sources.analyses[sources.main_group])}{published_note(sources)}"
    )
    return Table(rows, words, caption, files(sources, groups))


def perplexity_by_step(sources: Sources) -> Table:
    """Validation perplexity of the main group by step, beside the published values."""
    group = sources.main_group
    analysis, published = sources.analyses[group], sources.published
    first = analysis["run_order"][0]
    numbers, words = [], []
    for index, step in enumerate(point["step"] for point in analysis["runs"][first]["curve"]):
        row: Row = {"step": step}
        text: Row = {"step": say.count(step)}
        for run in analysis["run_order"]:
            point = analysis["runs"][run]["curve"][index]
            row |= columns(point, f"{run}_") | {f"{run}_diverged": point["diverged"]}
            text[sources.label(group, run)] = say.interval(point)
            if published.by_step:
                row[f"{run}_published"] = published.perplexity(group, run, step)
                text[f"{run}, published"] = say.number(row[f"{run}_published"])
        for pair in analysis["pairs"]:
            entry, name = pair["curve"][index], f"{pair['second']} - {pair['first']}"
            row |= columns(entry["percent"], f"{pair['second']}_gap_percent_")
            text[f"gap, {name}"] = say.percent(entry["percent"])
            if published.by_step:
                gap = published.gap_percent(group, pair["first"], pair["second"], step)
                row[f"{pair['second']}_gap_percent_published"] = gap
                text[f"gap published, {name}"] = say.NONE if gap is None else f"{say.number(gap, sign=True)} %"
        equal = equal_in_all(analysis)
        numbers.append(row | {"seeds": len(analysis["seeds"]), "equal": equal})
        words.append(text | {"seeds": str(len(analysis["seeds"])), "held equal": equal})
    scored = analysis["runs"][first]["curve"][0]["num_scored"]
    caption = (
        f"**Validation perplexity by training step** (group {group}, dataset {analysis['data']}, {scored:,} tokens "
        f"scored). Mean and {level(analysis)} t interval over seeds, on the perplexity scale; gap in percent of the "
        "first run, paired by seed. Recipe: optimiser, schedule, learning rate. "
        f"{not_equal(analysis)}{published_note(sources)}"
    )
    return Table(numbers, words, caption, files(sources, [group]))


def difference(sources: Sources) -> Table:
    """Paired differences of every comparison at the final step, for the best model, and on the test part."""
    numbers, words, groups = [], [], []
    for group, pair in sources.pairs():
        groups.append(group)
        name = f"{pair['second']} - {pair['first']}"
        for at in ("final", "best", "test"):
            entry = pair[at]
            if entry is None:
                continue
            numbers.append(
                {"group": group, "pair": name, "at": at, **columns(entry["difference"], "difference_")}
                | {
                    "p_value": entry["difference"]["p_value"],
                    "seeds_needed": entry["difference"]["seeds_needed"],
                }
                | columns(entry["percent"], "percent_")
                | {
                    "crossing_step": pair["crossing"]["step"],
                    **columns(pair["crossing"]["over_seeds"], "crossing_"),
                }
                | {"seeds": len(entry["by_seed"]), "diverged": entry["diverged"]}
                | {"equal": say.equal(pair["equal"]), "not_equal": say.unequal(pair)}
            )
            words.append(
                {
                    "group": group,
                    "pair": name,
                    "at": at,
                    "difference": say.interval({**entry["difference"], "diverged": entry["diverged"]}, 2, sign=True),
                    "in percent": say.percent(entry["percent"]),
                    "p": say.p_value(entry["difference"]["p_value"]),
                    "verdict": say.verdict(entry["difference"], pair["first"], pair["second"]),
                    "curves cross at step": say.crossing(pair["crossing"]) if at == "final" else "as above",
                    "seeds": say.seeds({**entry["difference"], "diverged": entry["diverged"]}),
                    "held equal": say.equal(pair["equal"]),
                    "not equal": say.unequal(pair),
                }
            )
    analysis = sources.analyses[sources.main_group]
    caption = (
        f"**Paired differences in perplexity**, seed by seed, with {level(analysis)} t interval and p value of the "
        "paired t test. final: last validation; best: each seed's lowest validation; test: best model on the test "
        "part. Where the interval includes 0: seeds that would find this difference with "
        f"{100 * analysis['power']:.0f} % power. The crossing is the last one of the mean curves (log perplexity "
        "linear between evaluations), its interval over the seeds' own crossings. Recipe: optimiser, schedule, "
        "learning rate."
    )
    return Table(numbers, words, caption, files(sources, groups))


def variants(sources: Sources) -> Table:
    """Final, best and test perplexity of every compared group."""
    numbers, words = [], []
    groups = [group for group in sources.compared_groups if not sources.study.groups[group].against]
    for group in groups:
        analysis = sources.analyses[group]
        dataset = analysis["dataset"]
        for run in analysis["run_order"]:
            row = analysis["runs"][run]
            test = row["test"] or dict.fromkeys(("mean", "low", "high", "sd", "num_scored"))
            scored = row["curve"][-1]["num_scored"]
            numbers.append(
                {"group": group, "run": run, "dataset": analysis["data"], "protocol": dataset["protocol"]}
                | {"vocabulary": dataset["vocabulary"], "learning_rate": row["learning_rate"]}
                | columns(row["final"], "final_") | columns(row["best"], "best_") | columns(test, "test_")
                | {"valid_num_scored": scored, "test_num_scored": test["num_scored"]}
                | {"seeds": len(analysis["seeds"]), "diverged": [int(seed) for seed in row["diverged_seeds"]]}
                | {"equal": equal_in_all(analysis)}
            )  # fmt: skip
            words.append(
                {
                    "group": group,
                    "run": sources.label(group, run),
                    "dataset": analysis["data"],
                    "protocol": dataset["protocol"],
                    "vocabulary": f"{dataset['vocabulary_size']:,}, {dataset['vocabulary'].replace('_', ' ')}",
                    "learning rate": f"{row['learning_rate']:g}",
                    "final": say.interval(row["final"]),
                    "best": say.interval(row["best"]),
                    "test": say.interval(test),
                    "tokens scored": say.count(scored)
                    + (f"; test {say.count(test['num_scored'])}" if row["test"] else ""),
                    "seeds": seeds(analysis, row),
                    "held equal": equal_in_all(analysis),
                }
            )
    caption = (
        "**The pair in all settings**: validation perplexity at the last step and of each seed's best model, and test "
        f"perplexity of the best model where the protocol has a test part. Mean and {level(analysis)} t interval over "
        "seeds. Perplexities of different datasets or vocabularies do not compare. Recipe: optimiser, schedule, "
        "learning rate."
    )
    return Table(numbers, words, caption, files(sources, groups))
