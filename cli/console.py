"""The console of ``railbed shell``: Mininet's command line on a running fabric, with Railbed's commands as verbs."""

from __future__ import annotations

import logging
import os
import select
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any, NoReturn

import click
from mininet.cli import CLI
from mininet.log import OUTPUT, lg

from cli.console_record import ConsoleRecording
from cli.console_run import names_a_workload, run_workload, workloads_of
from cli.console_words import EXAMPLES, completions, without_comment, without_input, words_of
from cli.errors import ConsoleError
from cli.impairing import impairment_words
from cli.main import COMMANDS, command_named, run_words
from cli.output import table
from emulator.console_net import console_view
from emulator.mininet_net import addressed
from topologies.errors import RailbedError
from topologies.model import Fabric, LinkKind
from topologies.near import did_you_mean
from topologies.scale import link_rate_mbps

if TYPE_CHECKING:
    from emulator.manager import RunningFabric

_REPLACED = {
    "xterm": "there is no window here: open a second console, or use 'NODE COMMAND'",
    "gterm": "there is no window here: open a second console, or use 'NODE COMMAND'",
    "x": "there is no window here: use 'NODE COMMAND'",
    "switch": "a switch is taken down with 'fail' and brought back with 'restore'",
    "iperfudp": "there is no UDP test: 'iperf' measures TCP, 'd0r0 iperf3 ...' whatever you like",
    "wait": "nothing is to be waited for: a fabric that is up has all its switches connected",
}
"""Commands of Mininet that would not do here what they say, and what does."""

IPERF_S = 5.0
_OWN = ("links", "record", "iperf", "link")
_ESCAPES = {"?": "help ", "!": "sh "}


class FabricEndedError(RailbedError):
    """The fabric of the console went down."""


class _Printed(logging.StreamHandler):  # type: ignore[type-arg]
    """Prints what Mininet says on standard output, as it comes; a pty's line ends become plain ones."""

    terminator = ""

    def emit(self, record: logging.LogRecord) -> None:
        sys.stdout.write(record.getMessage().replace("\r\n", "\n"))
        sys.stdout.flush()


