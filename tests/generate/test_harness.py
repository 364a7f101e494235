"""A run behind lm-evaluation-harness: the study's own scores, counted words, local tasks, clear errors."""

import json
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

import standard_study
from depthtime.cli import app
from depthtime.data.dataset import load_dataset
from depthtime.errors import DepthtimeError
from depthtime.evaluate.network import score_network
from depthtime.generate.stored import load_stored

TEXT = standard_study.small_study.made_up_text()
TASK = """\
task: last_word
dataset_path: json
dataset_kwargs: {data_files: {test: data.json}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{context}}"
doc_to_choice: "{{choices}}"
doc_to_target: "{{answer}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("harness")


@pytest.fixture(scope="module")
def trained(folder):
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return standard_study.build(folder)


@pytest.fixture
def study(trained, folder, monkeypatch):
    monkeypatch.chdir(folder)
    return trained


@pytest.fixture
def harness(study, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    pytest.importorskip("lm_eval", reason="lm_eval (the extra `harness`) is not installed")
    from depthtime.generate.harness import HarnessLM

    return HarnessLM(study, "core", "ode", 1)


def _ask(*args):
    return SimpleNamespace(args=args)


def test_the_rolling_score_of_a_text_is_the_studys_own(study, harness):
    test = load_dataset(study, "tale").test
    text = "\n".join(TEXT.splitlines()[-40:]) + "\n"
    (found,) = harness.loglikelihood_rolling([_ask(text)])
    expected = score_network(load_stored(study, "core", "ode", 1)[0], test, 8)
    assert -found == pytest.approx(expected.total_nll_nats, rel=1e-5)
    assert harness.words == expected.num_scored


def test_a_continuation_adds_what_the_longer_text_adds(harness):
    whole, part = harness.loglikelihood_rolling([_ask("w35 w8 w19 w16"), _ask("w35 w8")])
    ((found, _),) = harness.loglikelihood([_ask("w35 w8", " w19 w16")])
    assert found == pytest.approx(whole - part, abs=1e-5)


def test_a_continuation_sees_a_full_window_of_a_long_context(harness):
    long = " ".join(["w35 w8 w19 w16"] * 5)
    ((found, _),) = harness.loglikelihood([_ask(long, " w35")])
    ((same, _),) = harness.loglikelihood([_ask(f"w2 {long}", " w35")])  # the window does not reach the first word
    assert found == pytest.approx(same, abs=1e-6)


def test_unknown_words_are_read_as_such_and_counted(harness):
    a, b = harness.loglikelihood([_ask("w35 banana", " w8"), _ask("w35 <unk>", " w8")])
    assert a == b
    assert (harness.words, harness.unknown) == (6, 1)
    harness.lower = True
    assert harness.encode("W35 W8") == harness.encode("w35 w8")


def test_generated_text_is_the_likeliest_and_ends_where_the_task_says(harness):
    (text,) = harness.generate_until([_ask("w35 w8", {"until": [], "max_gen_toks": 5})])
    words = text.replace("\n", " <eos> ").split()
    assert len(words) == 5
    ((_, is_likeliest),) = harness.loglikelihood([_ask("w35 w8", f" {text}")])
    assert is_likeliest
    (cut,) = harness.generate_until([_ask("w35 w8", {"until": [words[2]], "max_gen_toks": 5})])
    assert text.startswith(cut)
    assert words[2] not in cut


def test_a_local_task_is_evaluated_from_its_files_alone(harness, folder, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
    rows = [
        {"context": "w16 w35 w8", "choices": ["w19", "w2"], "answer": 0},
        {"context": "w35 w8 w19", "choices": ["w2", "w16"], "answer": 1},
        {"context": "w8 w19 w16", "choices": ["w35", "apple"], "answer": 0},
    ]
    data = tmp_path / "data.json"
    data.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    task = tmp_path / "last_word.yaml"
    task.write_text(TASK.replace("data.json", str(data)), encoding="utf-8")
    from depthtime.generate.harness import evaluate_tasks

    for where in (task, tmp_path):
        found = evaluate_tasks(harness, where, num_fewshot=None, limit=None)
        expected = []
        for row in rows:
            scores = [harness.loglikelihood([_ask(row["context"], f" {word}")])[0][0] for word in row["choices"]]
            expected.append(scores.index(max(scores)) == row["answer"])
        assert found["results"]["last_word"]["acc,none"] == pytest.approx(sum(expected) / 3)
    assert found["unknown_words"] > 0


def test_a_path_without_tasks_is_named(harness, tmp_path):
    from depthtime.generate.harness import task_names

    (tmp_path / "x.yaml").write_text("a: 1\n", encoding="utf-8")
    with pytest.raises(DepthtimeError, match="no task; expected a YAML file with `task: name`"):
        task_names(tmp_path)
    with pytest.raises(DepthtimeError, match=r"absent\.yaml: no such file"):
        task_names(tmp_path / "absent.yaml")


def test_without_the_extra_the_command_says_what_to_install(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    monkeypatch.delitem(sys.modules, "depthtime.generate.harness", raising=False)
    done = CliRunner().invoke(app, ["harness", "core/ode/1", "--tasks", "x.yaml"])
    assert isinstance(done.exception, DepthtimeError)
    assert "pip install -e '.[harness]'" in str(done.exception)
