"""What can go wrong with a live fabric, one class per kind of mistake."""

import errno

from topologies.errors import RailbedError


class EmulatorError(RailbedError):
    """Base of the emulator's errors."""


class NotRootError(EmulatorError):
    """A live fabric needs root."""

    exit_code = 2


class FabricNameError(EmulatorError):
    """The name of a fabric cannot be used for interfaces and namespaces."""

    exit_code = 2


class NameTooLongError(EmulatorError):
    """An interface name would exceed the kernel's 15 characters."""

    exit_code = 2


class NoSuchFabricError(EmulatorError):
    """No fabric of that name is running."""

    exit_code = 2


class FabricExistsError(EmulatorError):
    """A fabric of that name is already up."""

    exit_code = 2


class NotAFailureTargetError(EmulatorError):
    """That link exists but cannot be failed (a GPU's link to its own switch)."""

    exit_code = 2


class PortTakenError(EmulatorError):
    """Another process listens on the port that is needed."""


class MissingToolError(EmulatorError):
    """A program that the emulator needs is not installed."""


class OpenVSwitchError(EmulatorError):
    """Open vSwitch could not be started or did not do what was asked."""


class ControllerChoiceError(EmulatorError, ValueError):
    """What was given as the fabric's controller is none."""

    exit_code = 2


class ControllerError(EmulatorError):
    """The controller could not be started, or ended, or did not reach every switch."""


class ShapingError(EmulatorError):
    """The kernel holds another shaping than the one that was set."""


class SelfTestError(EmulatorError):
    """The fabric is up but does not pass traffic as it should."""


class CapacityError(EmulatorError):
    """The machine ran out of something: disk, ports, processes, memory."""


_RAN_OUT = {
    errno.ENOSPC: ("the disk is full", "free some space"),
    errno.EDQUOT: ("the disk quota is used up", "free some space"),
    errno.EMFILE: ("a process has no file descriptors left", "raise the limit ('ulimit -n')"),
    errno.ENFILE: ("the machine has no file descriptors left", "end other programs"),
    errno.EAGAIN: (
        "no more processes can be started",
        "end other programs, or raise the limit (ulimit -u)",
    ),
    errno.ENOMEM: ("the memory is used up", "end other programs"),
    errno.ENOBUFS: ("the kernel has no memory for more interfaces", "end other programs"),
    errno.EADDRNOTAVAIL: ("no port is left", "wait a minute until the kernel lets old connections go"),
}
"""What an error number of the kernel says that there is no more of, and what to do."""


def out_of_room(error: OSError, what: str) -> CapacityError:
    """The sentence for a machine that ran out of something while it should ``what``; a smaller fabric needs less."""
    reason, remedy = _RAN_OUT.get(error.errno or 0, (str(error), "see 'railbed doctor'"))
    where = f" ({error.filename})" if error.filename else ""
    return CapacityError(f"this machine cannot {what}: {reason}{where}; {remedy}, or build a smaller fabric")


class ImpairmentError(EmulatorError):
    """A link cannot be impaired in that way."""

    exit_code = 2


class MysteryError(EmulatorError):
    """No fault can be hidden now, or none is hidden that could be found."""

    exit_code = 2


class NotEmulatedError(EmulatorError):
    """This kernel cannot emulate what was asked for."""


class ReplayError(EmulatorError):
    """A schedule cannot be replayed on this fabric."""


class ProgramError(EmulatorError):
    """A program cannot be started on the emulated GPUs, or did not end as it should."""


class InterruptedRunError(EmulatorError):
    """The run was interrupted by its user."""
