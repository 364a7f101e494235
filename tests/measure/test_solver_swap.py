"""Other solvers on trained weights: what fixed steps keep, what adaptive ones leak, what the record says of both."""

import math
from pathlib import Path

import pytest
import torch

from depthtime.config import SolverSwap, load_params
from depthtime.errors import ConfigError
from depthtime.evaluate.network import score_network
from depthtime.integrate.tableaus import TABLEAUS
from depthtime.measure.solver_swap import (
    LEAKS,
    Setting,
    SwappedSolver,
    all_settings,
    measure_model,
    power_of_ten,
    solver_swap_record,
)
from depthtime.records import dump_json
from small_models import ODE, model, windows
from tolerances import ROUNDING

ROOT = Path(__file__).parents[2]
TRAINED = Setting("rk4", 2)
FIXED = {"euler": (1, 3), "heun2": (2,), "rk4": (2, 32), "rk4_38": (2,)}
TOLERANCES = (1e-2, 1e-4, 1e-6)
ADAPTIVE = ("dopri5", "tsit5")


def settings(**changes):
    given = {"run": "core/ode/42", "fixed": FIXED, "adaptive": ADAPTIVE, "tolerances": TOLERANCES, "windows": 10}
    return SolverSwap(**{**given, "batch_size": 4, "leak_batches": 2, "max_nfe": 500, "threads": 1, **changes})


def curved_model():
    """A small model whose field bends enough for solvers to differ; float64, so that rounding hides no leak."""
    network = model(ODE).double().eval()
    with torch.no_grad():
        for parameter in network.core.parameters():
            parameter.mul_(2)
    return network


@pytest.fixture(scope="module")
def measured():
    return measure_model(curved_model(), windows(10), TRAINED, settings())


def rows(record):
    return {row["name"]: row for row in record["solvers"]}


def test_the_trained_setting_scores_as_the_plain_model(measured):
    assert measured["trained_with"] == "rk4_2"
    assert measured["perplexity"]["rk4_2"] == score_network(curved_model(), windows(10), 4).perplexity
    assert measured["perplexity_ratio"]["rk4_2"] == 1
    assert measured["num_scored"] == windows(10).num_scored


def test_every_solver_has_a_row_and_names_hold_no_dots(measured):
    names = [
        "rk4_2",
        "euler_1",
        "euler_3",
        "heun2_2",
        "rk4_32",
        "rk4_38_2",
        "dopri5_1e-2",
        "dopri5_1e-4",
        "dopri5_1e-6",
    ]
    names += ["tsit5_1e-2", "tsit5_1e-4", "tsit5_1e-6"]
    assert [row["name"] for row in measured["solvers"]] == names == list(measured["perplexity"])
    assert list(measured["leak"]) == ["rk4_2", *names[6:]]
    assert [power_of_ten(x) for x in (1e-3, 0.01, 1e-6, 2.5e-4, 1.0, 10.0)] == [
        "1e-3",
        "1e-2",
        "1e-6",
        "25e-5",
        "1e0",
        "1e1",
    ]


def test_fixed_solvers_count_stages_times_steps(measured):
    for row in measured["solvers"]:
        if row["steps"] is not None:
            nfe = TABLEAUS[row["solver"]].num_stages * row["steps"]
            assert (row["nfe"], row["nfe_min"], row["nfe_max"], row["num_rejected"]) == (nfe, nfe, nfe, 0)
            assert row["num_steps"] == row["steps"]


@pytest.mark.parametrize("setting", [Setting("heun2", 3), Setting("dopri5", tolerance=1e-4)], ids=lambda s: s.name)
def test_counted_evaluations_are_calls_of_the_block(setting):
    network = curved_model()
    calls = []
    network.core.block.register_forward_hook(lambda *_: calls.append(1))
    network.core = SwappedSolver(network.core, setting, max_nfe=500)
    score_network(network, windows(10), 4)
    assert len(network.core.solves) == 3
    assert sum(nfe for nfe, _, _ in network.core.solves) == len(calls)


