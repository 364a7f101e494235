"""Numbers between markers come from results, and a difference is found."""

from pathlib import Path

import pytest

from depthtime.errors import ConfigError
from depthtime.report.frame import markdown
from depthtime.report.readme import check_readme, insert_numbers, values
from depthtime.report.sources import load_sources
from depthtime.report.tables import BUILDERS

TEXT = """# Study
With <!--=core.seeds-->?<!--/--> seeds the ODE ends at <!--=core.ode.final-->?<!--/-->, the gap is
<!--=core.gap.final_percent-->?<!--/--> <!--=core.gap.final_percent_interval-->?<!--/-->.

<!-- depthtime:summary -->
<!-- /depthtime -->

Prose stays.
"""


@pytest.fixture
def readme(study):
    path = Path("README.md")
    path.write_text(TEXT, encoding="utf-8")
    return path


def test_values_and_tables_are_filled_in(study, readme):
    assert insert_numbers(study, readme) is True
    text = readme.read_text(encoding="utf-8")
    assert "With <!--=core.seeds-->5<!--/--> seeds the ODE ends at <!--=core.ode.final-->129.5<!--/-->" in text
    assert "<!--=core.gap.final_percent-->+8.7 %<!--/--> <!--=core.gap.final_percent_interval-->[+8.3, +9.1] %" in text
    assert markdown(BUILDERS["summary"](load_sources(study))) in text
    assert text.startswith("# Study\n")
    assert text.endswith("\nProse stays.\n")


def test_filling_in_twice_changes_nothing(study, readme):
    insert_numbers(study, readme)
    before = readme.read_bytes()
    assert insert_numbers(study, readme) is False
    assert readme.read_bytes() == before
    assert check_readme(study, readme) == []


def test_a_number_changed_by_hand_is_found_with_its_line(study, readme):
    insert_numbers(study, readme)
    readme.write_text(readme.read_text(encoding="utf-8").replace("129.5<", "99.9<"), encoding="utf-8")
    assert check_readme(study, readme) == ["README.md: line 2: core.ode.final says '99.9', results give '129.5'"]


def test_a_table_changed_by_hand_is_found(study, readme):
    insert_numbers(study, readme)
    readme.write_text(readme.read_text(encoding="utf-8").replace("| core ", "| cure "), encoding="utf-8")
    assert check_readme(study, readme) == ["README.md: line 5: summary is not the table of the results"]


def test_checking_writes_nothing(study, readme):
    check_readme(study, readme)
    assert readme.read_text(encoding="utf-8") == TEXT


def test_unknown_names_are_named_all_at_once_with_a_hint(study, readme):
    readme.write_text("<!--=core.ode.finol-->1<!--/-->\n<!-- depthtime:sumary -->\n<!-- /depthtime -->\n")
    with pytest.raises(ConfigError) as caught:
        insert_numbers(study, readme)
    assert caught.value.problems == [
        "README.md: line 2: no table is called 'sumary'; did you mean summary?",
        "README.md: line 1: no value is called 'core.ode.finol'; did you mean core.ode.final?",
    ]


def test_markers_without_an_end_are_errors(study, readme):
    readme.write_text(
        "<!-- depthtime:summary -->\n\n<!-- depthtime:cost -->\n<!-- /depthtime -->\n<!--=core.seeds-->5\n"
    )
    with pytest.raises(ConfigError) as caught:
        check_readme(study, readme)
    assert [line.partition(" has no end")[0] for line in caught.value.problems] == [
        "README.md: line 1: <!-- depthtime:summary -->",
        "README.md: line 5: <!--=core.seeds-->",
    ]


def test_a_missing_readme_is_an_error(study):
    with pytest.raises(ConfigError, match=r"absent.md: no such file"):
        check_readme(study, Path("absent.md"))


def test_the_names_a_sentence_needs_are_there(study):
    known = values(load_sources(study))
    expected = {
        "core.discrete.final": "119.1",
        "core.crossing_seeds": "5 of 5",
        "core.ode.parameters": "1,226,272",
        "core.gap.final_verdict": "discrete lower",
        "cost.core.ode.step_1_threads_ratio": "3.42",
        "cost.core.ode.nfe_forward_ratio": "5.33",
        "cost.core.ode.step_2_threads_ms": "115",
        "references.ptb_continuumlm.unigram": "432.3",
        "published.ode.3000": "119.9",
        "tuning.ode_mid.final_interval": "\u2013",
    }
    assert {name: known[name] for name in expected} == expected
    assert all(known[f"{group}.crossing"] for group in ("core", "first_appearance", "standard", "tuned"))


def test_minutes_of_a_group_come_from_the_step_of_its_own_models(study):
    sources = load_sources(study)
    before = values(sources)
    for row in sources.bench["rows"]:
        if row["run"] == "controls/one_block":  # another depth of the same kind of model as core/discrete
            row["median_step_s"] *= 100
    after = values(sources)
    assert after["core.minutes"] == before["core.minutes"]
    assert float(after["controls.minutes"].replace(",", "")) > 5 * float(before["controls.minutes"].replace(",", ""))


def test_gaps_to_runs_of_other_groups_are_told_apart(study):
    found = values(load_sources(study))
    to_discrete, to_ode = (found[f"controls.prenorm.tuned.{run}.gap.final_percent"] for run in ("discrete", "ode"))
    assert to_discrete != to_ode
