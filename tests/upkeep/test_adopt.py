"""A pure refactoring keeps results in seconds; anything that moves a number is refused, with the run and the step."""

import json

import pytest

import small_study

CLEAN_UP = (
    "src/depthtime/models/block.py",
    "        a = self.norm1(y + self.attention(y, past))\n"
    '        return self.norm2(a + self.ff_out(functional.gelu(self.ff_in(a), approximate="tanh")))',
    "        attended = self.norm1(y + self.attention(y, past))\n"
    '        hidden = functional.gelu(self.ff_in(attended), approximate="tanh")\n'
    "        return self.norm2(attended + self.ff_out(hidden))",
)


DATASET = """\
  other:
    corpus: other
    protocol: standard
    vocabulary: frequency
    vocabulary_size: 20
    window: 8
    stride: 8
    split: contiguous
"""


def _bytes(study):
    folder = study.folder / "results"
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*.json")}


def test_a_finished_study_has_nothing_to_do(study):
    assert study.nothing_to_do()


def test_a_pure_refactoring_is_adopted_without_training(study):
    before = _bytes(study)
    study.edit(*CLEAN_UP)
    dry = study.snakemake("-n")
    assert dry.stdout.count("rule train_core") + dry.stderr.count("rule train_core") == 4  # stale, all of them
    done = study.depthtime("runs", "adopt")
    assert "adopted 5 stages" in done.stdout  # four runs, and the bench whose counts agree
    assert _bytes(study) == before
    assert study.nothing_to_do()


def test_a_measurement_of_other_settings_is_not_adopted(study):
    """Times and counts of an earlier bench say nothing of the settings asked for now."""
    study.edit("params.yaml", "warmup_steps: 1, rounds: 3", "warmup_steps: 1, rounds: 4")
    done = study.depthtime("runs", "adopt", check=False)
    assert "refused: bench: parameter bench.rounds: 3 -> 4" in done.stdout


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("models/block.py", 'approximate="tanh"', 'approximate="none"', "loss at step 1 of the rehearsal"),
        ("train/optim.py", "weight_decay=recipe.weight_decay", "weight_decay=2 * recipe.weight_decay", "loss at step"),
        ("train/schedule.py", "math.cos(math.pi * progress)", "math.cos(math.pi * progress**2)", "loss at step"),
        ("train/loop.py", "model.parameters(), limit", "model.parameters(), 2 * limit", "loss at step"),
        ("evaluate/network.py", "yield nll[", "yield 1.01 * nll[", "evaluation after the rehearsal"),
        ("train/checkpoint.py", "return progress, _", "model.head.bias.data[0] += 1; return progress, _", "step 11"),
    ],
    ids=["formula", "weight-decay", "schedule", "clipping", "evaluation", "resume"],
)  # fmt: skip
def test_changed_numbers_are_refused(study, file, old, new, said):
    before = _bytes(study)
    study.edit(f"src/depthtime/{file}", old, new)
    done = study.depthtime("runs", "adopt", check=False)
    assert done.returncode == 1
    assert "core/discrete/1" in done.stdout
    assert said in done.stdout
    assert _bytes(study) == before
    assert not study.nothing_to_do()


def test_a_changed_split_is_refused(study):
    """In code: the hash of the split. Cards come out differently, and what follows is refused with them."""
    study.edit("src/depthtime/data/splitting.py", "shift(21)", "shift(20)")
    done = study.depthtime("runs", "adopt", check=False)
    assert done.returncode == 1
    assert "results/cards/data/tale.json comes out differently" in done.stdout
    assert "train_core@ode-1: follows from prepare@tale" in done.stdout


def test_changed_parameters_are_refused_by_name(study):
    study.edit("params.yaml", "weight_decay: 0.1", "weight_decay: 0.2")
    done = study.depthtime("runs", "adopt", check=False)
    assert done.returncode == 1
    assert "train.weight_decay: 0.1 -> 0.2" in done.stdout


def test_a_truncated_or_edited_result_is_not_adopted(study):
    history = study.folder / "results/runs/core/ode/1/history.csv"
    history.write_bytes(history.read_bytes()[:-20])
    record = study.folder / "results/records/core/discrete/2.json"
    record.write_text(record.read_text().replace('"seed": 2', '"seed": 2 '))
    (study.folder / "results/runs/core/discrete/1/left.csv").write_text("from an older run")
    done = study.depthtime("runs", "adopt", check=False)
    assert done.returncode == 1
    for path in ("results/runs/core/ode/1", "results/records/core/discrete/2.json", "results/runs/core/discrete/1"):
        assert f"{path} is not what was recorded (edited, or cut short)" in done.stdout


def test_code_that_fails_is_refused_without_a_trace(study):
    study.edit("src/depthtime/models/block.py", "self.norm1(y", "self.norm3(y")
    done = study.depthtime("runs", "adopt", check=False)
    assert done.returncode == 1
    assert "the present code fails with AttributeError" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_an_added_corpus_and_dataset_leave_finished_runs_alone(study):
    """Cards are computed again and compared; no run is rehearsed, let alone trained."""
    before = _bytes(study)
    study.edit("params.yaml", "datasets:\n", '  other: {source: "file:text.txt", sha256: null}\ndatasets:\n')
    study.edit("params.yaml", "ngram:", DATASET + "ngram:")
    study.run("depthtime", "fetch", "other")
    study.run("depthtime", "prepare", "other")
    study.run("depthtime", "ngram", "other")
    assert "adopted 2 stages" in study.depthtime("runs", "adopt").stdout  # the other dataset's cards, the analysis
    assert {path: data for path, data in _bytes(study).items() if path in before} == before
    assert study.nothing_to_do()


def test_code_of_another_checkout_is_refused(study):
    study.edit(*CLEAN_UP)
    done = study.run("depthtime", "train", "core", "ode", "1", check=False, PYTHONPATH=str(small_study.ROOT / "src"))
    assert done.returncode == 1
    assert "src/depthtime/models/block.py is not the code that runs" in done.stderr


def test_changed_analysis_code_is_compared_by_its_output(study):
    study.edit("src/depthtime/analyse/compare.py", "import annotations\n", "import annotations\n\n# a comment\n")
    assert "adopted 1 stages" in study.depthtime("runs", "adopt").stdout
    assert study.nothing_to_do()


def test_verify_trains_again_and_compares_every_number(study):
    done = study.depthtime("runs", "verify", "core/ode/1")
    assert "equal to the last digit" in done.stdout
    path = study.folder / "results/records/core/ode/1.json"
    record = json.loads(path.read_text())
    record["curve"][0]["nll_nats"] += 1e-9
    path.write_text(json.dumps(record))
    done = study.depthtime("runs", "verify", "core/ode/1", check=False)
    assert done.returncode == 1
    assert "curve[0].nll_nats" in done.stdout


def test_stored_weights_give_the_recorded_perplexity(study):
    assert "; equal" in study.depthtime("evaluate", "core/discrete/1").stdout
    refused = study.depthtime("evaluate", "core/discrete/2", check=False)
    assert refused.returncode == 1
    assert "no such file" in refused.stderr
