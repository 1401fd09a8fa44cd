"""What the emulation tells its controller, at the northbound interface inside the fabric's namespace."""

from __future__ import annotations

import http.client
import json
from typing import Any

from emulator.controller_process import NORTHBOUND_PORT
from emulator.errors import ControllerError

TIMEOUT_S = 10.0


def put(path: str, value: Any) -> Any:
    """Tell the controller ``value`` at ``path``; its answer. Raises ControllerError where it takes none."""
    connection = http.client.HTTPConnection("127.0.0.1", NORTHBOUND_PORT, timeout=TIMEOUT_S)
    try:
        connection.request("PUT", path, json.dumps(value))
        reply = connection.getresponse()
        answer = json.loads(reply.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise ControllerError(f"the controller did not take '{path}': {error}") from None
    finally:
        connection.close()
    if reply.status != http.HTTPStatus.OK:
        raise ControllerError(f"the controller refused '{path}': {answer.get('error', reply.status)}")
    return answer