def test_solvers_agree_where_all_are_accurate(measured):
    exact = measured["perplexity"]["rk4_32"]
    for name in ("dopri5_1e-6", "tsit5_1e-6"):
        assert measured["perplexity"][name] == pytest.approx(exact, rel=1e-5)
    assert abs(measured["perplexity"]["euler_1"] / exact - 1) > 1e-3


def test_a_smaller_tolerance_takes_more_evaluations(measured):
    for solver in ADAPTIVE:
        nfe = [rows(measured)[f"{solver}_{power_of_ten(t)}"]["nfe"] for t in TOLERANCES]
        assert nfe == sorted(nfe)
        assert nfe[0] < nfe[-1]


def test_fixed_steps_do_not_see_later_words_or_other_sentences(measured):
    leak = measured["leak"]["rk4_2"]
    assert leak["later_words"] == leak["later_words_nll"] == leak["later_words_percent"] == 0
    assert leak["other_sentences"] < ROUNDING[torch.float64]
    assert leak["alone"] < ROUNDING[torch.float64]


@pytest.mark.parametrize("solver", ADAPTIVE)
@pytest.mark.parametrize("what", LEAKS)
def test_adaptive_solvers_leak_and_less_so_at_smaller_tolerances(measured, solver, what):
    found = [measured["leak"][f"{solver}_{power_of_ten(t)}"][what] for t in TOLERANCES]
    assert 0 < found[2] < found[1] < found[0]
    assert found[2] < 0.01 * found[0]


def test_leaks_in_nats_are_smaller_than_in_logits_and_have_a_perplexity(measured):
    leak = measured["leak"]["dopri5_1e-2"]
    for what in LEAKS:
        assert 0 < leak[f"{what}_nll"] < 2 * leak[what]
        assert abs(leak[f"{what}_percent"]) <= 100 * math.expm1(leak[f"{what}_nll"])


def test_too_many_evaluations_are_a_status_not_a_gap():
    record = measure_model(curved_model(), windows(10), TRAINED, settings(tolerances=(1e-2, 1e-10), max_nfe=60))
    row = rows(record)["dopri5_1e-10"]
    assert row["status"] == "too many evaluations"
    assert [row[key] for key in ("perplexity", "ratio", "nfe", "nfe_max", "num_steps", "num_rejected")] == [None] * 6
    assert record["perplexity"]["dopri5_1e-10"] is record["perplexity_ratio"]["dopri5_1e-10"] is None
    assert set(record["leak"]["dopri5_1e-10"].values()) == {None}
    assert rows(record)["dopri5_1e-2"]["status"] == "completed"


def test_fixed_steps_are_not_bounded():
    record = measure_model(curved_model(), windows(4), TRAINED, settings(adaptive=("dopri5",), max_nfe=1))
    assert {row["status"] for row in record["solvers"] if row["steps"]} == {"completed"}
    assert {row["status"] for row in record["solvers"] if not row["steps"]} == {"too many evaluations"}


def test_the_same_model_gives_the_same_bytes_and_keeps_its_core():
    network, given = curved_model(), settings(fixed={"euler": (1,)}, adaptive=("tsit5",), tolerances=(1e-2,))
    core = network.core
    first, second = (measure_model(network, windows(10), TRAINED, given) for _ in range(2))
    assert dump_json(first) == dump_json(second)
    assert network.core is core


def test_another_kind_of_model_is_refused():
    study = load_params(ROOT / "params.yaml")
    swap = study.solver_swap.model_copy(update={"run": "core/discrete/42"})
    with pytest.raises(ConfigError, match="expected a run of `model: continuous`"):
        solver_swap_record(study.model_copy(update={"solver_swap": swap}))


def test_progress_counts_every_setting():
    seen = []
    given = settings(fixed={"euler": (1,)}, adaptive=("dopri5",), tolerances=(1e-2,), leak_batches=1)
    measure_model(curved_model(), windows(4), TRAINED, given, lambda done, total: seen.append((done, total)))
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [setting.name for setting in all_settings(TRAINED, given)] == ["rk4_2", "euler_1", "dopri5_1e-2"]


def test_a_swapped_solver_refuses_a_cache():
    core = SwappedSolver(curved_model().core, TRAINED, 10)
    with pytest.raises(ValueError, match="no cache"):
        core(torch.zeros(1, 2, 16), cache=object())
