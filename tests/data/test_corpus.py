"""Where text comes from, what a bad mirror gets, and what a source card says."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

import tiny_corpus
from depthtime import paths
from depthtime.data import corpus, docstrings
from depthtime.data.corpus import fetch, read_text
from depthtime.errors import DataError
from depthtime.records import read_json

TEXT = {part: tiny_corpus.many_lines(20, seed) for seed, part in enumerate(corpus.PTB_PARTS)}
SUMS = {part: hashlib.sha256(text.encode()).hexdigest() for part, text in TEXT.items()}


class Mirror(BaseHTTPRequestHandler):
    """Serves the parts under /good, half of them under /truncated, changed under /changed, a page under /page."""

    def do_GET(self):
        _, kind, filename = self.path.split("/")
        data = TEXT[filename.split(".")[1]].encode()
        body = {
            "good": data,
            "truncated": data[: len(data) // 2],
            "changed": data.replace(b"b", b"c"),
            "page": b"\n<!DOCTYPE html><html>log in</html>",
        }.get(kind)
        if body is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(data) if kind == "truncated" else len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture(scope="module")
def mirror():
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PTB_DIR", raising=False)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    return tmp_path


def ptb_study(*mirrors, **changes):
    return tiny_corpus.study(
        tiny_corpus.STANDARD, {"source": "ptb", "mirrors": mirrors, "sha256": SUMS, **changes}, split="official"
    )


def write_parts(folder, change=lambda data: data):
    folder.mkdir(exist_ok=True)
    for part, text in TEXT.items():
        (folder / f"ptb.{part}.txt").write_bytes(change(text.encode()))


def card_bytes():
    return paths.source_card("tiny").read_bytes()


def test_the_next_mirror_is_tried_until_one_serves_the_text(workspace, mirror):
    fetch(ptb_study(f"{mirror}/truncated", f"{mirror}/page", f"{mirror}/nothing", f"{mirror}/good"), "tiny")
    card = read_json(paths.source_card("tiny"))
    assert {part: row["sha256"] for part, row in card["parts"].items()} == SUMS
    assert sorted(path.name for path in (workspace / "data/tiny").iterdir()) == sorted(f"ptb.{p}.txt" for p in TEXT)


def test_all_bad_mirrors_are_named_with_both_sums_and_the_fix(workspace, mirror):
    kinds = ("truncated", "changed", "page", "nothing")
    with pytest.raises(DataError) as caught:
        fetch(ptb_study(*(f"{mirror}/{kind}" for kind in kinds)), "tiny")
    message = str(caught.value)
    size = len(TEXT["train"].encode())
    half = hashlib.sha256(TEXT["train"].encode()[: size // 2] + b"\n").hexdigest()
    changed = hashlib.sha256(TEXT["train"].encode().replace(b"b", b"c")).hexdigest()
    for kind in kinds:
        assert f"{mirror}/{kind}/ptb.train.txt: " in message
    assert f"truncated file, {size // 2:,} of {size:,} bytes; sha256 expected {SUMS['train']}, found {half}" in message
    assert f"a changed file; sha256 expected {SUMS['train']}, found {changed}" in message
    assert "a web page (HTML), not the text" in message
    assert "404" in message
    assert "set PTB_DIR to a folder" in message
    assert not paths.source_card("tiny").exists()
    assert list((workspace / "data/tiny").iterdir()) == []


def test_a_mirror_that_is_not_there_is_a_reason_not_a_crash(workspace):
    with pytest.raises(DataError, match=r"http://127.0.0.1:9/ptb.train.txt: no answer"):
        fetch(ptb_study("http://127.0.0.1:9"), "tiny")


def test_the_card_is_the_same_wherever_the_text_came_from(workspace, mirror, monkeypatch):
    fetch(ptb_study(f"{mirror}/good"), "tiny")
    downloaded = card_bytes()
    for path in (workspace / "data/tiny").iterdir():
        path.unlink()
    write_parts(workspace / "local")
    write_parts(workspace / "crlf", lambda data: b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n"))
    fetch(ptb_study(local_dir="local"), "tiny")
    assert card_bytes() == downloaded
    monkeypatch.setenv("PTB_DIR", "crlf")
    fetch(ptb_study(local_dir="nowhere"), "tiny")
    assert card_bytes() == downloaded
    assert b"crlf" not in downloaded
    assert b"local" not in downloaded


def test_an_altered_local_file_is_named_with_both_sums(workspace, monkeypatch):
    write_parts(workspace / "local", lambda data: data[:-30])
    monkeypatch.setenv("PTB_DIR", "local")
    with pytest.raises(
        DataError, match=rf"ptb.train.txt: is truncated or altered \(sha256 expected {SUMS['train']}, found"
    ):
        fetch(ptb_study(), "tiny")


def test_a_local_folder_without_the_files_is_a_reason(workspace):
    with pytest.raises(DataError, match=r"corpora.tiny.local_dir = nowhere: holds no ptb.train.txt"):
        fetch(ptb_study(local_dir="nowhere"), "tiny")


def test_a_damaged_cached_file_is_fetched_again(workspace, mirror):
    study = ptb_study(f"{mirror}/good")
    fetch(study, "tiny")
    (workspace / "data/tiny/ptb.valid.txt").write_text("damaged\n")
    assert read_text(study, "tiny") == TEXT


def test_a_card_counts_bytes_lines_and_words(workspace):
    (workspace / "tiny.txt").write_bytes(b"\xef\xbb\xbfone two\r\nthr\xc3\xa9e")
    fetch(tiny_corpus.study(tiny_corpus.STANDARD), "tiny")
    expected = {"bytes": 15, "lines": 2, "words": 3, "sha256": hashlib.sha256(b"one two\nthr\xc3\xa9e\n").hexdigest()}
    assert read_json(paths.source_card("tiny")) == {
        "schema": 1,
        "corpus": "tiny",
        "source": "file",
        "parts": {"train": expected},
    }


def test_text_that_changed_since_its_card_asks_for_a_new_fetch(workspace):
    study = tiny_corpus.study(tiny_corpus.STANDARD)
    (workspace / "tiny.txt").write_text("one two\n")
    assert read_text(study, "tiny") == {"train": "one two\n"}
    (workspace / "tiny.txt").write_text("one three\n")
    with pytest.raises(DataError, match=r"the train text has changed since .*run `depthtime fetch tiny` again"):
        read_text(study, "tiny")


def test_a_wrong_sum_a_folder_and_an_unknown_name_are_named(workspace):
    (workspace / "tiny.txt").write_text("one two\n")
    study = tiny_corpus.study(tiny_corpus.STANDARD, {"source": "file:tiny.txt", "sha256": {"train": "0" * 64}})
    with pytest.raises(DataError, match=r"tiny.txt: is not the text that corpora.tiny.sha256.train names .*found "):
        fetch(study, "tiny")
    with pytest.raises(DataError, match=r"no corpus is called 'tyni' \(there are: tiny\)"):
        fetch(study, "tyni")
    with pytest.raises(DataError, match="is a folder"):
        fetch(tiny_corpus.study(tiny_corpus.STANDARD, {"source": "file:."}), "tiny")


def test_docstrings_of_other_versions_name_what_is_installed(workspace, monkeypatch):
    monkeypatch.setattr(docstrings, "extract", lambda: "other text\n")
    study = tiny_corpus.study(tiny_corpus.STANDARD, {"source": "docstrings", "sha256": {"train": "0" * 64}})
    with pytest.raises(DataError, match=r"installed are numpy \S+ and pandas \S+\). The pins changed"):
        fetch(study, "tiny")


def test_docstrings_are_extracted_once_and_then_read_from_the_cache(workspace, monkeypatch):
    calls = []
    monkeypatch.setattr(docstrings, "extract", lambda: calls.append(1) or "some text\n")
    study = tiny_corpus.study(tiny_corpus.STANDARD, {"source": "docstrings"})
    fetch(study, "tiny")
    assert read_text(study, "tiny") == {"train": "some text\n"}
    assert len(calls) == 1
    assert set(read_json(paths.source_card("tiny"))["packages"]) == {"numpy", "pandas"}
