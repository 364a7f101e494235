import csv
import io
import math

import pytest
import torch

from depthtime.errors import RecordError, TrainingError
from depthtime.train.checkpoint import dump_weights, load_weights
from depthtime.train.loop import fit
from depthtime.train.run import COLUMNS, _history_csv
from depthtime.train.schedule import learning_rate_at
from small_models import DIFFEQFORMER, DISCRETE, GPT, ODE, RECIPE, SIZES, TRANSFORMER, model, windows

TRAIN, VALID = windows(40), windows(9, seed=1)
COSINE = RECIPE.model_copy(
    update={"schedule": "cosine", "final_fraction": 0.1, "clip_norm": 0.5, "optimizer": "adamw", "weight_decay": 0.1}
)
DROPPING = GPT.model_copy(update={"dropout": 0.1})
KINDS = pytest.mark.parametrize("run", [DISCRETE, ODE], ids=["discrete", "ode"])


def _fit(run=ODE, recipe=RECIPE, *, seed=0, sizes=SIZES, **kwargs):
    return fit(model(run, seed=seed, sizes=sizes), TRAIN, VALID, recipe, seed=seed, **kwargs)


@pytest.mark.parametrize(
    ("run", "sizes", "recipe"),
    [
        (DISCRETE, SIZES, RECIPE), (ODE, SIZES, RECIPE), (DISCRETE, SIZES, COSINE), (ODE, SIZES, COSINE),
        (TRANSFORMER, DROPPING, COSINE), (DIFFEQFORMER, DROPPING, COSINE),  # two groups of parameters, and dropout
    ],
    ids=["discrete", "ode", "discrete-cosine-clip", "ode-cosine-clip", "transformer", "diffeqformer"],
)  # fmt: skip
def test_resuming_changes_nothing(run, sizes, recipe, tmp_path):
    """20 steps equal 7 + save + load into another model + 13: weights, optimiser, course, random state."""
    whole = _fit(run, recipe, sizes=sizes, state_path=tmp_path / "whole")
    _fit(run, recipe, sizes=sizes, state_path=tmp_path / "cut", stop_at=7)
    resumed = fit(model(run, seed=99, sizes=sizes), TRAIN, VALID, recipe, seed=0, state_path=tmp_path / "cut")
    assert dump_weights(resumed.model) == dump_weights(whole.model)
    assert resumed.progress.history == whole.progress.history
    assert resumed.progress.curve == whole.progress.curve
    assert (resumed.progress.best_step, resumed.progress.best_nll) == (
        whole.progress.best_step,
        whole.progress.best_nll,
    )
    assert all(torch.equal(resumed.best[name], tensor) for name, tensor in whole.best.items())

    def tensors(path):
        data = path.read_bytes()
        return data[8 + int.from_bytes(data[:8], "little") :]

    assert tensors(tmp_path / "cut") == tensors(tmp_path / "whole")  # optimiser moments and random state too


@KINDS
def test_runs_are_deterministic(run):
    first, again, other = _fit(run), _fit(run), _fit(run, seed=1)
    assert dump_weights(first.model) == dump_weights(again.model)
    assert _history_csv(first.progress) == _history_csv(again.progress)
    assert dump_weights(first.model) != dump_weights(other.model)


def test_all_models_of_a_seed_see_the_same_data(monkeypatch):
    seen = []
    original = type(TRAIN).take
    monkeypatch.setattr(type(TRAIN), "take", lambda self, at: seen.append(tuple(at)) or original(self, at))
    _fit(DISCRETE)
    discrete = list(seen)
    seen.clear()
    _fit(ODE)
    assert seen == discrete


def test_training_learns_what_there_is_to_learn():
    recipe = RECIPE.model_copy(update={"max_steps": 60, "eval_every": 20, "learning_rate": 1e-2})
    curve = [entry["perplexity"] for entry in _fit(recipe=recipe).progress.curve]
    assert curve[-1] < 0.5 * 12  # uniform would be 12


def test_the_course_is_written_once_a_step():
    rows = list(csv.DictReader(io.StringIO(_history_csv(_fit().progress).decode())))
    assert list(rows[0]) == COLUMNS.split(",")
    assert [int(row["step"]) for row in rows] == list(range(1, 21))
    assert [int(row["step"]) for row in rows if row["valid_nll_nats"]] == [5, 10, 15, 20]
    assert float(rows[1]["learning_rate"]) == pytest.approx(3e-3 * 2 / 4)


def test_logged_gradient_norm_is_before_clipping():
    free = _fit(recipe=RECIPE.model_copy(update={"max_steps": 5}))
    clipped = _fit(recipe=RECIPE.model_copy(update={"max_steps": 5, "clip_norm": 1e-3}))
    assert clipped.progress.history[0][3] == free.progress.history[0][3] > 1e-2
    assert dump_weights(clipped.model) != dump_weights(free.model)


def test_a_diverged_loss_ends_the_run_and_is_recorded():
    fitted = _fit(recipe=RECIPE.model_copy(update={"learning_rate": 1e30, "warmup_steps": 0}))
    assert fitted.progress.diverged_at == fitted.progress.step < 20
    assert fitted.progress.history[-1][1] is None or fitted.progress.history[-1][3] is None


def test_the_best_weights_are_those_of_the_lowest_validation_loss():
    fitted = _fit(recipe=RECIPE.model_copy(update={"learning_rate": 0.2, "max_steps": 40, "warmup_steps": 0}))
    nlls = {entry["step"]: entry["nll_nats"] for entry in fitted.progress.curve}
    assert fitted.progress.best_step == min(nlls, key=nlls.get)


def test_a_corpus_of_less_than_a_batch_is_refused():
    with pytest.raises(TrainingError, match=r"batch_size = 4.*3 training windows"):
        fit(model(), windows(3), VALID, RECIPE, seed=0)


def test_a_foreign_or_damaged_checkpoint_is_refused(tmp_path):
    path = tmp_path / "state"
    _fit(state_path=path, stop_at=5)
    data = path.read_bytes()
    path.write_bytes(data[:-40])
    with pytest.raises(RecordError, match="delete it to start again"):
        _fit(state_path=path)
    _fit(DISCRETE, state_path=tmp_path / "other", stop_at=5)
    with pytest.raises(RecordError, match="delete it to start again"):
        _fit(ODE, state_path=tmp_path / "other")


def test_a_pickle_is_never_loaded_as_weights(tmp_path):
    torch.save(model().state_dict(), tmp_path / "weights.pt")
    with pytest.raises(RecordError, match="not a safetensors file"):
        load_weights(tmp_path / "weights.pt", model())


def test_learning_rate_warms_up_and_decays():
    recipe = COSINE.model_copy(update={"max_steps": 104, "warmup_steps": 4, "learning_rate": 1.0})
    assert [learning_rate_at(step, recipe) for step in (1, 2, 4)] == [0.25, 0.5, 1.0]
    assert learning_rate_at(54, recipe) == pytest.approx(0.1 + 0.9 / 2)
    assert learning_rate_at(104, recipe) == pytest.approx(0.1)
    assert learning_rate_at(29, recipe) == pytest.approx(0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi / 4)))
    constant = recipe.model_copy(update={"schedule": "constant"})
    assert {learning_rate_at(step, constant) for step in range(4, 105)} == {1.0}
