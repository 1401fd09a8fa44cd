"""How pages are read, and that the commands of those without a live fabric print what is shown."""

from pathlib import Path

import pytest

from tests.lessons.pages import EXACT, INDEX, PAGES, Allowance, Command, NotRun, PageError, blocks, not_run
from tests.lessons.session import prepare, wrong

NOT_RUN = not_run(INDEX.read_text(), INDEX.parent)


def is_live(page: Path) -> bool:
    """Whether a page has commands that need root; its test is in test_pages_live."""
    return any(command.needs_root for block in blocks(page.read_text(), page.name) for command in block.commands)


def test_commands_and_their_outputs_are_found():
    page = """# A page

```sh
./railbed one \\
    --two          # a remark
# a remark alone
sudo ./railbed three   # exit code 1
```

It prints (numbers within 25 %):

```output
a
```

```text
no output
```

<details><summary>Answer</summary>

```sh
./railbed four
```

Times are your machine's
(numbers within a factor of 20).

```output
b
c
```

</details>
"""
    one, two = blocks(page, "page.md")
    assert one.commands == (Command("./railbed one --two", 4), Command("sudo ./railbed three", 7, exit_code=1))
    assert one.output is not None
    assert (one.output.lines, one.output.allowance) == (("a",), Allowance(percent=25))
    assert two.output is not None
    assert (two.output.lines, two.output.allowance) == (("b", "c"), Allowance(factor=20))


def test_an_allowance_holds_for_the_next_output_only():
    page = "```sh\na\n```\n(numbers within 25 %)\n\n```output\n1\n```\n\n```sh\nb\n```\n\n```output\n1\n```\n"
    assert [block.output.allowance for block in blocks(page, "p")] == [Allowance(percent=25), EXACT]
    before = "(numbers within 25 %):\n\n```sh\na\n```\n\n```output\n1\n```\n"
    assert blocks(before, "p")[0].output.allowance == Allowance(percent=25)
    any_time = "```sh\na\n```\n\nHere (times are your machine's):\n\n```output\n1\n```\n"
    assert blocks(any_time, "p")[0].output.allowance == Allowance(factor=float("inf"))
    far = "(numbers within 25 %)\n\nMore text.\n\n```output\n1\n```\n"
    assert blocks("```sh\na\n```\n" + far, "p")[0].output.allowance == EXACT


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("```sh\na\n", "not closed"),
        ("```sh\na\n```sh\n", "not closed"),
        ("- item\n\n  ```sh\n  a\n  ```\n", "first column"),
        ("```bash\na\n```\n", "unknown language 'bash'"),
        ("```output\na\n```\n", "without commands"),
        ("```sh\na\n```\n\n```output\na\n```\n\n```output\na\n```\n", "without commands"),
        ("```sh\na \\\n```\n", "not finished"),
        ("```sh\na &\n```\n", "in the background"),
    ],
)
def test_pages_that_break_the_convention_are_refused(page, sentence):
    with pytest.raises(PageError, match=sentence):
        blocks(page, "page.md")


def test_a_session_notices_what_is_wrong(tmp_path):
    page = tmp_path / "page.md"
    text = """```sh
echo one
echo two >&2
```

```output
one
two
```

```sh
false   # exit code 1
echo kept > file
```

```sh
cat file
```

```output
lost
```

```sh
exit 3
```

```sh
echo left out
echo run
```

```output
never looked at
```
"""
    found = wrong(page, blocks(text, page.name), [NotRun(page, "echo left out", "for the test")], tmp_path)
    assert len(found) == 3
    assert "page.md:20: shown: 'lost'; printed: 'kept'" in found[0]
    assert "page.md:25: exit 3: exit code 3, shown 0" in found[1]
    assert "some are not run" in found[2]


def test_every_command_that_is_not_run_is_in_a_page_and_says_why():
    for one in NOT_RUN:
        commands = {command.text for block in blocks(one.page.read_text(), one.page.name) for command in block.commands}
        assert one.command in commands, f"{INDEX}: {one.page.name} has no command '{one.command}'"
        assert len(one.why) > 20
    table = INDEX.read_text().partition("\n## Not run\n")[2].partition("\n## ")[0]
    assert table.count("\n| [") == len(NOT_RUN) > 0


@pytest.mark.parametrize("page", [page for page in PAGES if not is_live(page)], ids=lambda page: page.stem)
def test_what_pages_show_is_what_is_printed(page, tmp_path):
    prepare(tmp_path)
    found = wrong(page, blocks(page.read_text(), page.name), NOT_RUN, tmp_path)
    assert not found, "\n".join(found)
