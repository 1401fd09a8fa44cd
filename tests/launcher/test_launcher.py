"""The launcher as a user calls it. What changes the machine is tried in copies and in throw-away namespaces."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NOBODY = 65534
LIVE_COMMANDS = ("demo", "test", "up", "down", "fail", "restore")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user")
needs_stamp = pytest.mark.skipif(
    not (ROOT / ".venv" / "stamp-base").exists(), reason="the checkout was not set up by the launcher (./railbed setup)"
)


def call(*command: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload,no-any-return]
        [str(word) for word in command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        **{"timeout": 300, **options},
    )


@pytest.fixture
def lone_launcher() -> Iterator[Path]:
    """A copy of the launcher alone, in a folder with a blank in its name that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        place = Path(folder) / "rail bed"
        place.mkdir()
        for name in ("railbed", "setup.py", "requirements"):
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, place / name)
            else:
                shutil.copy2(source, place / name)
        yield place / "railbed"


def one_sentence(done: subprocess.CompletedProcess[str]) -> str:
    lines = done.stderr.splitlines()
    assert done.stdout == ""
    assert len(lines) == 1
    assert lines[0].startswith("railbed: ")
    return lines[0]


def as_root(launcher: Path, command: str) -> str:
    if shutil.which("sudo"):
        return f"run sudo {launcher} {command}"
    return f"run '{launcher} {command}' as root (there is no sudo here)"


@needs_root
@pytest.mark.parametrize("command", LIVE_COMMANDS)
def test_live_commands_without_root_say_so(lone_launcher: Path, command: str) -> None:
    done = call("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", lone_launcher, command)
    assert done.returncode == 2
    assert one_sentence(done) == f"railbed: '{command}' needs root: {as_root(lone_launcher, command)}"
    assert not (lone_launcher.parent / ".venv").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("setup", "--fast"), "setup does not take '--fast'; its only option is --ryu"),
        (("uninstall", "now"), "uninstall does not take 'now'; its only option is --packages"),
        (("--debug", "setup"), "'--debug' must come after 'setup'"),
    ],
)
def test_wrong_use(lone_launcher: Path, words: tuple[str, ...], sentence: str) -> None:
    done = call(lone_launcher, *words)
    assert done.returncode == 2
    assert one_sentence(done) == f"railbed: {sentence}"


@pytest.fixture
def poor_path(tmp_path: Path) -> Path:
    """A PATH with what the launcher itself needs and nothing else: no Mininet, no iperf3, no apt-get."""
    tools = "sh dirname readlink id stat cat cksum flock mktemp mkdir mv rm grep sed sort comm tail dpkg dpkg-query"
    for tool in tools.split():
        found = shutil.which(tool)
        assert found
        (tmp_path / tool).symlink_to(found)
    return tmp_path


@needs_root
def test_a_system_without_apt_gets_the_packages_named(lone_launcher: Path, poor_path: Path) -> None:
    done = call(lone_launcher, "up", env={"PATH": str(poor_path)})
    assert done.returncode == 1
    sentence = one_sentence(done)
    assert "this system has no apt-get: install" in sentence
    assert "mininet iperf3" in sentence


@needs_root
@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        ("W: Temporary failure resolving 'somewhere'", "because the network cannot be reached"),
        ("E: No space left on device", "because the disk is full"),
        ("E: Unable to locate package mininet", "E: Unable to locate package mininet (log: "),
    ],
)
def test_apt_that_fails_becomes_a_sentence(
    lone_launcher: Path, poor_path: Path, tmp_path_factory: pytest.TempPathFactory, answer: str, sentence: str
) -> None:
    apt = poor_path / "apt-get"
    apt.write_text(f'#!/bin/sh\necho "{answer}"\nexit 100\n')
    apt.chmod(0o755)
    logs = tmp_path_factory.mktemp("logs")
    done = call(lone_launcher, "up", env={"PATH": str(poor_path), "TMPDIR": str(logs)})
    assert done.returncode == 1
    announced, failed = done.stderr.splitlines()
    assert announced.startswith("railbed: installing ")
    assert sentence in failed
    assert answer in next(logs.iterdir()).read_text()
    assert not (lone_launcher.parent / ".packages-before").exists(), "nothing was left half-way"