class Console(CLI):  # type: ignore[misc]
    """Reads commands and carries them out. ``code`` is the exit code of the first that failed."""

    def __init__(self, running: RunningFabric, keys: IO[str], scenarios: Callable[[], list[str]]) -> None:
        """``keys`` is passed on to a command of a node while it runs, if it is a terminal."""
        self.running = running
        self.fabric: Fabric = running.fabric
        self.code = 0
        self.ended = False
        self._scenarios = scenarios
        self._runnable: list[str] | None = None
        self._recording = ConsoleRecording(running)
        self._verbs = [verb for verb in EXAMPLES if verb in COMMANDS]
        lg.handlers, lg.level = [_Printed()], logging.ERROR  # of nodes that are only being described
        super().__init__(console_view(running), stdin=keys)
        lg.level = OUTPUT
        self.prompt = f"railbed {running.name}> "
        self.prompting = False

    @classmethod
    def initReadline(cls) -> None:  # noqa: N802 - Mininet's name
        """Mininet would use a history of its own; the command sees to ours."""

    def run(self) -> None:
        """Called by Mininet at the end of construction; the command says when to begin."""

    def close(self) -> None:
        """End the shells of the nodes and a recording; the fabric stays."""
        self._recording.stop()
        for node in self.mn.values():
            node.terminate()

    # ------------------------------------------------------------------ the loop

    def interact(self, introduction: str) -> None:
        """Read commands from the terminal until the user leaves; raises FabricEndedError if the fabric ends first."""
        print(introduction)
        while True:
            try:
                self.cmdloop()
                return
            except KeyboardInterrupt:
                print()
                self._interrupt_nodes()

    def script(self, lines: Iterator[str]) -> None:
        """Carry out commands one after the other, whatever becomes of them; raises FabricEndedError."""
        self._prompt_or_leave()
        for line in lines:
            if self.postcmd(self.onecmd(self.precmd(line)), line):
                return

    def _interrupt_nodes(self) -> None:
        for node in self.mn.values():
            while node.started and node.waiting:
                node.sendInt()
                node.waitOutput()

    def preloop(self) -> None:
        """From here on an end of the fabric interrupts the prompt."""
        self._prompt_or_leave()

    def precmd(self, line: str) -> str:
        """Take the comment away."""
        self.prompting = False
        return without_comment(line)

    def postcmd(self, stop: Any, line: str) -> Any:
        """After a command: leave if it says so, or if the fabric has ended meanwhile."""
        if not stop:
            self._prompt_or_leave()
        return stop

    def _prompt_or_leave(self) -> None:
        self.prompting = True
        if self.ended:
            self.leave()

    def leave(self) -> NoReturn:
        """Raise FabricEndedError."""
        self.prompting = False
        raise FabricEndedError(f"the fabric '{self.running.name}' was taken down; this console ends with it")

    def onecmd(self, line: str) -> Any:
        """One command: a verb of Railbed, one of Mininet, or ``NODE COMMAND``; errors are printed."""
        verb, _, rest = line.strip().partition(" ")
        try:
            if verb in self._verbs:
                self._note(self._railbed(verb, rest))
                return None
            if verb in _REPLACED:
                raise ConsoleError(f"'{verb}' is not available: {_REPLACED[verb]}")
            return super().onecmd(line)
        except (RailbedError, ValueError, OSError) as error:
            self._fail(str(error), getattr(error, "exit_code", 1))
            return None

    def _fail(self, sentence: str, code: int = 2) -> None:
        sys.stdout.flush()
        click.echo(f"railbed: {sentence}", err=True)
        self._note(code)

    def _note(self, code: int) -> None:
        self.code = self.code or code

    # ------------------------------------------------------------------ verbs

    def _railbed(self, verb: str, rest: str) -> int:
        """Run a command of Railbed on this fabric; its exit code."""
        words = words_of(rest)
        if verb == "run" and len(words) == 1 and names_a_workload(words[0]):
            return run_workload(self.running, words[0])
        # A stored result is diagnosed without a fabric.
        of_a_result = verb == "diagnose" and bool(words) and not words[0].startswith("-")
        has_name = of_a_result or any(word.split("=")[0] == "--name" for word in words)
        named = "--name" in self._options(verb) and not has_name
        return run_words([verb, *(["--name", self.running.name] if named else []), *words])

    def _options(self, verb: str) -> list[str]:
        return [option for parameter in command_named(verb).params for option in parameter.opts if option[:2] == "--"]

    def do_links(self, line: str) -> None:
        """The links, those of one node, or those whose names begin with a text.

        Usage: links [NODE | BEGINNING]
        """
        down = set(self.running.status()["links_down"])
        wrong = {one["link"]: impairment_words(one) for one in self.running.impairments()}
        wanted = line.strip()
        node = self.fabric.gpu_by_id[wanted].switch_id if wanted in self.fabric.gpu_by_id else wanted
        links = [
            link
            for link in self.fabric.failure_targets()
            if node in (link.a, link.b) or (node not in self.fabric.switch_by_id and link.id.startswith(node))
        ]
        if not links:
            raise ConsoleError(f"there is no node or link '{wanted}'; 'links' without a name lists all")
        rows = [
            (link.id, link.kind.value, f"{link.a}-{link.b}", f"{link_rate_mbps(link, self.running.scale):g}",
             wrong.get(link.id) or ("down" if link.id in down else "up"))
            for link in links
        ]  # fmt: skip
        print(table(("LINK", "KIND", "ENDS", "MBIT/S", "STATE"), rows))

    def do_link(self, line: str) -> None:
        """Take all links between two nodes down, or bring them back.

        Usage: link NODE NODE up|down
        """
        words = line.split()
        if len(words) != 3 or words[2] not in ("up", "down"):
            raise ConsoleError("'link' takes two nodes, and up or down: link d0r1 rail1 down")
        gpus = self.fabric.gpu_by_id
        ends = {gpus[word].switch_id if word in gpus else word for word in words[:2]}
        between = [link.id for link in self.fabric.links if {link.a, link.b} == ends and link.kind is not LinkKind.HOST]
        if not between:
            raise ConsoleError(f"no link joins {words[0]} and {words[1]}; 'links' lists them")
        for link_id in between:
            self._note(self._railbed("fail" if words[2] == "down" else "restore", link_id))

    def do_iperf(self, line: str) -> None:
        """The rate of one TCP flow between two GPUs, the first two if none are named; iperf3, 5 s.

        Usage: iperf [GPU GPU]
        """
        words = line.split() or [gpu.id for gpu in self.fabric.gpus[:2]]
        if len(words) != 2:
            raise ConsoleError("'iperf' takes two GPUs: iperf d0r1 d1r1")
        src, dst = (self.fabric.gpu(word).id for word in words)
        print(f"one flow of {IPERF_S:g} s from {src} to {dst}")
        measured = self.running.steady([(src, dst)], IPERF_S)
        print(f"{measured['rates_mbps'][0]:.1f} Mbit/s of payload (emulated)")
        if measured["overload"]:
            print(f"not to be trusted, the machine was overloaded: {measured['overload']}")

    def do_record(self, line: str) -> None:
        """Record what the live page would show, for 'railbed dashboard --replay FILE'; leaving ends it too.

        Usage: record FILE | record stop | record
        """
        print(self._recording.order(line.strip()))

    def do_sh(self, line: str) -> None:
        """Run a command of this machine, outside the fabric.

        Usage: sh COMMAND
        """
        self._note(os.waitstatus_to_exitcode(os.system(line)) & 0xFF)

    def do_source(self, line: str) -> None:
        """Carry out the commands of a file.

        Usage: source FILE
        """
        try:
            with open(line.strip(), encoding="utf-8") as lines:
                self.script(lines)
        except (OSError, UnicodeDecodeError) as error:
            raise ConsoleError(f"the commands in '{line.strip()}' cannot be read: {error}") from None

    # ------------------------------------------------------------------ NODE COMMAND

    def default(self, line: str) -> None:
        """``NODE COMMAND``; anything else is unknown."""
        first, rest, _ = self.parseline(line)
        if first not in self.mn:
            known = [*self._verbs, *_OWN, *self.mn, *(name[3:] for name in self.get_names() if name[:3] == "do_")]
            word = line.split()[0]
            hint = did_you_mean(word, known).rstrip() or "'help' lists what there is"
            raise ConsoleError(f"there is no command and no node '{word}': {hint}")
        if not rest:
            raise ConsoleError(f"give a command for {first}, such as '{first} ip addr'")
        node, wanted = self.mn[first], addressed(self.mn, rest)
        if not self.isatty():
            words_of(rest)  # a quote that is never closed would be waited for
            wanted = without_input(wanted)
        node.sendCmd(wanted)
        self.waitForNode(node)
        if not self.isatty():
            # The shell's own $? is left as it was.
            code = node.cmd("railbed_code=$?; echo $railbed_code; (exit $railbed_code)").strip()
            self._note(int(code) if code.isdigit() else 1)

    def waitForNode(self, node: Any) -> None:  # noqa: N802 - Mininet's name
        """Print what a node's command says until it has ended; keys and Ctrl-C go to it."""
        poller = select.poll()
        poller.register(node.stdout, select.POLLIN)
        keys = self.stdin.fileno()
        if self.isatty():
            poller.register(keys, select.POLLIN)
        with self._single_keys():
            while node.waiting:
                try:
                    for ready, _ in poller.poll():
                        if ready == keys:
                            node.write(os.read(keys, 1024).decode(errors="replace"))
                        else:
                            lg.output(node.monitor())
                except KeyboardInterrupt:
                    node.sendInt()
                except OSError:
                    node.end_shell()
                    raise ConsoleError(f"the shell of {node.name} has ended; the next command starts another") from None

    @contextmanager
    def _single_keys(self) -> Iterator[None]:
        """Give keys on as they are typed; a command's own terminal echoes them. Ctrl-C stays a signal."""
        if not self.isatty():
            yield
            return
        keys = self.stdin.fileno()
        kept = termios.tcgetattr(keys)
        changed = termios.tcgetattr(keys)
        changed[3] &= ~termios.ICANON
        termios.tcsetattr(keys, termios.TCSADRAIN, changed)
        try:
            yield
        finally:
            termios.tcsetattr(keys, termios.TCSADRAIN, kept)

    # ------------------------------------------------------------------ help and completion

    def do_help(self, line: str) -> None:
        """The commands, or one of them with an example.

        Usage: help [COMMAND]
        """
        verb = line.strip()
        if verb in self._verbs:
            context = click.Context(command_named(verb), info_name=verb, max_content_width=110)
            print(f"{context.get_help()}\n\nExample: {EXAMPLES[verb]}")
        elif verb in _REPLACED:
            print(f"not available: {_REPLACED[verb]}")
        elif verb:
            method = getattr(self, f"do_{verb}", None)
            if method is None:
                raise ConsoleError(f"there is no help on '{verb}'; 'help' lists the commands")
            text = " ".join((method.__doc__ or "").split()).replace(" Usage:", "\nUsage:")
            print(text)
        else:
            mininets = [name for name in self._mininets() if name not in _OWN]
            print(f"Railbed: {' '.join(sorted([*self._verbs, *_OWN]))}")
            print(f"Mininet: {' '.join(mininets)}")
            print("\n'help COMMAND' says more. NODE COMMAND runs a command on a node: d0r0 ping -c 1 d1r1")
            print("Ctrl-C ends the command, Ctrl-D or 'exit' leaves; the fabric stays up.")

    def _mininets(self) -> list[str]:
        names = (name[3:] for name in self.get_names() if name.startswith("do_"))
        return sorted(name for name in set(names) if name != "EOF" and name not in _REPLACED)

    def _runs(self) -> list[str]:
        """What ``run`` takes: scenarios, and workloads that fit this fabric, which are looked for once."""
        if self._runnable is None:
            self._runnable = [*self._scenarios(), *workloads_of(self.fabric)]
        return self._runnable

    def completenames(self, text: str, *_ignored: Any) -> list[str]:
        """Commands and nodes for the first word."""
        known = {*self._verbs, *self._mininets(), *self.mn}
        return sorted(f"{name} " for name in known if name.startswith(text))

    def complete_help(self, text: str, *_ignored: Any) -> list[str]:
        """Commands."""
        return sorted(f"{name} " for name in {*self._verbs, *self._mininets()} if name.startswith(text))

    def completedefault(self, text: str, line: str, *_ignored: Any) -> list[str]:
        """Ids, options and names for the other words."""
        verb = line.split()[0]
        options = self._options(verb) if verb in self._verbs else []
        return completions(self.fabric, verb, text, options, self._runs() if verb == "run" else ())
