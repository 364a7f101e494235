"""Runs that start from another run's weights: what they read, refuse, and keep in their records."""

import shutil

import pytest
import torch

import small_study
from depthtime import paths
from depthtime.config import load_params
from depthtime.data.corpus import fetch
from depthtime.data.dataset import load_dataset
from depthtime.data.prepare import prepare
from depthtime.errors import AdoptError, ConfigError, RecordError, TrainingError
from depthtime.generate.stored import load_stored
from depthtime.records import read_json, sha256_file
from depthtime.train.checkpoint import dump_weights
from depthtime.train.loop import fit
from depthtime.train.run import _state_key, train_run
from depthtime.train.setup import build_for
from depthtime.upkeep.adopt import check_training

OTHER = """\
  other:
    corpus: tale
    protocol: continuumlm
    vocabulary: frequency
    vocabulary_size: 20
    window: 8
    split: hash
    train_fraction: 0.8
    split_seed: 0
    keep_multiple: 4
"""


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A folder with both sources trained and one run fine-tuned. Do not change it: ask for `study`."""
    folder = tmp_path_factory.mktemp("source")
    (folder / "text.txt").write_text(small_study.made_up_text())
    params = small_study.PARAMS.replace("ngram:", OTHER + "ngram:").replace(
        "bench:", small_study.FINE_TUNING + "bench:"
    )
    (folder / "params.yaml").write_text(params)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        study = load_params()
        fetch(study, "tale")
        for dataset in ("tale", "other"):
            prepare(study, dataset)
        for group, run in (("transfer", "diffeq"), ("transfer", "gpt"), ("fine_tuning", "full_2")):
            train_run(study, group, run, 43)
    return folder


@pytest.fixture
def study(pretrained, tmp_path, monkeypatch):
    """The study in a copy of that folder, which is the current one."""
    folder = tmp_path / "study"
    shutil.copytree(pretrained, folder)
    monkeypatch.chdir(folder)
    return load_params()


def change_weights(run):
    """Make the stored weights of a source other ones, of the same shape."""
    path = paths.run_folder("transfer", run, 43) / "weights.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[:-4] + bytes(4))
    assert path.read_bytes() != data


def changed(study, group, run, **values):
    """A study whose row or group has other values."""
    row = study.groups[group]
    moved = {key: values.pop(key) for key in ("data", "model", "train") if key in values}
    runs = {**row.runs, run: row.runs[run].model_copy(update=values)}
    groups = {**study.groups, group: row.model_copy(update={**moved, "runs": runs})}
    return study.model_copy(update={"groups": groups})


def test_a_run_starts_from_the_stored_weights_of_its_source(study):
    dataset = load_dataset(study, "tale")
    network = build_for(study.run("fine_tuning", "gpt_tuned"), dataset, 43)
    stored = (paths.run_folder("transfer", "gpt", 43) / "weights.safetensors").read_bytes()
    assert dump_weights(network) == stored
    blocks = build_for(study.run("fine_tuning", "full_2"), dataset, 43).core.blocks
    source = load_stored(study, "transfer", "diffeq", 43)[0].core
    for block, weights in zip(blocks, source.generate([0.5, 1.0]), strict=True):
        assert torch.equal(block.ff_in.weight, weights.ff_in.weight.t())
        assert torch.equal(block.norm1.bias, weights.norm1.shift)


def test_what_was_learned_before_is_there_at_the_first_step(study):
    """The first loss of the fine-tuned run is far below that of a uniform guess, where its source's own started."""
    first = {run: _first_loss(*run) for run in (("transfer", "gpt"), ("fine_tuning", "full_2"))}
    assert first["fine_tuning", "full_2"] < first["transfer", "gpt"] - 0.1


def _first_loss(group, run):
    rows = (paths.run_folder(group, run, 43) / "history.csv").read_text().splitlines()
    return float(rows[1].split(",")[1])


