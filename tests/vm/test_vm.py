"""The classroom VM, proved: Debian 12 from its packages, started in QEMU, provisioned by the Vagrantfile's script.

``./railbed test --vm`` runs this and nothing else. With RAILBED_VM_RECORD=FILE what was measured is written there.
"""

from __future__ import annotations

import json
import math
import os
import platform
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.vm import in_guest
from tests.vm.image import image, missing_programs
from tests.vm.machine import Machine, accelerator, booted, measure

ROOT = Path(__file__).resolve().parents[2]
VAGRANTFILE = (ROOT / "Vagrantfile").read_text()
CACHE = Path(os.environ.get("RAILBED_VM_CACHE") or Path.home() / ".cache" / "railbed-vm")
CHECKOUT = "/railbed"
PROVISION = f"sudo {CHECKOUT}/vm/provision {CHECKOUT} 8400 vagrant"

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(os.geteuid() != 0, reason="making a disk image needs root"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the image is made for x86-64 only"),
    pytest.mark.skipif(bool(missing_programs()), reason=f"not installed: {' '.join(missing_programs())}"),
]


class Record:
    """What is measured on the way, for those who want to keep it."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def note(self, name: str, value: Any) -> None:
        """Keep one value, on disk at once if a file is wanted: a later step may fail."""
        self.values[name] = value
        if path := os.environ.get("RAILBED_VM_RECORD"):
            Path(path).write_text(json.dumps(self.values, indent=1) + "\n")


@pytest.fixture(scope="module")
def record() -> Record:
    return Record()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the machine's disk and console are."""
    return tmp_path_factory.mktemp("vm")


@pytest.fixture(scope="module")
def machine(folder: Path, record: Record) -> Iterator[Machine]:
    """The virtual machine, with the checkout in it as Vagrant copies it."""
    made = image(CACHE)
    kind = accelerator(made)
    record.note("accelerator", kind)
    began_s = time.monotonic()
    with booted(made, folder, kind) as running:
        record.note("boot_to_ssh_s", round(time.monotonic() - began_s, 1))
        not_copied = re.search(r"NOT_COPIED = %w\[(.*?)\]", VAGRANTFILE)
        assert not_copied
        running.copy_in(ROOT, CHECKOUT, not_copied[1].split())
        yield running


@pytest.fixture(scope="module")
def provisioned(machine: Machine, record: Record) -> Machine:
    """The same, provisioned by the Vagrantfile's script."""
    began_s = time.monotonic()
    done = machine.run(PROVISION, 3600)
    record.note("provision_s", round(time.monotonic() - began_s, 1))
    print(done.stdout)
    assert done.stdout.endswith("==> ready\n")
    return machine


Measure = Callable[[str], Any]


@pytest.fixture(scope="module")
def measure_in(provisioned: Machine, folder: Path, record: Record) -> Measure:
    """Switches the machine off and starts its disk again to measure; a job's last line is a JSON object."""
    provisioned.shut_down()
    made, kind = image(CACHE), record.values["accelerator"]

    def run(job: str) -> Any:
        said = measure(made, folder, kind, job)
        print(said)
        record.note(job, json.loads(said.splitlines()[-1]))
        return record.values[job]

    return run


@pytest.fixture(scope="module")
def measured(measure_in: Measure) -> dict[str, Any]:
    """What the program inside has found out."""
    found: dict[str, Any] = measure_in("in_guest")
    return found


def test_the_doctor_finds_nothing_to_complain_about(provisioned: Machine, record: Record) -> None:
    found = json.loads(provisioned.run("railbed doctor --json").stdout)
    record.note("doctor", found)
    assert found["can_emulate"]
    verdicts = {check["name"]: (check["verdict"], check["found"]) for check in found["checks"]}
    assert verdicts["datapath"][0] == "ok"
    assert verdicts["datapath"][1].startswith("kernel")
    assert verdicts["delay and loss"] == ("ok", "netem and red")


def test_provisioning_again_changes_nothing(provisioned: Machine) -> None:
    listing = "sudo sh -c 'cat /etc/default/railbed /usr/local/bin/railbed /etc/profile.d/railbed.sh; dpkg -l'"
    before = provisioned.run(listing).stdout
    assert "nothing to do: everything is installed" in provisioned.run(PROVISION, 1800).stdout
    assert provisioned.run(listing).stdout == before


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ("modprobe", "has no module openvswitch: install linux-image-amd64"),
        ("unshare", "No fabric can be emulated here"),
    ],
)
def test_provisioning_fails_loudly(provisioned: Machine, broken: str, says: str) -> None:
    """On a kernel without the module, and where the doctor says no."""
    said = provisioned.script(f"""
        stub=$(mktemp -d)
        printf '#!/bin/sh\\nexit 1\\n' >"$stub/{broken}"
        chmod -R a+rx "$stub"
        sudo env PATH="$stub:$PATH" {CHECKOUT}/vm/provision {CHECKOUT} 8400 vagrant
        echo "exit code $?"
    """)
    assert says in said
    assert said.endswith("exit code 1\n")
    assert "==> ready" not in said


