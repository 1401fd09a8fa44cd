"""``railbed shell``: a console on a running fabric."""

from __future__ import annotations

import os
import readline
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from cli.fabrics import name_option, need_root, running_fabric
from topologies.errors import RailbedError

if TYPE_CHECKING:
    from cli.console import Console
    from emulator.manager import RunningFabric


@click.command("shell")
@click.argument("fabric", metavar="[FABRIC]", required=False)
@click.option("-c", "commands", metavar="COMMANDS", help="Carry these out, separated by ';', and end.")
@name_option
def command(fabric: str | None, commands: str | None, name: str | None) -> int:
    """Open a console on a running fabric; leaving it leaves the fabric.

    It knows Railbed's commands, Mininet's, and NODE COMMAND, such as: d0r0 ping -c 1 d1r1. Without a terminal the
    commands are read from standard input, one a line; the exit code is that of the first that failed.
    """
    typed = click.get_current_context().get_parameter_source("name") is ParameterSource.COMMANDLINE
    if fabric is not None and typed:
        raise click.UsageError("name the fabric once")
    need_root("shell")
    running = running_fabric(fabric or name)
    from cli.console import FabricEndedError

    try:
        if commands is None and sys.stdin.isatty():
            return _interact(running)
        return _carry_out(running, commands)
    except FabricEndedError as error:
        sys.stdout.flush()
        click.echo(f"railbed: {error}", err=True)
        return 1


def _interact(running: RunningFabric) -> int:
    from cli.history import kept_history, state_folder

    readline.set_completer_delims(" \t\n")
    with _console(running, sys.stdin) as console, kept_history(state_folder(os.environ) / "history"):
        gpus = len(running.fabric.gpus)
        console.interact(f"{running.fabric.kind.value} with {gpus} GPUs; 'help' lists the commands, Ctrl-D leaves")
    return 0


def _carry_out(running: RunningFabric, commands: str | None) -> int:
    from cli.console_words import commands_in

    # What runs on a node must not eat the commands that follow, so it gets keys that never come.
    nothing, never = os.pipe()
    try:
        with os.fdopen(nothing) as keys, _console(running, keys) as console:
            console.script(iter(sys.stdin) if commands is None else iter(commands_in(commands)))
            return console.code
    finally:
        os.close(never)


@contextmanager
def _console(running: RunningFabric, keys: Any) -> Iterator[Console]:
    """A console that notices the end of its fabric, also while it waits for somebody to type."""
    from cli.console import Console
    from experiments.catalogue import NAMES

    console = Console(running, keys, lambda: list(NAMES))

    def told(_number: int, _frame: Any) -> None:
        console.ended = True
        if console.prompting:
            console.leave()

    signal.signal(signal.SIGUSR1, told)
    main_thread = threading.main_thread().ident
    assert main_thread is not None

    def watch() -> None:
        with suppress(RailbedError, OSError):
            for _ in running.follow():
                pass
        with suppress(ProcessLookupError):
            signal.pthread_kill(main_thread, signal.SIGUSR1)

    threading.Thread(target=watch, name="console-watch", daemon=True).start()
    try:
        yield console
    finally:
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        console.close()