@pytest.fixture
def outside(lone_launcher: Path, tmp_path: Path) -> Path:
    """An environment outside the checkout, up to date, whose interpreter prints its own name."""
    platform = os.uname()
    environment = tmp_path / f"{platform.sysname}-{platform.machine}" / ".venv"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "python").write_text('#!/bin/sh\nprintf "%s\\n" "$0"\n')
    (environment / "bin" / "python").chmod(0o755)
    files = [lone_launcher.parent / name for name in ("setup.py", "requirements/constraints.txt", "railbed")]
    stamp = call("sh", "-c", 'printf "%s\n%s\n" "$0" "$(/usr/bin/python3 -V)"; cat -- "$@" | cksum',
                 lone_launcher.parent, *files)  # fmt: skip
    (environment / "stamp-base").write_text(stamp.stdout)
    return environment


APT_AND_DPKG = """\
#!/bin/sh
echo "$(basename "$0") $*" >>"$LOG"
case "$(basename "$0") $*" in
    dpkg-query*) cat "$PRESENT" ;;
    "dpkg --audit") cat "$HALF_WAY" ;;
    "dpkg --configure"*) : >"$HALF_WAY" ;;
    *fix-broken*) ;;
    apt-get*autoremove*) printf 'Remv iperf3 [3]\\nRemv libfrom0 [1]\\nRemv theirs [2]\\n' ;;
    apt-get*install*)
        if [ -e "$CUT_SHORT" ]; then
            echo half >"$HALF_WAY"
            exit 100
        fi
        printf 'ii mininet\\nii iperf3\\nii libfrom0\\n' >>"$PRESENT"
        ;;
esac
"""
"""Stands for apt and dpkg on a machine whose first installation is cut short."""


