"""What links carry: each GPU sends to the next one of a ring, all at once, and each receiver prints the rate.

Run it with ``sudo ./railbed exec -- /usr/bin/python3 docs/examples/ring_rates.py nic`` for rings along the rails (NIC
links), or ``nvlink`` for rings in the domains. Every GPU sends and receives once, so a slow link shows in two lines.
"""

import os
import re
import socket
import sys
import threading
import time

PORT = 9000
SEND_S = 3.0
GIVE_UP_S = 10.0
CHUNK = bytes(65536)


def neighbours(kind):
    """The GPUs before and after this one in its ring."""
    domain, rail = map(int, re.fullmatch(r"d(\d+)r(\d+)", os.environ["RAILBED_GPU"]).groups())
    rails = int(os.environ["LOCAL_WORLD_SIZE"])
    domains = int(os.environ["WORLD_SIZE"]) // rails
    if kind == "nic":
        return f"d{(domain - 1) % domains}r{rail}", f"d{(domain + 1) % domains}r{rail}"
    return f"d{domain}r{(rail - 1) % rails}", f"d{domain}r{(rail + 1) % rails}"


def send(receiver):
    """Send for SEND_S to a GPU that may not listen yet; a receiver that is never reached says so itself."""
    deadline = time.monotonic() + GIVE_UP_S
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((receiver, PORT), timeout=1) as connection:
                connection.settimeout(GIVE_UP_S)
                end = time.monotonic() + SEND_S
                while time.monotonic() < end:
                    connection.sendall(CHUNK)
                return
        except OSError:
            time.sleep(0.05)


def main():
    """Send to the next, receive from the one before, print the rate of what came in."""
    kind = sys.argv[1] if len(sys.argv) == 2 else ""
    if kind not in ("nic", "nvlink"):
        sys.exit("ring_rates.py: say nic or nvlink")
    before, after = neighbours(kind)
    listener = socket.create_server(("", PORT))
    listener.settimeout(GIVE_UP_S)
    sender = threading.Thread(target=send, args=(after,))
    sender.start()
    route = f"{before} -> {os.environ['RAILBED_GPU']}"
    try:
        connection, _ = listener.accept()
        connection.settimeout(GIVE_UP_S)
        begun, size_bytes = time.monotonic(), 0
        while part := connection.recv(1 << 20):
            size_bytes += len(part)
        rate_mbps = size_bytes * 8 / (time.monotonic() - begun) / 1e6
        print(f"{route}  {rate_mbps:.1f} Mbit/s")
    except OSError:
        print(f"{route}  nothing arrived")
    sender.join()


main()
