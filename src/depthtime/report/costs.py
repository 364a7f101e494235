"""Tables of what the comparison stands beside: n-gram references, cost, learning rates tried."""

from __future__ import annotations

from depthtime import paths
from depthtime.report import wording as say
from depthtime.report.frame import Row, Table, columns, files, published_note, seeds, with_published
from depthtime.report.sources import Sources


def references(sources: Sources) -> Table:
    """n-gram references of every dataset, beside the published ones."""
    numbers, words, read = [], [], []
    published_data = sources.study.groups[sources.main_group].data if sources.published.references else None
    for dataset, entries in sources.references.items():
        read.append(paths.ngram_record(dataset))
        for entry in entries:
            value = sources.published.references.get(entry["name"]) if dataset == published_data else None
            valid, test = entry["valid"], entry.get("test")
            row = {
                "dataset": dataset,
                "reference": entry["name"],
                "alpha": entry["alpha"],
                "discounts": entry["discounts"],
            }
            row |= {"valid_perplexity": valid["perplexity"], "valid_num_scored": valid["num_scored"]}
            row |= {
                "test_perplexity": test and test["perplexity"],
                "test_num_scored": test and test["num_scored"],
            }
            numbers.append(row | {"published": value, "seeds": "deterministic", "equal": "data, tokens scored"})
            words.append(
                {
                    "dataset": dataset,
                    "reference": entry["label"],
                    "validation": say.number(valid["perplexity"]),
                    "test": say.number(test and test["perplexity"]),
                    "published": say.number(value),
                    "tokens scored": say.count(valid["num_scored"]),
                    "seeds": "none: a count, no interval",
                    "held equal": "data, tokens scored",
                }
            )
    caption = (
        "**n-gram references**: perplexity on the same tokens as the models. Constants (alpha, discounts) come from "
        f"training text alone.{published_note(sources)}"
    )
    return Table(numbers, words, caption, with_published(sources, read))


def cost(sources: Sources) -> Table:
    """Parameters, function evaluations, FLOPs and measured step times, with ratios to the first run of the bench."""
    numbers, words = [], []
    bench, published = sources.bench, sources.published
    by_key = {(row["run"], row["threads"]): row for row in bench["rows"]}
    for threads in sources.study.bench.threads:
        base = by_key[sources.study.bench.runs[0], threads]
        for name in sources.study.bench.runs:
            group, _, run = name.partition("/")
            row, analysed = by_key[name, threads], sources.analyses[group]["runs"][run]
            step_s = published.step_s.get(run) if group == published.group else None
            ratio = row["median_step_s"] / base["median_step_s"]
            published_ratio = published.ratio if step_s and row is not base else None
            counts = {"parameters": analysed["parameters"]["total"], **analysed["cost"]}
            numbers.append(
                {"run": name, "threads": threads, **counts}
                | {key: row[key] for key in ("median_step_s", "q1_step_s", "q3_step_s", "rounds", "median_forward_s")}
                | {"step_ratio": ratio, "published_step_s": step_s, "published_ratio": published_ratio}
                | {"seeds": "one timed model", "equal": "data, batch, width, threads"}
            )
            words.append(
                {
                    "run": sources.label(group, run),
                    "threads": str(threads),
                    "parameters": say.count(counts["parameters"]),
                    "block evaluations": say.count(counts["nfe_forward"]),
                    "MFLOPs a token": say.number(counts["flops_per_token_forward"] / 1e6, 2),
                    "ms a step, median [quartiles]": _quartiles(row),
                    "ratio": say.number(ratio, 2),
                    "published ms": "about " + _ms(step_s, 0) if step_s else say.NONE,
                    "published ratio": say.number(published_ratio),
                    "seeds": f"none: {row['rounds']} timed rounds",
                    "held equal": "data, batch, width, threads",
                }
            )
    machine = bench["machine"]
    caption = (
        f"**Cost.** One forward pass (block evaluations, FLOPs) and one training step on {machine['cpu']} "
        f"({machine['threads_available']} threads available); runs timed in turns; ratio to "
        f"{sources.study.bench.runs[0]} at the same threads.{published_note(sources)}"
    )
    groups = list(dict.fromkeys(name.partition("/")[0] for name in sources.study.bench.runs))
    return Table(numbers, words, caption, [paths.measured("bench"), *files(sources, groups)])


def _ms(seconds: float | None, digits: int = 1) -> str:
    return say.NONE if seconds is None else say.number(1000 * seconds, digits)


def _quartiles(row: Row) -> str:
    return f"{_ms(row['median_step_s'])} [{_ms(row['q1_step_s'])}, {_ms(row['q3_step_s'])}]"


def tuning(sources: Sources) -> Table:
    """The learning rates tried for each run of a tuned group, and the one taken."""
    numbers, words, read = [], [], []
    shown: set[tuple[str, tuple[str, ...]]] = set()
    for group, row in sources.study.groups.items():
        if row.select is None:
            continue
        selection, analysis = sources.analyses[group]["selection"], sources.analyses[row.select.group]
        read += [paths.analysis(row.select.group), paths.analysis(group)]
        for run, candidates in row.select.among.items():
            if (row.select.group, candidates) in shown:  # another run took its rate from the same search
                continue
            shown.add((row.select.group, candidates))
            for candidate in candidates:
                tried = analysis["runs"][candidate]
                is_chosen = selection["chosen"][run]["candidate"] == candidate
                equal = f"data, data order, width, steps, {len(candidates)} trials a model"
                numbers.append(
                    {"group": group, "run": run, "candidate": candidate, "learning_rate": tried["learning_rate"]}
                    | columns(tried["best"], "best_") | columns(tried["final"], "final_")
                    | {"chosen": is_chosen, "seeds": len(analysis["seeds"]), "equal": equal}
                )  # fmt: skip
                words.append(
                    {
                        "run": f"{group}/{run}",
                        "candidate": f"{row.select.group}/{candidate}",
                        "learning rate": f"{tried['learning_rate']:g}",
                        "best validation": say.interval(tried["best"]),
                        "final validation": say.interval(tried["final"]),
                        "chosen": "chosen" if is_chosen else "",
                        "seeds": seeds(analysis, tried),
                        "held equal": equal,
                    }
                )
    apart = all(
        set(row.seeds).isdisjoint(sources.study.groups[row.select.group].seeds)
        for row in sources.study.groups.values()
        if row.select is not None
    )
    caption = (
        "**Learning rates tried** and the one taken, by the lowest validation loss. With one seed there is no "
        f"interval. The seeds that chose are {'not ' if apart else ''}among those compared afterwards."
    )
    return Table(numbers, words, caption, read)
