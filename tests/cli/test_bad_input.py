"""Bad input gives one clear error, before any training, from every entry."""

import pytest

import small_study


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    return small_study.build(tmp_path_factory.mktemp("bad") / "study", git=False)


@pytest.fixture
def study(workspace, tmp_path):
    return small_study.copy(workspace, tmp_path / "study")


WRONG = [
    ("max_steps: 24", "max_step: 24", "groups.core.train.max_step: unknown key; did you mean max_steps?"),
    ("eval_every: 12", "eval_every: -12", "groups.core.train.eval_every = -12 (whole number), expected a number >= 1"),
    ("learning_rate: 1e-2", 'learning_rate: "1e-2"', "(text), expected a number; remove the quotes"),
    ("optimizer: adamw", "optimizer: adamv", "expected one of 'adam' or 'adamw'"),
    (
        "threads: 1\n    runs",
        "threads: one\n    runs",
        'groups.core.train.threads = "one" (text), expected a whole number',
    ),
    ("data: tale\n", "data: tail\n", "groups.core.data = 'tail': no such dataset; did you mean tale?"),
    ("heads: 2", "heads: 3", "heads = 3 does not divide width = 16"),
]
ENTRIES = {
    "cli": lambda study: study.depthtime("train", "core", "ode", "1", check=False),
    "snakemake": lambda study: study.snakemake("--cores", "1", check=False),
    "dvc": lambda study: study.dvc("repro", check=False),
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_every_entry_lists_all_mistakes_before_anything_runs(study, entry):
    for old, new, _ in WRONG:
        study.edit("params.yaml", old, new)
    done = ENTRIES[entry](study)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode != 0
    for _, _, message in WRONG:
        assert message in said, said[-3000:]
    assert "Traceback" not in said
    assert not (study.folder / "results/records").exists()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "text.txt: is empty"),
        (b"one two\n", "2 tokens"),
        ("caf\u00e9 ".encode("latin-1") * 300, "iconv"),
        (b"\x00\x01binary" * 300, "text.txt"),
        (None, "text.txt"),
    ],
    ids=["empty", "short", "latin-1", "binary", "missing"],
)
def test_a_corpus_that_cannot_be_used_is_named(study, content, message):
    path = study.folder / "text.txt"
    path.unlink() if content is None else path.write_bytes(content)
    done = study.depthtime("fetch", "tale", check=False)
    if done.returncode == 0:
        done = study.depthtime("prepare", "tale", check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert "log: logs/" in done.stderr
    assert "Traceback" not in done.stderr


def test_an_unusable_corpus_stops_snakemake_before_any_training(study):
    (study.folder / "text.txt").write_bytes(b"")
    done = study.snakemake("--cores", "1", check=False)
    assert done.returncode != 0
    assert "text.txt: is empty" in done.stdout + done.stderr
    assert not (study.folder / "results/records").exists()


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(study, tmp_path):
    other = small_study.copy(study, tmp_path / "crlf")
    text = other.folder / "text.txt"
    text.write_bytes(b"\xef\xbb\xbf" + text.read_bytes().replace(b"\n", b"\r\n"))
    for workspace in (study, other):
        for verb in (("fetch", "tale"), ("prepare", "tale")):
            workspace.depthtime(*verb)
    card = "results/cards/data/tale.json"
    assert (study.folder / card).read_bytes() == (other.folder / card).read_bytes()


def test_a_vocabulary_larger_than_the_corpus_is_refused(study):
    study.edit("params.yaml", "vocabulary_size: 30", "vocabulary_size: 3000")
    study.depthtime("fetch", "tale")
    done = study.depthtime("prepare", "tale", check=False)
    assert done.returncode != 0
    assert "vocabulary_size" in done.stderr
    assert "3000" in done.stderr
    assert "log: logs/prepare@tale.log" in done.stderr


def test_names_that_do_not_exist_are_answered_with_those_that_do(study):
    for words, message in (
        (("train", "cor", "ode", "1"), "did you mean core?"),
        (("train", "core", "odee", "1"), "did you mean ode?"),
        (("train", "core", "ode", "7"), "groups.core.seeds has no 7; there are 1, 2"),
        (("runs", "verify", "core/ode"), "expected group/run/seed"),
    ):
        done = study.depthtime(*words, check=False)
        assert done.returncode != 0
        assert message in " ".join(done.stderr.split()), done.stderr


def test_commands_outside_a_workspace_say_so(study, tmp_path):
    elsewhere = small_study.Workspace(tmp_path)
    done = elsewhere.run("depthtime", "check", check=False)
    assert done.returncode != 0
    assert "no params.yaml and dvc.yaml here or above" in done.stderr


def test_snakemake_config_is_refused(study):
    done = study.snakemake("--cores", "1", "--config", "max_steps=3", check=False)
    assert done.returncode != 0
    assert "edit params.yaml" in done.stdout + done.stderr
