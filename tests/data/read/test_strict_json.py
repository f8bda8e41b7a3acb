"""A row is strict JSON or it is refused with the right reason."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dynotune.data.read.strict_json import MAX_DEPTH, parse_object
from dynotune.data.rows import BadRow, Place

PLACE = Place("a.jsonl", 3)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a": 1, "a": 2}', "duplicate-key"),
        (b'{"x": {"a": 1, "a": 2}}', "duplicate-key"),
        (b'{"a" : 1, "a": 2}', "duplicate-key"),
        (b'{"a": NaN}', "nan-literal"),
        (b'{"a": -Infinity}', "nan-literal"),
        (b"{'a': 1}", "python-repr-not-json"),
        (b'{"a": True}', "python-repr-not-json"),
        (b'{"a": None}', "python-repr-not-json"),
        (b'{"a": [1,]}', "trailing-comma"),
        (b'{"a": 1, }', "trailing-comma"),
        (b'{"a": 1} {"b": 2}', "two-objects-on-one-line"),
        (b'{"a": 1};', "text-after-object"),
        (b'{"a": "b', "truncated-json"),
        (b'{"a": [', "truncated-json"),
        (b"{", "truncated-json"),
        (b'{"a": "\x01"}', "raw-control-character"),
        (b"\x00\x00\x00\x00", "nul-bytes"),
        (b"[1]", "line-is-not-an-object"),
        (b'"a"', "line-is-not-an-object"),
        (b"null", "line-is-not-an-object"),
        (b"true", "line-is-not-an-object"),
        (b"1.5", "line-is-not-an-object"),
        (b'{"a" 1}', "invalid-json"),
        (b'{"a": "\xe9"}', "invalid-utf8"),
        (b'{"a": "\xc0\x80"}', "invalid-utf8"),
        (b'{"a": "\xed\xa0\xbd"}', "invalid-utf8"),
        (b'{"a": "\\ud83d"}', "lone-surrogate"),
        (b'{"\\udc00": 1}', "lone-surrogate"),
        (b'{"a": ' + b"9" * 5000 + b"}", "number-too-long"),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", "too-deeply-nested"),
        (b'{"a": ' + b"[" * 300 + b"]" * 300 + b"}", "too-deeply-nested"),
    ],
)
def test_each_fault_has_its_name(raw: bytes, reason: str) -> None:
    found = parse_object(raw, PLACE)
    assert isinstance(found, BadRow)
    assert found.reason == reason
    assert found.place == PLACE
    assert found.detail
    assert found.beginning.isprintable()


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": "\\ud83d\\ude00"}',
        b'{"a": "x\\":NaN,\\"a\\":1"}',
        '{"a": "\u2028\x85é"}'.encode(),
        b'{"a": {"a": {"a": 1}}}',
        b'{"a": ' + b"[" * (MAX_DEPTH - 2) + b"]" * (MAX_DEPTH - 2) + b"}",
        b"{}",
    ],
)
def test_what_is_json_is_read_as_json(raw: bytes) -> None:
    assert parse_object(raw, PLACE) == json.loads(raw)


def test_a_wrong_byte_is_named_with_its_offset_in_line_and_file() -> None:
    found = parse_object(b'{"a": "caf\xe9"}', PLACE, offset=1000)
    assert isinstance(found, BadRow)
    assert "bytes E9 at offset 10 of the line (byte 1,010 of the file)" in found.detail


def test_the_beginning_never_holds_raw_control_characters() -> None:
    """A data set must not be able to write escape sequences to a terminal."""
    found = parse_object('{"a": "\u202e'.encode() + b'\x1b[31m", broken', PLACE)
    assert isinstance(found, BadRow)
    assert found.beginning.isprintable()
    assert "\\x1b[31m" in found.beginning
    assert "\\u202e" in found.beginning


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(st.dictionaries(st.text(), values, max_size=5), st.booleans())
def test_every_object_that_json_writes_is_read_back(row: dict[str, object], ascii_only: bool) -> None:
    raw = json.dumps(row, ensure_ascii=ascii_only).encode("utf-8", errors="surrogatepass")
    found = parse_object(raw, PLACE)
    if isinstance(found, BadRow):
        assert found.reason in ("lone-surrogate", "invalid-utf8")
        assert any("\ud800" <= c <= "\udfff" for c in json.dumps(row, ensure_ascii=False))
    else:
        assert found == row


@given(st.binary(max_size=80))
def test_no_bytes_raise(raw: bytes) -> None:
    found = parse_object(raw, PLACE)
    assert isinstance(found, dict | BadRow)