@needs_root
def test_an_installation_cut_short_is_finished_and_only_what_it_brought_is_removed(
    lone_launcher: Path, outside: Path, poor_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    notes = tmp_path_factory.mktemp("notes")
    for name in ("basename", "find", "ln", "mount", "uname"):
        (poor_path / name).symlink_to(str(shutil.which(name)))
    for name in ("apt-get", "apt-mark", "dpkg", "dpkg-query"):
        (poor_path / name).unlink(missing_ok=True)
        (poor_path / name).write_text(APT_AND_DPKG)
        (poor_path / name).chmod(0o755)
    names = {name: str(notes / name.lower()) for name in ("LOG", "PRESENT", "HALF_WAY", "CUT_SHORT")}
    for file in names.values():
        Path(file).touch()
    Path(names["PRESENT"]).write_text("ii theirs\nrc gone\n")
    settings = {"PATH": str(poor_path), "TMPDIR": str(notes), "RAILBED_ENVIRONMENTS": str(outside.parents[1]), **names}

    def said() -> str:
        text = Path(names["LOG"]).read_text()
        Path(names["LOG"]).write_text("")
        return text

    before, ours = (outside.parent / f".packages-{name}" for name in ("before", "installed"))
    assert call(lone_launcher, "up", env=settings).returncode == 1
    assert before.read_text() == "theirs\n"
    Path(names["CUT_SHORT"]).unlink()
    said()
    again = call(lone_launcher, "up", env=settings)
    assert "railbed: finishing an installation of packages that was cut short" in again.stderr.splitlines()
    commands = said()
    assert (
        commands.index("dpkg --configure -a")
        < commands.index("install --fix-broken")
        < commands.index("mininet iperf3")
    )
    assert not before.exists()
    assert ours.read_text().split() == ["iperf3", "libfrom0", "mininet"]

    script = 'mount -t tmpfs none /run && exec "$0" uninstall --packages'  # other fabrics may be up on this machine
    removed = call(str(shutil.which("unshare")), "--mount", "sh", "-c", script, lone_launcher, env=settings)
    assert (removed.returncode, removed.stdout.splitlines()[0]) == (0, "removed packages: iperf3 libfrom0"), removed
    commands = said()
    assert "apt-mark auto iperf3 libfrom0 mininet" in commands
    assert "remove iperf3 libfrom0\n" in commands
    assert "theirs" not in commands
    assert not ours.exists()


@needs_root
def test_environments_may_be_outside_the_checkout(lone_launcher: Path, outside: Path) -> None:
    settings = {**os.environ, "RAILBED_ENVIRONMENTS": str(outside.parents[1])}
    done = call(lone_launcher, "results", env=settings)
    assert (done.returncode, done.stdout) == (0, f"{outside}/bin/python\n"), done.stderr
    assert not (lone_launcher.parent / ".venv").exists()


@needs_root
@pytest.mark.live
def test_uninstall_removes_environments_outside_the_checkout(lone_launcher: Path, outside: Path) -> None:
    settings = {**os.environ, "RAILBED_ENVIRONMENTS": str(outside.parents[1])}
    script = 'mount -t tmpfs none /run && exec "$0" uninstall'  # other fabrics may be up on this machine
    done = call("unshare", "--mount", "sh", "-c", script, lone_launcher, env=settings)
    assert (done.returncode, done.stdout.splitlines()[:1]) == (0, [f"removed: {outside}"]), done.stderr
    assert not outside.exists()


@needs_root
@pytest.mark.live
def test_no_network_is_one_sentence_and_the_next_call_starts_anew(lone_launcher: Path, tmp_path: Path) -> None:
    done = call(
        "unshare", "--net", lone_launcher, "--version", env={**os.environ, "TMPDIR": str(tmp_path)}, timeout=120
    )
    assert done.returncode == 1
    announced, failed = done.stderr.splitlines()
    assert announced.startswith("railbed: preparing the Python environment")
    assert "because the network cannot be reached" in failed
    environment = lone_launcher.parent / ".venv"
    assert (environment / "incomplete").exists()
    assert not (environment / "stamp-base").exists()


@needs_stamp
def test_the_second_call_installs_nothing_and_works_from_anywhere(tmp_path: Path) -> None:
    link = tmp_path / "link to railbed"
    link.symlink_to(ROOT / "railbed")
    # Folders that are named as our packages must not be taken for them.
    (tmp_path / "cli").mkdir()
    (tmp_path / "cli" / "__init__.py").touch()
    assert call(link, "--version", cwd=tmp_path).returncode == 0  # the launcher may be newer than the environment
    done = call(link, "--version", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("railbed, version ")


@needs_stamp
def test_setup_is_idempotent() -> None:
    done = call(ROOT / "railbed", "setup")
    assert (done.returncode, done.stdout, done.stderr) == (0, "nothing to do: everything is installed\n", "")


@needs_stamp
def test_help_of_live_commands_needs_no_root_and_exit_codes_pass_through() -> None:
    assert call(ROOT / "railbed", "demo", "--help").returncode == 0
    done = call(ROOT / "railbed", "run", "no-such-file.yaml", "--backend", "simulator")
    assert done.returncode == 2
    assert "no-such-file.yaml" in one_sentence(done)


@pytest.mark.skipif(shutil.which("shellcheck") is None, reason="shellcheck is not installed")
def test_the_shell_scripts_are_clean() -> None:
    scripts = [ROOT / name for name in ("railbed", ".ci/run", "vm/provision", "vm/welcome", "tests/vm/measure-init")]
    done = call("shellcheck", *scripts)
    assert done.returncode == 0, done.stdout


@needs_root
@pytest.mark.soak
def test_first_calls_from_a_clean_copy(tmp_path: Path) -> None:
    """Two first calls at once, then one that is killed half-way: in the end the environment works."""
    place = tmp_path / "clean copy"
    shutil.copytree(ROOT, place, ignore=shutil.ignore_patterns(".git", ".venv*", ".*_cache", "__pycache__", "results"))
    launcher = str(place / "railbed")
    both = [subprocess.Popen([launcher, "--version"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    answers = [process.communicate(timeout=300)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(answer.startswith("railbed, version ") for answer in answers)

    shutil.rmtree(place / ".venv")
    with subprocess.Popen([launcher, "--version"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as killed:
        deadline_s = time.monotonic() + 60
        while not (place / ".venv" / "pyvenv.cfg").exists():
            assert time.monotonic() < deadline_s
            with pytest.raises(subprocess.TimeoutExpired):
                killed.wait(0.05)
        killed.kill()
    again = call(launcher, "doctor", "--json", timeout=300)
    assert again.returncode in (0, 1), again.stderr
    assert not (place / ".venv" / "incomplete").exists()
    removed = call(launcher, "uninstall")
    assert removed.returncode == 0
    assert not (place / ".venv").exists()
