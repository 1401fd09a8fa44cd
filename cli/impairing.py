"""What the commands that impair a link share: they set, show and reset one kind of impairment."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

_Function = TypeVar("_Function", bound=Callable[..., Any])


def show_and_reset(function: _Function) -> _Function:
    """Add the options ``--show`` and ``--reset`` (as ``show`` and ``reset``)."""
    for name, words in (("--reset", "End it."), ("--show", "Only show what the link does now.")):
        function = click.option(name, is_flag=True, help=words)(function)
    return function


def check_one_verb(value: object, show: bool, reset: bool, value_name: str) -> None:
    """Raise UsageError unless exactly one of a value, ``--show`` and ``--reset`` was given."""
    if (value is not None) + show + reset != 1:
        raise click.UsageError(f"give one of {value_name}, --show and --reset")


def rate_words(state: dict[str, Any]) -> str:
    """A link's rate."""
    if state["rate_mbps"] is None:
        return f"{state['own_rate_mbps']:g} Mbit/s (emulated), its own rate"
    return f"{state['rate_mbps']:g} of {state['own_rate_mbps']:g} Mbit/s (emulated)"


def netem_words(state: dict[str, Any]) -> str:
    """A link's delay and loss."""
    jitter = f" +/- {state['jitter_ms']:g}" if state["jitter_ms"] else ""
    return f"delay {state['delay_ms']:g}{jitter} ms, loss {state['loss_share'] * 100:.3g} %"


def blackhole_words(state: dict[str, Any]) -> str:
    """What a link swallows."""
    if not state["blackhole"]:
        return "swallows nothing"
    return f"swallows all packets ({' and '.join(state['blackhole'])}); its ports stay up"


def impairment_words(one: dict[str, Any]) -> str:
    """All that is wrong with a link."""
    words = ["down"] if one["down"] else []
    if one["blackhole"]:
        words.append(f"swallows packets ({' and '.join(one['blackhole'])})")
    if one["rate_mbps"] is not None:
        words.append(f"{one['rate_mbps']:g} Mbit/s only")
    if one["delay_ms"] or one["loss_share"]:
        words.append(netem_words(one))
    return ", ".join(words)
