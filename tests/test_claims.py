"""claims.yaml: the published file is sound, mistakes come all at once, and rules can go either way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from depthtime.claims import Claim, Ledger, Region, Rule, all_checks, load_claims, verdict
from depthtime.config import load_params, read_yaml
from depthtime.errors import ConfigError

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "claims.yaml"
HOLDS, FAILS = {"interval_above": 0.0}, {"interval_below": 0.0}


@pytest.fixture
def raw() -> Any:
    return read_yaml(PUBLISHED)


def write(folder: Path, data: Any) -> Path:
    path = folder / "claims.yaml"
    with path.open("w", encoding="utf-8") as file:
        YAML(typ="safe", pure=True).dump(data, file)
    return path


def rule(*essential: bool, ill_posed: int = 0) -> Rule:
    check = {"statistic": "quotient", "numerator": 1.0, "denominator": 2.0, "holds": HOLDS, "fails": FAILS}
    checks = tuple({**check, "essential": flag} for flag in essential)
    return Rule.model_validate({"checks": checks, "ill_posed": (check,) * ill_posed})


def test_the_published_claims_load_and_name_only_what_the_study_has() -> None:
    ledger = load_claims(PUBLISHED, load_params(ROOT / "params.yaml"))
    assert isinstance(ledger, Ledger)
    assert sum(claim.source == "continuumlm" for claim in ledger.claims.values()) >= 14


def test_every_judged_claim_has_a_rule_and_every_other_a_note() -> None:
    for claim in load_claims(PUBLISHED).claims.values():
        assert claim.rule if claim.judged_by else claim.note


def test_every_check_can_hold_and_can_fail() -> None:
    """Some interval makes each check hold, and some interval makes it fail: no rule is decided beforehand."""
    for name, claim in load_claims(PUBLISHED).claims.items():
        for check in all_checks(claim):
            limits = [
                x
                for region in (check.holds, check.fails)
                for value in region.model_dump().values()
                if value is not None
                for x in (value if isinstance(value, tuple) else (value,))
            ]
            low, high = min(limits), max(limits)
            middle = (low + high) / 2
            statuses = {check.status(x, x) for x in (low - 1, low, middle, high, high + 1)}
            assert {"holds", "fails"} <= statuses, (name, check)


def test_no_interval_both_holds_and_fails() -> None:
    for claim in load_claims(PUBLISHED).claims.values():
        for check in all_checks(claim):
            for low in (-5.0, -0.2, -0.07, 0.0, 0.03, 0.2, 1.0, 3.0, 1e6):
                for width in (0.0, 0.05, 1.0, 10.0):
                    interval = (low, low + width)
                    assert not (check.holds.matches(*interval) and check.fails.matches(*interval))


@pytest.mark.parametrize(
    ("region", "inside", "outside"),
    [
        ({"interval_above": 0.0}, (0.1, 0.2), (0.0, 0.2)),
        ({"interval_below": 0.0}, (-0.2, -0.1), (-0.2, 0.0)),
        ({"interval_within": (1.0, 2.0)}, (1.0, 2.0), (0.9, 2.0)),
        ({"interval_outside": (1.0, 2.0)}, (2.1, 3.0), (2.0, 3.0)),
        ({"interval_outside": (1.0, 2.0)}, (0.0, 0.9), (0.0, 3.0)),
        ({"interval_contains": 0.0}, (-1.0, 0.0), (0.1, 1.0)),
    ],
)
def test_a_region_tells_inside_from_outside(region: dict[str, Any], inside: Any, outside: Any) -> None:
    assert Region.model_validate(region).matches(*inside)
    assert not Region.model_validate(region).matches(*outside)


def test_an_interval_that_includes_zero_is_unclear_for_a_sign() -> None:
    check = rule(True).checks[0]
    assert check.status(0.01, 0.02) == "holds"
    assert check.status(-0.02, -0.01) == "fails"
    assert check.status(-0.01, 0.02) == "unclear"


@pytest.mark.parametrize(
    ("essential", "statuses", "expected"),
    [
        ((True,), ("holds",), "reproduced"),
        ((True,), ("fails",), "not_reproduced"),
        ((True,), ("unclear",), "inconclusive"),
        ((True, False), ("holds", "fails"), "partly"),
        ((True, False), ("holds", "unclear"), "inconclusive"),
        ((True, False), ("fails", "holds"), "not_reproduced"),
        ((True, False), ("unclear", "fails"), "inconclusive"),
        ((True, False, False), ("unclear", "holds", "fails"), "inconclusive"),
        ((False, False), ("holds", "fails"), "partly"),
        ((False, False), ("fails", "fails"), "not_reproduced"),
        ((False, False), ("fails", "unclear"), "inconclusive"),
        ((True, False), ("holds", None), "untested"),
    ],
)
def test_verdicts_follow_from_the_statuses(essential: Any, statuses: Any, expected: str) -> None:
    assert verdict(rule(*essential), statuses) == expected


def test_ill_posed_goes_before_everything_and_no_rule_is_untested() -> None:
    assert verdict(rule(True, ill_posed=1), ["fails"], ["holds"]) == "ill_posed"
    assert verdict(rule(True, ill_posed=1), ["fails"], ["fails"]) == "not_reproduced"
    assert verdict(rule(True, ill_posed=1), ["fails"], [None]) == "untested"
    assert verdict(None, []) == "untested"


def test_all_mistakes_are_listed_at_once_with_claim_key_and_hint(tmp_path: Path, raw: Any) -> None:
    claims = raw["claims"]
    claims["continuumlm_cost_ratio"]["kind"] = "quantitive"
    claims["continuumlm_cost_ratio"]["sclae"] = "x"
    claims["continuumlm_discrete_ahead_at_end"]["rule"]["checks"][0]["step"] = "3000"
    claims["continuumlm_final_gap_size"]["rule"]["checks"][0]["holds"] = {"interval_abov": 0.0}
    del claims["continuumlm_ode_ahead_early"]["metric"]
    with pytest.raises(ConfigError) as caught:
        load_claims(write(tmp_path, raw))
    text = str(caught.value)
    assert "claims.yaml: claims.continuumlm_cost_ratio.kind" in text
    assert "continuumlm_cost_ratio.sclae: unknown key; did you mean scale?" in text
    assert 'ahead_at_end.rule.checks.0.step = "3000" (text), expected a whole number' in text
    assert "holds.interval_abov: unknown key; did you mean interval_above?" in text
    assert "continuumlm_ode_ahead_early.metric: missing" in text


def test_ids_sources_and_seeds_must_fit(tmp_path: Path, raw: Any) -> None:
    raw["claims"]["wrong_name"] = dict(raw["claims"]["continuumlm_discrete_ahead_at_end"], seeds={"core": [42, 43]})
    raw["claims"]["continuumlm_no_seeds"] = dict(raw["claims"]["continuumlm_final_gap_size"], seeds={})
    raw["claims"]["continuumlm_lost"] = dict(raw["claims"]["continuumlm_final_gap_size"], source="continumlm")
    with pytest.raises(ConfigError) as caught:
        load_claims(write(tmp_path, raw))
    assert len(caught.value.problems) == 4
    for part in (
        "expected continuumlm_...",
        "at least 3 different",
        "no seeds for group 'core'",
        "did you mean",
    ):
        assert part in str(caught.value)


def test_a_judged_claim_names_only_runs_steps_and_seeds_that_are_trained(tmp_path: Path, raw: Any) -> None:
    check = raw["claims"]["continuumlm_discrete_ahead_at_end"]["rule"]["checks"][0]
    check |= {"run": "odd", "step": 3100}
    raw["claims"]["continuumlm_discrete_ahead_at_end"]["seeds"] = {"core": [1, 2, 3]}
    raw["claims"]["continuumlm_cost_ratio"]["rule"]["checks"][0]["threads"] = 7
    with pytest.raises(ConfigError) as caught:
        load_claims(write(tmp_path, raw), load_params(ROOT / "params.yaml"))
    for part in ("'odd' is not a run of group core", "step = 3100", "params.yaml trains", "threads = 7"):
        assert part in str(caught.value)


def test_a_region_takes_exactly_one_ordered_condition(tmp_path: Path, raw: Any) -> None:
    checks = raw["claims"]["continuumlm_discrete_final_perplexity"]["rule"]["checks"]
    checks[0]["holds"] = {"interval_above": 0.0, "interval_below": 1.0}
    checks[1]["holds"] = {"interval_within": [0.1, -0.1]}
    with pytest.raises(ConfigError) as caught:
        load_claims(write(tmp_path, raw))
    assert "exactly one of" in str(caught.value)
    assert "low <= high" in str(caught.value)


def test_a_claim_that_nothing_judges_needs_a_note(tmp_path: Path, raw: Any) -> None:
    raw["claims"]["continuumlm_cost_ratio"]["judged_by"] = None
    raw["claims"]["continuumlm_corpus_size"]["rule"] = None
    with pytest.raises(ConfigError) as caught:
        load_claims(write(tmp_path, raw))
    assert "`note` must say" in str(caught.value)
    assert "a judged claim needs a rule" in str(caught.value)


def test_claims_are_frozen() -> None:
    claim = load_claims(PUBLISHED).claims["continuumlm_cost_ratio"]
    assert isinstance(claim, Claim)
    with pytest.raises(Exception, match="frozen"):
        claim.scale = "larger"  # type: ignore[misc]


@pytest.mark.parametrize("text", ["", "- a\n", "claims: {a: 1, a: 2}\n"])
def test_a_file_of_another_kind_is_one_clear_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "claims.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=r"claims\.yaml"):
        load_claims(path)
