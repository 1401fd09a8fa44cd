from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from cli.main import main
from emulator import asking, doctor
from emulator.asking import Answer
from emulator.doctor import Check, Verdict


def answering(code: int, text: str = "") -> asking.Ask:
    def answer(command: Sequence[str]) -> Answer:
        return Answer(code, text)

    return answer


def never(command: Sequence[str]) -> Answer:
    raise AssertionError(f"{command} must not be asked")


def test_without_root_nothing_is_tried_and_the_remedy_is_sudo() -> None:
    for check in (doctor.check_root(1000), doctor.check_namespaces(1000, never), doctor.check_shaping(1000, never)):
        assert check.verdict is Verdict.FAIL
        assert check.remedy == "run sudo ./railbed doctor"


def test_forbidden_namespaces_stop_everything() -> None:
    check = doctor.check_namespaces(0, answering(1, "unshare: unshare failed: Operation not permitted"))
    assert check.verdict is Verdict.FAIL
    assert "Operation not permitted" in check.found
    assert not doctor.can_emulate([Check("a", Verdict.WARN, ""), check])


@pytest.mark.parametrize(
    ("text", "verdict", "found"),
    [
        ("htb\nbfifo", Verdict.OK, "htb and bfifo"),
        ("htb", Verdict.FAIL, "this kernel lacks bfifo"),
        ("", Verdict.FAIL, "this kernel lacks htb and bfifo"),
    ],
)
def test_shaping_is_judged_by_what_the_kernel_took(text: str, verdict: Verdict, found: str) -> None:
    check = doctor.check_shaping(0, answering(0, text))
    assert (check.verdict, check.found) == (verdict, found)


def test_missing_impairments_are_only_a_warning() -> None:
    check = doctor.check_impairments(0, answering(0, "netem"))
    assert check.verdict is Verdict.WARN
    assert "lacks red" in check.found
    assert doctor.can_emulate([check])


def test_small_socket_buffers_are_only_a_warning() -> None:
    assert doctor.check_socket_buffers(0, can_raise=True).verdict is Verdict.OK
    check = doctor.check_socket_buffers(0, can_raise=False)
    assert check.verdict is Verdict.WARN
    assert "--network host" in check.remedy


def test_an_open_vswitch_without_fast_failover_is_a_warning() -> None:
    check = doctor.check_fast_failover(0, answering(1, "OFPT_ERROR"))
    assert check.verdict is Verdict.WARN
    assert "--no-local-repair" in check.remedy
    assert doctor.check_fast_failover(0, answering(0, "group_id=1,type=ff")).verdict is Verdict.OK
    assert doctor.check_fast_failover(1000, never).verdict is Verdict.WARN


@pytest.mark.parametrize("check", [doctor.check_open_vswitch, doctor.check_iperf3, doctor.check_mininet])
def test_a_program_that_is_not_installed_names_its_package(check: object) -> None:
    assert callable(check)
    found = check(answering(127))
    assert found.verdict is Verdict.FAIL
    assert "run sudo ./railbed setup (package " in found.remedy


def test_the_version_is_shown() -> None:
    assert doctor.check_iperf3(answering(0, "iperf 3.12 (cJSON 1.7.15)")).found.startswith("3.12 (")


def test_the_datapath_is_the_kernels_where_there_is_one(tmp_path: Path) -> None:
    assert doctor.check_datapath(never, tmp_path).found.startswith("kernel")
    assert doctor.check_datapath(answering(0), tmp_path / "none").found.startswith("kernel")
    missing = doctor.check_datapath(answering(1), tmp_path / "none")
    assert (missing.verdict, missing.found.split(":")[0]) == (Verdict.WARN, "userspace")


def test_python_39_is_too_old() -> None:
    assert doctor.check_python((3, 9, 18)).verdict is Verdict.FAIL
    assert doctor.check_python((3, 10, 0)).verdict is Verdict.OK


def test_the_holder_of_an_openflow_port_is_named() -> None:
    text = 'LISTEN 0 5 0.0.0.0:6653 0.0.0.0:* users:(("ovs-testcontrol",pid=42,fd=3))\nLISTEN 0 5 [::]:16633 [::]:*'
    check = doctor.check_ports(answering(0, text))
    assert check.found == "taken outside our namespaces: 6653 by ovs-testcontrol (pid 42)"


@pytest.mark.parametrize(("kilobytes", "verdict"), [(2_000_000, Verdict.OK), (100_000, Verdict.WARN)])
def test_free_memory(tmp_path: Path, kilobytes: int, verdict: Verdict) -> None:
    (tmp_path / "meminfo").write_text(f"MemTotal: 9 kB\nMemAvailable:   {kilobytes} kB\n")
    assert doctor.check_memory(tmp_path / "meminfo").verdict is verdict


def test_one_core_is_a_warning() -> None:
    assert [doctor.check_cores(cores).verdict for cores in (1, 2)] == [Verdict.WARN, Verdict.OK]


def test_what_a_crash_left_behind_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("emulator.rundir.RUN_ROOT", tmp_path)
    monkeypatch.setattr("emulator.rundir.NAMESPACE_DIR", tmp_path / "netns")
    assert doctor.check_leftovers().verdict is Verdict.OK
    (tmp_path / "lab").mkdir()
    check = doctor.check_leftovers()
    assert check.verdict is Verdict.WARN
    assert "lab" in check.found


def test_a_program_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "TOOL_TIMEOUT_S", 0.1)
    assert asking.ask(["sleep", "5"]).code == 124
    assert asking.ask(["no-such-program-anywhere"]).code == 127


@pytest.mark.parametrize(("verdict", "code"), [(Verdict.WARN, 0), (Verdict.FAIL, 1)])
def test_the_exit_code_says_whether_a_fabric_can_be_emulated(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verdict: Verdict, code: int
) -> None:
    monkeypatch.setattr(doctor, "examine", lambda: [Check("root", verdict, "found this", "do that")])
    with pytest.raises(SystemExit) as ended:
        main(["doctor"])
    assert ended.value.code == code
    assert "found this -> do that" in capsys.readouterr().out
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    assert ended.value.code == code
    printed = json.loads(capsys.readouterr().out)
    assert printed["can_emulate"] is (code == 0)
    assert printed["checks"] == [{"name": "root", "verdict": verdict, "found": "found this", "remedy": "do that"}]
