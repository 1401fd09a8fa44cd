"""Mistakes in files that are imported. All of them end the command with exit code 1."""

from topologies.errors import RailbedError


class ImportFileError(RailbedError, ValueError):
    """Base: a file cannot be imported."""


class UnknownKindError(ImportFileError):
    """The content is of no kind that is known."""


class UnsupportedKindError(ImportFileError):
    """The content is of a kind that is known, but not one that can be imported."""


class TruncatedFileError(ImportFileError):
    """The file ends before its content does."""


class MalformedFileError(ImportFileError):
    """The file is of the right kind, but something in it cannot be read."""


class CountMismatchError(ImportFileError):
    """A count that the file states differs from what the file holds."""
