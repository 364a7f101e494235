"""Bad files are refused by name, and harmless differences vanish."""

import pytest

from depthtime.data.reading import normalise, read_file, sha256_text
from depthtime.errors import DataError


@pytest.mark.parametrize("data", [b"a b\nc\n", b"a b\r\nc\r\n", b"\xef\xbb\xbfa b\nc\n", b"a b\nc", b"a b\rc\r"])
def test_bom_and_line_ends_do_not_matter(data):
    assert normalise(data, "x.txt") == "a b\nc\n"


def test_a_latin1_file_names_line_byte_and_iconv(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("one\nun caf\u00e9 noir\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"latin.txt: line 2: byte 0xe9 at offset 10 .*iconv -f LATIN1 -t UTF-8"):
        read_file(path)


def test_the_offset_of_a_bad_byte_counts_the_bom():
    with pytest.raises(DataError, match=r"line 1: byte 0xff at offset 4 "):
        normalise(b"\xef\xbb\xbfa\xff", "x.txt")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "is empty"),
        (b" \r\n\n", "is empty"),
        (b"a\0b", "NUL byte at offset 1, so it is binary"),
        ("a b".encode("utf-16"), "is UTF-16.*iconv -f UTF-16 -t UTF-8"),
    ],
)
def test_files_without_usable_text_are_refused(data, message):
    with pytest.raises(DataError, match=f"x.txt: .*{message}"):
        normalise(data, "x.txt")


def test_a_missing_file_and_a_folder_are_named(tmp_path):
    with pytest.raises(DataError, match=r"none.txt: no such file"):
        read_file(tmp_path / "none.txt")
    with pytest.raises(DataError, match="could not be read"):
        read_file(tmp_path)


def test_the_sum_is_that_of_sha256sum():
    assert sha256_text("abc\n") == "edeaaff3f1774ad2888673770c6d64097e391bc362d7d6fb34982ddf0efd18cb"
