"""The docstrings corpus: what is read, in which order, and in which form."""

import pytest

from depthtime.data import docstrings
from depthtime.data.docstrings import docstrings as read_docstrings
from depthtime.data.docstrings import extract, package_versions, sources, tokenise
from depthtime.data.reading import sha256_text

PINNED = ({"numpy": "2.4.6", "pandas": "3.1.1"}, "d301772f64a66ac78c4210ecb6784987d7599306f2951a5b41f818e823c3e4c3")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("Return 3 of 1,024 items.", "return N of N items ."),
        ("x = np.array([1.5, -2e-3])", "x = np . array ( [ N , - N ] )"),
        ("float64 isn't int8; 0xFF is", "float64 isn't int8 ; N is"),
        ("---------- ... >>> ``a``", "--- ... >>> `` a ``"),
        ("  \t ", ""),
    ],
)
def test_words_are_lower_case_with_numbers_as_n_and_marks_apart(line, words):
    assert tokenise(line) == words.split()


def test_docstrings_come_in_source_order(tmp_path):
    path = tmp_path / "m.py"
    path.write_text(
        '"""Module."""\nX = "not one"\nclass A:\n    """Class."""\n    async def f(self):\n        "Method."\n'
        'def g():\n    """Function."""\n    def h():\n        """Inner \\d."""\n'
    )
    assert list(read_docstrings(path)) == ["Module.", "Class.", "Method.", "Function.", "Inner \\d."]


def test_tests_and_files_of_one_build_are_left_out(tmp_path):
    kept = ["a.py", "b/a.py", "b/c.py"]
    for name in [*kept, "tests/t.py", "b/tests/u.py", "version.py", "b/_version_meson.py", "__config__.py", "x.txt"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('"""Doc."""')
    assert [path.relative_to(tmp_path).as_posix() for path in sources(tmp_path)] == kept


def test_one_docstring_line_is_one_line_and_blank_lines_vanish(tmp_path):
    for package in docstrings.PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "a.py").write_text(f'"""In {package}.\n\n    Two 2.\n"""')
    assert extract(tmp_path) == "in numpy .\ntwo N .\nin pandas .\ntwo N .\n"


def test_the_text_of_the_pinned_packages_is_the_known_one():
    """The sum was seen equal on Python 3.11, 3.12 and 3.13 and for the wheels of all three."""
    versions, expected = PINNED
    if package_versions() != versions:
        pytest.skip(f"installed are {package_versions()}, the sum is of {versions}")
    assert sha256_text(extract()) == expected
