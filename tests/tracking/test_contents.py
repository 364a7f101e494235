"""What goes into MLflow, without MLflow."""

import math

import pytest

from depthtime.errors import RecordError
from depthtime.tracking import contents


def test_nested_configuration_becomes_dotted_parameters_within_mlflows_limits():
    params = contents.params_of({"train": {"betas": [0.9, 0.99]}, "note": "x" * 9000, "a=b": None, "l": [{"k": 1}]})
    assert params["train.betas"] == "[0.9, 0.99]"
    assert params["a_b"] == "None"
    assert params["l.0.k"] == "1"
    assert len(params["note"]) == 6000


def test_infinity_and_nan_are_parted_from_the_numbers_and_never_thinned_away():
    rows = [(1, 2.0, 0.1, 3.0, None), (2, math.inf, 0.1, math.nan, None), (3, 2.0, 0.1, 3.0, 1000.0)]
    points = contents.curve_points(rows, begin_ms=0, end_ms=300, stride=1000)
    finite, odd = contents.split_finite(points)
    assert all(math.isfinite(point[1]) for point in finite)
    assert {(point[0], point[3]) for point in odd} == {
        ("train_loss_nats", 2), ("grad_norm", 2), ("valid_perplexity", 3),
    }  # fmt: skip


def test_times_of_a_batch_are_spread_over_its_interval():
    rows = [(step, 1.0, None, None, None) for step in (1, 2, 3, 4)]
    times = [point[2] for point in contents.curve_points(rows, begin_ms=100, end_ms=500)]
    assert times == [200, 300, 400, 500]


def test_long_runs_are_thinned_to_the_limit_and_evaluations_stay():
    config = {"train": {"max_steps": 100_000}}
    stride = contents.stride_of(config)
    rows = [(s, 1.0, 1.0, 1.0, 2.0 if s % 777 == 0 else None) for s in range(1, 100_001)]
    points = contents.curve_points(rows, begin_ms=0, end_ms=1, stride=stride)
    assert stride == 25
    assert sum(key == "train_loss_nats" for key, *_ in points) <= contents.MAX_POINTS + 100_000 // 777
    assert sum(key == "valid_nll_nats" for key, *_ in points) == 100_000 // 777


def test_null_results_of_a_diverged_run_give_no_metric():
    record = {"status": "diverged", "best": None, "final": {"step": 5, "nll_nats": None}, "train": {"diverged_at": 7}}
    assert [point[0] for point in contents.summary_points(record, 0)] == ["final_step", "train_diverged_at"]
    assert contents.result_tags(record) == {"status": "diverged", "diverged": "yes", "diverged_at": "7"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "line 1 is 'nothing'"),
        ("step,loss\n1,2\n", "line 1 is 'step,loss', expected the columns step,loss_nats"),
        ("step,loss_nats,learning_rate,grad_norm,valid_nll_nats\n1,2,3,4,\n2,x,3,4,\n", "line 3 is '2,x,3,4,'"),
        ("step,loss_nats,learning_rate,grad_norm,valid_nll_nats\n1,2,3\n", "line 2 has 3 cells, expected 5"),
    ],
)
def test_a_damaged_history_is_an_error_that_names_file_and_line(tmp_path, text, expected):
    path = tmp_path / "history.csv"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"history\.csv") as caught:
        contents.read_history(path)
    assert expected in str(caught.value)
