from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topologies.importers.errors import MalformedFileError, TruncatedFileError
from workloads.importers.json_stream import members


class Text:
    name = "text"

    def __init__(self, text: str) -> None:
        self._text = text

    def read(self, characters: int) -> str:
        piece, self._text = self._text[:characters], self._text[characters:]
        return piece


def read(text: str, piece: int = 7) -> list[tuple[str, Any]]:
    return list(members(Text(text), {"items"}, piece))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
objects = st.fixed_dictionaries({"head": values, "items": st.lists(values, max_size=5), "tail": values})


@settings(derandomize=True, max_examples=150, deadline=None)
@given(objects, st.integers(1, 40), st.sampled_from([None, 1]))
def test_it_reads_what_json_reads_whatever_the_pieces(value: dict[str, Any], piece: int, indent: int | None) -> None:
    expected: list[tuple[str, Any]] = []
    for key, one in value.items():
        expected += [(key, item) for item in one] if key == "items" else [(key, one)]
    assert read(json.dumps(value, indent=indent), piece) == expected


@settings(derandomize=True, max_examples=60, deadline=None)
@given(objects, st.data())
def test_a_text_that_breaks_off_anywhere_is_truncated(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises(TruncatedFileError):
        read(text[:cut])


@pytest.mark.parametrize(
    "text",
    ['[1, 2]', '{"a": 1} x', '{"a" 1}', '{"items": [1 2], "b": 3}', '{"items": [{"a": oops}, {"b": 1}], "c": "long"}',
     '{1: 2}', '{"items": [1, 2}, "b": "and some more text"}'],
)  # fmt: skip
def test_what_is_not_an_object_of_json_is_malformed(text: str) -> None:
    with pytest.raises(MalformedFileError, match="JSON"):
        read(text)


def test_the_place_of_the_damage_is_told() -> None:
    text = '{"items": [' + '{"a": 1}, ' * 50 + '{"a": oops}, {"a": 1}, {"a": 1}], "z": "something after it"}'
    with pytest.raises(MalformedFileError, match=f"character {text.index('oops') + 1} "):
        read(text, 16)


def test_control_characters_in_names_are_read() -> None:
    assert read('{"items": ["a\tb"]}') == [("items", "a\tb")]
