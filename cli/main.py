"""The entry point: finds the command, runs it, and turns every error into one sentence and an exit code.

Command modules are imported only when their command runs, so that a fast command starts fast.
"""

from __future__ import annotations

import importlib
import keyword
import os
import sys
import traceback
from typing import NoReturn

import click

from topologies.errors import RailbedError
from topologies.near import did_you_mean

COMMANDS = {
    "demo": "The main job: both fabrics, the same traffic, one failure, a report.",
    "run": "Run a scenario file and write its results.",
    "results": "The stored results: list them, remove them.",
    "report": "Draw figures and report of a stored result again.",
    "plan": "What a scenario would do: transfers, paths, loads, rules, predicted times.",
    "validate": "Check scenario files exactly as `run` does.",
    "experiments": "The catalogue of experiments that `run` knows by name.",
    "import": "Read a trace, a workload, a log or a fabric that another tool wrote.",
    "compare": "Results side by side, or beside a log of nccl-tests.",
    "iteration": "What one training iteration of a model sends.",
    "cost": "What a fabric is made of, what it costs and what it draws.",
    "downtime": "What failures cost a training job, by part.",
    "up": "Start a fabric that stays up in the background.",
    "down": "Take fabrics down and remove everything that is theirs.",
    "status": "The fabrics that are up, and how they are.",
    "dashboard": "The live page of a running fabric, or of a recording.",
    "watch": "Loads, failures and events of a running fabric, on a terminal.",
    "shell": "A console on a running fabric.",
    "exec": "A real program on every GPU of a running fabric.",
    "fail": "Take a link, a GPU or a switch of a running fabric down.",
    "capture": "The packets of one link, both ways, shown or in a file.",
    "path": "Where packets go: declared, by the rules, and in truth.",
    "why": "The reason for each hop of a path.",
    "diagnose": "Which component is at fault, in a stored run or on a running fabric.",
    "rules": "What the switches of a running fabric hold.",
    "drain": "A part of a running fabric out of service, or into it again.",
    "restore": "Undo whatever is wrong with a link, GPU or switch.",
    "blackhole": "A link that swallows packets while its ports stay up.",
    "degrade": "A link with a lower rate.",
    "flap": "A link that goes down and up again and again.",
    "delay": "A link that delays packets, where the kernel can.",
    "loss": "A link that loses packets, where the kernel can.",
    "failures": "What is wrong with the links, and the end of it.",
    "mystery": "Hide a fault in a running fabric for others to find.",
    "solve": "Judge who says where the hidden fault is.",
    "calibrate": "What this machine forwards, and whether the default scales hold on it.",
    "bench": "A benchmark of the checkout, by name.",
    "doctor": "What this machine can emulate, and what to do about what it can't.",
    "setup": "Install what is missing, and nothing else.",
    "uninstall": "Remove what setup made in the checkout, and its packages if asked.",
    "test": "Lint, types and all tests.",
}
"""Every command with its line in the overview; the module of the same name holds it as ``command``."""

_LIVE, _PAGE = ("live fabrics use", "emulator"), ("the page uses", "dashboard")
_CLUSTER = ("sweeps on a cluster use", "dask")
OPTIONAL_MODULES = {
    **dict.fromkeys(("mininet", "os_ken", "psutil", "pyroute2", "scapy"), _LIVE),
    **dict.fromkeys(("starlette", "uvicorn"), _PAGE),
    **dict.fromkeys(("dask", "distributed"), _CLUSTER),
}
"""What a plain `pip install` leaves out."""


class _LazyCommands(click.Group):
    """A group that imports the module of a command when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        # A command may be called like a word of the language; its module may not.
        module = f"{cmd_name}_" if keyword.iskeyword(cmd_name) else cmd_name
        found = importlib.import_module(f"cli.{module}").command
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            hint = did_you_mean(name, COMMANDS).rstrip() or "'railbed --help' lists the commands"
            raise click.UsageError(f"there is no command '{name}': {hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=_LazyCommands,
    name="railbed",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(package_name="railbed", prog_name="railbed")
@click.option("--debug", is_flag=True, help="Show the trace of an error, not only its sentence.")
def railbed(debug: bool) -> None:
    """Railbed: a scale model of a GPU cluster's network that runs on one laptop."""


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 failed, 2 wrong use."""
    words = sys.argv[1:] if arguments is None else arguments
    sys.exit(run_words(words))


def command_named(name: str) -> click.Command:
    """The command of that name in ``COMMANDS``."""
    found = railbed.get_command(click.Context(railbed), name)
    assert found is not None
    return found


def run_words(words: list[str]) -> int:
    """The exit code of the command line ``words``; errors are printed to stderr."""
    debug = "--debug" in words[:1] or bool(os.environ.get("RAILBED_DEBUG"))
    try:
        result = railbed.main(args=words, prog_name="railbed", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return 2
    except click.ClickException as error:
        _say(_with_help_hint(error))
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        if debug:
            traceback.print_exc()
        _say("interrupted")
        return 1
    except BrokenPipeError:
        # The reader of our output went away, as `head` does; nothing may be written at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except RailbedError as error:
        if debug:
            traceback.print_exc()
        _say(str(error))
        return error.exit_code
    except Exception as error:
        if debug:
            traceback.print_exc()
        if isinstance(error, ModuleNotFoundError) and error.name in OPTIONAL_MODULES:
            used_by, extra = OPTIONAL_MODULES[error.name]
            _say(
                f"this command needs {error.name}, which {used_by} and this installation lacks: "
                f"run ./railbed in a checkout, or install the extra '{extra}'"
            )
            return 2
        _say(f"unexpected {type(error).__name__}: {_one_line(str(error))}; 'railbed --debug ...' shows the trace")
        return 1


def _with_help_hint(error: click.ClickException) -> str:
    message = _one_line(error.format_message()).rstrip(".")
    context = getattr(error, "ctx", None)
    if context is None or "--help" in message:
        return message
    return f"{message}; see '{context.command_path} --help'"


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _say(sentence: str) -> None:
    click.echo(f"railbed: {sentence}", err=True)
