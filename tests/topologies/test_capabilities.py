import pytest

from topologies.capabilities import Capability, Missing, missing
from topologies.errors import MissingCapabilityError, UnknownCapabilityError


def test_what_a_machine_has_is_not_missing():
    found = missing({"delay", "loss"}, ["delay"], essential=["loss"])
    assert found == Missing()
    assert found.notes == ()
    found.refuse()


def test_what_is_wanted_and_missing_is_run_without_and_noted():
    found = missing({"loss"}, ["delay", "loss", "tcp-dctcp", "delay"])
    assert found == Missing(others=("delay", "tcp-dctcp"))
    assert found.notes == (
        "not emulated: delay (this machine cannot)",
        "not emulated: tcp-dctcp (this machine cannot)",
    )
    found.refuse()


def test_what_is_essential_and_missing_is_refused_and_not_also_noted():
    found = missing({"loss"}, ["delay", "jitter"], essential=["delay", "loss"])
    assert found == Missing(essential=("delay",), others=("jitter",))
    with pytest.raises(MissingCapabilityError, match="cannot emulate delay, which the scenario calls essential") as why:
        found.refuse()
    assert why.value.exit_code == 1


@pytest.mark.parametrize("capability", list(Capability))
def test_every_capability_is_noted_by_its_own_name(capability):
    assert missing((), [capability.value]).others == (capability.value,)


@pytest.mark.parametrize("name", ["dealy", "tcp-", "tcp-Cubic", "", "netem"])
def test_other_names_are_refused_with_those_that_there_are(name):
    with pytest.raises(UnknownCapabilityError, match="The capabilities are delay, jitter") as why:
        missing((), [name])
    assert why.value.exit_code == 2


def test_the_nearest_capability_is_named():
    with pytest.raises(UnknownCapabilityError, match="did you mean 'delay'"):
        missing((), (), essential=["dealy"])
