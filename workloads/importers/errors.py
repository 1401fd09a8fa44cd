"""Mistakes in traces and workload files. All of them end the command with exit code 1."""

from topologies.importers.errors import ImportFileError


class RankDisagreementError(ImportFileError):
    """The files of several ranks cannot be of the same run."""


class NoCollectivesError(ImportFileError):
    """The files hold no communication that can be imported."""


class RankCountError(ImportFileError):
    """The number of ranks is not known, or does not fit the fabric or the groups."""


class StrictImportError(ImportFileError):
    """Something would have to be assumed, and ``--strict`` forbids that."""


class UnknownSizeError(ImportFileError):
    """A schedule needs sizes that the files do not hold."""


class ExpansionError(ImportFileError):
    """The workload cannot be made into a schedule of transfers."""
