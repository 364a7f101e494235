"""`depthtime generate` on what `dvc pull` brings, and one clear line for everything that can be wrong with it."""

import io
import json
import logging
import pickle
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import depthtime.generate.stream as stream
from depthtime import paths
from depthtime.cli import app
from depthtime.config import Study
from depthtime.errors import DepthtimeError
from depthtime.generate.stored import load_stored, runs_with_weights
from depthtime.generate.stream import Options, write_text
from fresh_clone import WORDS, write_vocabulary

WEIGHTS = paths.run_folder("core", "ode", 1) / "weights.safetensors"


def _text(study, prompt="w3 w1", run="ode", **options):
    out = io.StringIO()
    assert write_text(study, "core", run, 1, prompt, Options(**options), out)
    return out.getvalue()


def _invoke(*words):
    return CliRunner().invoke(app, ["generate", *words])


@pytest.mark.parametrize("run", ["discrete", "ode"])
def test_a_text_goes_on_from_the_prompt_beyond_the_window(fresh, run):
    text = _text(fresh, run=run, max_words=40)
    words = text.removesuffix("\n").split(" ")
    assert text.endswith("\n")
    assert words[:2] == ["w3", "w1"]
    assert len(words) == 42
    assert set(words) <= set(WORDS.words) - {"<dead>"}
    assert _text(fresh, run=run, max_words=40) == text != _text(fresh, run=run, max_words=40, seed=1)


def test_the_command_line_prints_the_text_only_on_standard_output(fresh):
    done = _invoke(
        "core/ode/1", "--prompt", "w3 w1", "--max-words", "12", "--top-k", "9", "--top-p", "0.9", "--seed", "5"
    )
    assert done.exit_code == 0
    assert done.stdout == _text(fresh, max_words=12, top_k=9, top_p=0.9, seed=5)
    assert len(done.stdout.split()) == 14


def test_words_are_written_as_they_come(fresh):
    class Out(io.StringIO):
        def flush(self):
            shown.append(self.getvalue())

    shown = []
    write_text(fresh, "core", "ode", 1, "w3", Options(max_words=3), Out())
    assert [len(text.split()) for text in shown] == [1, 2, 3, 4, 4]
    assert shown[0] == "w3"
    assert shown[-1].endswith("\n")


def test_several_texts_are_a_line_each(fresh):
    lines = _text(fresh, max_words=9, samples=3).splitlines()
    assert len(set(lines)) == 3
    assert all(line.startswith("w3 w1 ") and len(line.split()) == 11 for line in lines)


def test_unknown_words_are_told_and_settings_are_named(fresh, caplog):
    with caplog.at_level(logging.INFO, logger="depthtime"):
        text = _text(fresh, prompt="W3 w1", max_words=2, temperature=0.8, top_k=4)
    assert text.startswith("UNK w1 ")
    assert "not in the vocabulary, read as UNK: 'W3' ('w3' is known)" in caplog.messages
    assert "core/ode/1, window 7: temperature 0.8, top-k 4, seed 0" in caplog.messages
    assert re.fullmatch(r"2 words, \d+ a second", caplog.messages[-1])


def test_stop_words_and_bans_reach_the_text(fresh):
    free = _text(fresh, max_words=60).split()[2:]
    stop = free[10]
    assert _text(fresh, max_words=60, stop=(stop,)).split()[2:] == free[: free.index(stop)]
    wild = _text(fresh, max_words=150, temperature=9.0).split()
    assert {"UNK", "<unk>"} <= set(wild)
    assert not {"UNK", "<unk>", "<dead>"} & set(_text(fresh, max_words=150, temperature=9.0, no_unknown=True).split())


def test_another_weights_file_is_read_from_where_the_person_stands(fresh, monkeypatch):
    folder = Path("elsewhere")
    folder.mkdir()
    WEIGHTS.rename(folder / "mine.safetensors")
    monkeypatch.chdir(folder)
    done = _invoke("core/ode/1", "--weights", "mine.safetensors", "--prompt", "w3", "--max-words", "3")
    assert done.exit_code == 0
    assert len(done.stdout.split()) == 4


@pytest.mark.parametrize("samples", [1, 3])
def test_an_interrupted_text_ends_politely(fresh, monkeypatch, samples):
    def interrupted(*_, samples, **__):
        yield (4,) * samples
        raise KeyboardInterrupt

    monkeypatch.setattr(stream, "generate", interrupted)
    done = _invoke("core/ode/1", "--prompt", "w1", "--samples", str(samples))
    assert done.exit_code == 130
    assert done.stdout == "w1 w3\n" * samples


def _without(path):
    Path(path).unlink()


