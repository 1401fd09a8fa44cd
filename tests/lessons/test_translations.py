"""The check that keeps the Japanese pages in step with the English ones."""

import pytest

from tests.lessons.translations import all_problems, problems, renewed, sections

ENGLISH = """# One
Text.

```sh
./railbed up   # starts it
# no heading
```

## Two

More.
"""
JAPANESE = """# いち
本文。

```sh
./railbed up   # 起動
```

## に

続き。
"""


def test_a_translation_without_marks_is_stale_until_renewed():
    assert len(problems(ENGLISH, JAPANESE, "p.md")) == 2
    up_to_date = renewed(ENGLISH, JAPANESE)
    assert problems(ENGLISH, up_to_date, "p.md") == []
    assert renewed(ENGLISH, up_to_date) == up_to_date
    assert [section.text for section in sections(up_to_date)] == [section.text for section in sections(JAPANESE)]


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("More.", "More and more.", "p.md:9: '## に' is stale"),
        ("Text.", "Texts.", "p.md:1: '# いち' is stale"),
    ],
)
def test_a_changed_section_is_stale_and_no_other(old, new, sentence):
    found = problems(ENGLISH.replace(old, new), renewed(ENGLISH, JAPANESE), "p.md")
    assert len(found) == 1
    assert found[0].startswith(sentence)


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("./railbed up", "./railbed down", "does not have the commands"),
        ("## に", "### に", "not of the level"),
        ("## に\n", "", "1 sections"),
    ],
)
def test_a_translation_has_the_same_commands_and_headings(old, new, sentence):
    found = problems(ENGLISH, renewed(ENGLISH, JAPANESE).replace(old, new), "p.md")
    assert any(sentence in line for line in found)


def test_blank_space_does_not_make_a_translation_stale():
    assert problems(ENGLISH.replace("Text.", "Text.  ") + "\n\n", renewed(ENGLISH, JAPANESE), "p.md") == []


def test_no_translation_is_stale():
    assert all_problems() == []