def test_the_checkout_is_left_alone_and_commands_work_as_the_user(provisioned: Machine) -> None:
    assert provisioned.run(f"ls -d {CHECKOUT}/.venv", check=False).returncode != 0
    assert provisioned.run("bash -lc 'pwd; railbed experiments | head -3'").stdout.startswith(CHECKOUT)
    welcome = provisioned.run(f"sudo {CHECKOUT}/vm/welcome").stdout
    assert re.search(r"http://127\.0\.0\.1:8400/\?token=[0-9a-f]{32}$", welcome, re.MULTILINE)


def test_the_live_page_is_served_where_the_forwarded_port_arrives(provisioned: Machine) -> None:
    """Its address is the one that viewers of the host open, and it answers on the VM's own address with the token."""
    said = provisioned.script("""
        set -e
        cd "$(mktemp -d)"
        railbed up --domains 2 --rails 2 --name page >/dev/null
        trap 'railbed down page >/dev/null' EXIT
        railbed dashboard --name page >page.log 2>&1 &
        . /etc/default/railbed
        for _ in $(seq 120); do grep -q 'the page is at' page.log && break; sleep 1; done
        cat page.log
        /usr/bin/python3 - "http://$RAILBED_DASHBOARD_HOST:8400/" "$RAILBED_DASHBOARD_TOKEN" <<END
import sys, urllib.error, urllib.request
url, token = sys.argv[1:]
try:
    urllib.request.urlopen(url)
except urllib.error.HTTPError as error:
    print("without", error.code)
print("with", urllib.request.urlopen(f"{url}?token={token}").status)
END
        sudo kill -INT "$(sudo ss -Hltnp 'sport = :8400' | sed 's/.*pid=\\([0-9]*\\).*/\\1/')"
    """, 600)  # fmt: skip
    assert re.search(r"the page is at http://127\.0\.0\.1:8400/\?token=[0-9a-f]{32}", said), said
    assert "without 403" in said
    assert "with 200" in said


def test_the_kernels_datapath_is_in_use(measured: dict[str, Any]) -> None:
    assert measured["datapath"] == "kernel"


def test_delay_is_as_long_as_was_set(measured: dict[str, Any]) -> None:
    added_ms = measured["delay"]["min_ms"] - measured["plain"]["min_ms"]
    assert 2 * in_guest.DELAY_MS - 1 < added_ms < 2 * in_guest.DELAY_MS + 15
    assert measured["delay"]["loss_share"] == 0


def test_jitter_spreads_the_delay(measured: dict[str, Any]) -> None:
    """Two passes, each uniform over +/- the jitter: a deviation of jitter * sqrt(2/3), and the mean stays."""
    assert measured["read_back"]["jitter_ms"] == pytest.approx(in_guest.JITTER_MS)
    expected_ms = in_guest.JITTER_MS * math.sqrt(2 / 3)
    assert measured["jitter"]["deviation_ms"] > 0.6 * expected_ms
    assert measured["delay"]["min_ms"] - measured["jitter"]["min_ms"] > in_guest.JITTER_MS / 2


def test_losses_are_as_many_as_were_set(measured: dict[str, Any]) -> None:
    """Echo and reply each cross the link once; within five standard deviations."""
    share = 1 - (1 - in_guest.LOSS_SHARE) ** 2
    allowed = 5 * math.sqrt(share * (1 - share) / in_guest.PINGS)
    assert measured["loss"]["loss_share"] == pytest.approx(share, abs=allowed)
    assert measured["after"]["loss_share"] == 0
    assert measured["impaired_at_the_end"] == []


def test_a_failure_is_rerouted(measured: dict[str, Any]) -> None:
    assert measured["path_healthy"]["agree"], measured["path_healthy"]
    assert measured["path_failed"]["agree"], measured["path_failed"]
    assert measured["path_failed"]["rules"] != measured["path_healthy"]["rules"]
    assert measured["reach_failed"]["unreachable"] == []
    assert measured["repair"]["failure"]["longest_gap_s"] is not None, "the stream came back"
    assert measured["repair"]["timeline"]["repaired_s"] is not None


@pytest.mark.parametrize("job", ["startup", "fidelity", "repair"])
def test_figures_of_the_kernels_datapath(measure_in: Measure, job: str) -> None:
    """The benchmarks run; what they say is recorded, not judged: software emulation says nothing of a real machine."""
    assert measure_in(job)