def _other_card():
    card = json.loads(paths.data_card("tale").read_text())
    card["config"]["window"] = 9
    paths.data_card("tale").write_text(json.dumps(card))


SPOILED = {
    "no weights": (
        lambda study: _without(WEIGHTS),
        "weights.safetensors: no such file; `dvc pull results/runs/core/ode/1`",
    ),
    "no vocabulary": (
        lambda study: _without(paths.vocabulary("tale")),
        "vocabulary/tale.json: no such file; .*`dvc pull`",
    ),
    "no card": (lambda study: _without(paths.data_card("tale")), "cards/data/tale.json: no such file"),
    "other words": (lambda study: paths.vocabulary("tale").write_text('{"words": []}'), "not the vocabulary that"),
    "other card": (lambda study: _other_card(), "another configuration of datasets.tale"),
    "pickle": (lambda study: WEIGHTS.write_bytes(pickle.dumps({"a": 1})), "not a safetensors file .*pickles are not"),
    "other model": (
        lambda study: WEIGHTS.write_bytes((WEIGHTS.parents[2] / "discrete/1/weights.safetensors").read_bytes()),
        "weights of another model",
    ),
}


@pytest.mark.parametrize("case", SPOILED)
def test_what_is_missing_or_does_not_fit_is_named(fresh, case):
    spoil, message = SPOILED[case]
    spoil(fresh)
    with pytest.raises(DepthtimeError, match=message):
        _text(fresh)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("core/oed/1",), "no run of group core is called 'oed'; did you mean ode?"),
        (("cor/ode/1",), "no group is called 'cor'; did you mean core?"),
        (("core/ode",), "expected group/run/seed"),
        (("core/ode/7",), "groups.core.seeds has no 7; there are 1, 2"),
        (("core/ode/2",), "core/ode/2: its weights are not kept (params.yaml: groups.core.runs.ode.keep_weights)"),
        (("core/ode/1",), "the prompt is empty"),
        (("core/ode/1", "--prompt", "w1", "--stop", "w77"), "--stop 'w77': not in the vocabulary"),
        (("core/ode/1", "--prompt", "w1", "--temperature", "inf"), "temperature = inf, expected a number >= 0"),
    ],
)
def test_what_a_person_may_type_wrong_is_named(fresh, words, message):
    done = _invoke(*words)
    assert isinstance(done.exception, DepthtimeError)
    assert message in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(
    "option", [("--max-words", "0"), ("--temperature", "-1"), ("--top-k", "-1"), ("--top-p", "1.5"), ("--samples", "0")]
)
def test_options_out_of_range_are_refused_at_once(fresh, option):
    done = _invoke("core/ode/1", "--prompt", "w1", *option)
    assert done.exit_code == 2
    assert option[0] in done.stderr


def test_runs_with_weights_are_told(fresh):
    kept = ["core/discrete/1", "core/ode/1", "forms/diffeq/1", "forms/diffeq/2", "forms/gpt/1", "forms/gpt/2"]
    assert runs_with_weights(fresh) == kept
    with pytest.raises(DepthtimeError, match=rf"runs with weights: {', '.join(kept)}$"):
        load_stored(fresh, "core", "ode", 2)


def test_a_run_with_an_adaptive_solver_is_refused(fresh, monkeypatch):
    row = fresh.groups["core"].runs["ode"].model_copy(update={"solver": "dopri5"})
    group = fresh.groups["core"].model_copy(update={"runs": {"ode": row}})
    study: Study = fresh.model_copy(update={"groups": {"core": group}})
    with pytest.raises(DepthtimeError, match="core/ode: solver dopri5 is adaptive"):
        _text(study)


def test_the_vocabulary_of_another_dataset_does_not_fit_the_weights(fresh):
    smaller = WORDS.__class__(WORDS.words[:20], unknown=0, dead=None, eos=None)
    write_vocabulary(fresh, "tale", smaller)
    with pytest.raises(DepthtimeError, match="weights of another model"):
        _text(fresh)


def test_as_a_program_it_writes_text_out_and_one_line_for_an_error(fresh):
    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "depthtime.cli", "generate", *words], capture_output=True, text=True
        )

    done = run("core/ode/1", "--prompt", "w1 What", "--max-words", "2")
    assert done.returncode == 0
    assert len(done.stdout.split()) == 4
    assert "read as UNK: 'What'" in done.stderr
    assert "window 7" in done.stderr
    wrong = run("core/ode/2", "--prompt", "w1")
    assert (wrong.returncode, wrong.stdout, wrong.stderr.count("\n")) == (1, "", 1)
    assert wrong.stderr.startswith("error: core/ode/2: its weights are not kept")
