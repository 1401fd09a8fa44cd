"""The commands that only the launcher of a checkout can run: they change the environment that this code runs in."""

from __future__ import annotations

from typing import NoReturn

from cli.errors import LauncherOnlyError


def launcher_only(command: str) -> NoReturn:
    """Raise the error that says where ``command`` runs."""
    raise LauncherOnlyError(
        f"'{command}' works on a checkout of Railbed, not on an installed package: "
        f"run ./railbed {command} in the checkout"
    )
