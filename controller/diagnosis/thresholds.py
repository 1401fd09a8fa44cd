"""From when on something counts as a fault. Where the numbers are from is in docs/diagnosis.md."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Thresholds:
    """Times in seconds of the telemetry's clock.

    ``hang_s``: so long must nothing have happened. A rank that has not entered is given ``hang_gaps`` times its usual
    computing where that is longer. A message is slow that lasts for ``least_message_s`` (20 round trips; shorter ones
    can't be judged), takes ``late_ratio`` times the median of its class for a byte, and is explained by the load of the
    links to less than ``explained`` of what is usual in its class, and ``share_sigmas`` robust standard deviations (of
    at least ``least_spread``) below it. Where the load usually explains less than ``least_usual``, something else than
    links rules the rate of the class, and a slow message takes ``far_ratio`` times the median; where nothing is known
    of the load, ``slow_ratio`` times; in both cases it is ``sigmas`` (of at least ``least_spread`` of the median) above
    it. ``slow_messages``: a fault shows in so many of them, of ``slow_operations`` operations at least. One is enough
    if nothing else is slow, the load explains less than ``sure_explained``, and the messages took ``sure_lost_s``
    longer than usual (medians). ``slow_gap`` and ``least_gap_share``: a rank computes slowly whose computing takes so
    many times that of the median rank, and longer by this share of the time between two operations. ``peers``: the
    rules of the matrix need so many peers of a rank. ``least_cells``: so many connections, or ranks, are compared.
    ``window_s``: how far it looks back. ``confirmations``: in so many looks running, each ``every_s`` after the other,
    a finding is the same before it is told; as long as it grows, ``patience`` looks.
    """

    hang_s: float = 2.0
    hang_gaps: float = 4.0
    late_ratio: float = 1.4
    far_ratio: float = 5.0
    slow_ratio: float = 1.6
    sigmas: float = 5.0
    least_spread: float = 0.05
    least_message_s: float = 0.1
    explained: float = 0.6
    share_sigmas: float = 3.0
    least_usual: float = 0.5
    slow_messages: int = 4
    sure_explained: float = 0.5
    sure_lost_s: float = 0.5
    slow_operations: int = 2
    slow_gap: float = 1.5
    least_gap_share: float = 0.1
    peers: int = 2
    least_cells: int = 3
    window_s: float = 20.0
    confirmations: int = 2
    patience: int = 6
    every_s: float = 0.5


DEFAULT = Thresholds()
