"""What the commands about scenarios share: the argument that names one, and values in place of the file's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from experiments.scenario import Scenario, Setting

_Function = TypeVar("_Function", bound=Callable[..., Any])

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="A value in place of the file's, such as fabrics[0].domains=8, workload.size=64MiB or seed=3; repeatable.",
)


def loaded_scenario(
    name_or_path: str, settings: Sequence[str], swept: Sequence[Setting] = (), **options: object
) -> Scenario:
    """The scenario of that name or path with ``settings`` in place, and the options that were given (not None).

    ``swept`` are the values of a case of a sweep, which come last.

    Raises ScenarioError and UnknownExperimentError.
    """
    from experiments.catalogue import find_scenario
    from experiments.scenario import parse_setting

    given = [parse_setting(text) for text in settings]
    given += [(key, value) for key, value in options.items() if value is not None]
    return find_scenario(name_or_path, (*given, *swept))
