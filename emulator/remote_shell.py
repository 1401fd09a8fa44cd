"""A remote shell to the emulated GPUs, for launchers that want one, as mpirun does: ``remote_shell GPU COMMAND...``.

It asks the keeper of the programs (:mod:`emulator.rank_keeper`) to start the command on another GPU, with this
process's standard streams and environment, and ends with its exit code. Needs no root. Run as a file of its own.
"""

import json
import os
import socket
import sys

SOCKET_VARIABLE = "RAILBED_EXEC_SOCKET"


def main(words: list[str]) -> int:
    """Run ``words[1:]`` by a shell on the GPU ``words[0]``; its exit code."""
    path = os.environ.get(SOCKET_VARIABLE)
    if path is None or len(words) < 2:
        print("remote_shell: use it as GPU COMMAND... below 'railbed exec'", file=sys.stderr)
        return 2
    environment = {**os.environ, "HOSTNAME": words[0], "RAILBED_GPU": words[0]}
    request = {"gpu": words[0], "command": ["/bin/sh", "-c", " ".join(words[1:])], "environment": environment}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as keeper:
        keeper.connect(path)
        socket.send_fds(keeper, [json.dumps(request).encode()], [0, 1, 2])
        answer = keeper.recv(1)
    if not answer:
        print(f"remote_shell: there is no GPU {words[0]} to start a program on", file=sys.stderr)
        return 255
    return answer[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
