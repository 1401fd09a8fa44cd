"""Who may ask for what: the rules that keep other sites, and other machines without the token, out. Pure."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

HEADER = "x-railbed"
"""A header that a form or an image of another site can't send; requests that change something need it."""

_LOOPBACK_NAMES = ("127.0.0.1", "localhost", "[::1]")


@dataclass(frozen=True)
class Access:
    """Where the page is served, and the token that is asked for; None only on a loopback address."""

    host: str
    port: int
    token: str | None

    def refusal(self, headers: Mapping[str, str], token: str | None, changes: bool) -> str:
        """Why a request is refused, as a sentence; empty if it is not. ``headers`` has lower-case names."""
        if self.token is not None and not hmac.compare_digest((token or "").encode(), self.token.encode()):
            return "this page needs the token that 'railbed dashboard' printed: open the whole address that it gave"
        host = headers.get("host", "").lower()
        if self.token is None and host not in self._own_hosts():
            return f"this page is not served under the name '{host}': open the address that 'railbed dashboard' printed"
        if not changes:
            return ""
        if headers.get(HEADER) != "1":
            return f"a request that changes something needs the header '{HEADER}: 1'"
        if headers.get("origin", f"http://{host}").lower() != f"http://{host}":
            return "a request from another site changes nothing here"
        if headers.get("content-type", "").split(";")[0].strip() != "application/json":
            return "a request that changes something is JSON, and says so in its content type"
        return ""

    def _own_hosts(self) -> set[str]:
        names = {*_LOOPBACK_NAMES, f"[{self.host}]" if ":" in self.host else self.host}
        return {f"{name}:{self.port}" for name in names} | (names if self.port == 80 else set())


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can reach ``host``; a name other than localhost counts as reachable."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