def test_resuming_a_fine_tuning_run_changes_nothing(study, tmp_path):
    config, dataset = study.run("fine_tuning", "lora_2"), load_dataset(study, "tale")
    options = {"recipe": config.train, "seed": 43}
    whole = fit(build_for(config, dataset, 43), dataset.train, dataset.valid, **options)
    state = tmp_path / "state"
    fit(build_for(config, dataset, 43), dataset.train, dataset.valid, **options, state_path=state, stop_at=5)
    resumed = fit(build_for(config, dataset, 99), dataset.train, dataset.valid, **options, state_path=state)
    assert dump_weights(resumed.model) == dump_weights(whole.model)
    assert resumed.progress.history == whole.progress.history


def test_the_record_names_the_weights_it_started_from(study):
    record = read_json(paths.record("fine_tuning", "full_2", 43))
    sha256 = sha256_file(paths.run_folder("transfer", "diffeq", 43) / "weights.safetensors")
    assert record["source"] == {"weights_sha256": sha256}
    assert "source" not in read_json(paths.record("transfer", "diffeq", 43))


def test_other_weights_of_the_source_give_another_checkpoint(study):
    dataset = load_dataset(study, "tale")
    configs = [study.run("fine_tuning", "full_2"), study.run("transfer", "diffeq")]
    before = [_state_key(config, dataset, 43) for config in configs]
    change_weights("diffeq")
    after = [_state_key(config, dataset, 43) for config in configs]
    assert before[0] != after[0]
    assert before[1] == after[1]


def test_a_fine_tuned_run_is_adopted_and_refused_when_its_source_changed(study):
    check_training(study, "fine_tuning", "full_2", 43)
    change_weights("gpt")
    check_training(study, "fine_tuning", "full_2", 43)
    change_weights("diffeq")
    with pytest.raises(AdoptError, match="fine_tuning/full_2/43: the weights it starts from changed"):
        check_training(study, "fine_tuning", "full_2", 43)


def test_missing_weights_are_told_with_the_way_to_get_them(study):
    shutil.rmtree(paths.run_folder("transfer", "diffeq", 43))
    said = "no such file.*dvc pull results/runs/transfer/diffeq/43.*depthtime train transfer diffeq 43"
    with pytest.raises(RecordError, match=said):
        train_run(study, "fine_tuning", "full_2", 43)


def test_another_vocabulary_is_refused_with_both_datasets(study):
    other = changed(study, "fine_tuning", "full_2", data="other")
    with pytest.raises(TrainingError, match=r"transfer/diffeq/43, but tale has other words .* than other"):
        build_for(other.run("fine_tuning", "full_2"), load_dataset(study, "other"), 43)


def test_double_precision_starts_from_weights_stored_in_single(study):
    recipe = study.groups["fine_tuning"].train.model_copy(update={"precision": "float64"})
    double = changed(study, "fine_tuning", "full_2", train=recipe)
    dataset = load_dataset(study, "tale")
    in_double = build_for(double.run("fine_tuning", "full_2"), dataset, 43)
    in_single = build_for(study.run("fine_tuning", "full_2"), dataset, 43)
    tokens = torch.zeros(1, 4, dtype=torch.int64)
    torch.testing.assert_close(in_double.eval()(tokens).float(), in_single.eval()(tokens), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("diffeq/43, num_steps: 2, adapt: full", "diffeq/44, num_steps: 2, adapt: full", "keeps no weights"),
        ("diffeq/43, num_steps: 2, adapt: full", "gpt/43, num_steps: 2, adapt: full", "model = transformer there"),
        ("pretrained, source: transfer/gpt", "pretrained, source: transfer/diffeq", "layers = None there, expected 3"),
        ("model: *gpt", "model: {form: gpt, width: 32, heads: 2, ff_width: 16, dropout: 0.1}", "other sizes .*width"),
        ("adapt: full", "adapt: full, rank: 3", "adapt = full takes no rank"),
        ("rank: 2, ", "", "adapt = lora needs rank"),
        ("num_steps: 2, adapt: lora", "num_steps: 2.5, adapt: lora", "expected a whole number"),
    ],
)  # fmt: skip
def test_a_source_that_does_not_fit_is_told_when_params_are_read(study, old, new, said, tmp_path):
    text = (tmp_path / "study/params.yaml").read_text()
    assert old in text
    (tmp_path / "study/params.yaml").write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=said):
        load_params()
