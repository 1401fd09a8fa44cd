"""A plain shortest-path router, independent of the controller's."""

from collections import deque
from collections.abc import Sequence

from simulator.paths import PairPaths, Router
from topologies.model import Fabric, Failures, LinkKind


def shortest(fabric: Fabric) -> Router:
    def router(failures: Failures) -> PairPaths:
        down = fabric.links_down(failures)
        cache: dict[tuple[int, int], Sequence[str] | None] = {}

        def paths(src: int, dst: int) -> Sequence[str] | None:
            if (src, dst) not in cache:
                cache[src, dst] = search(src, dst)
            return cache[src, dst]

        def search(src: int, dst: int) -> Sequence[str] | None:
            start, goal = fabric.gpu_of_rank(src).switch_id, fabric.gpu_of_rank(dst).switch_id
            came: dict[str, tuple[str, str] | None] = {start: None}
            queue = deque([start])
            while queue:
                node = queue.popleft()
                for link in sorted(fabric.links_of(node), key=lambda link: link.kind is not LinkKind.NVLINK):
                    other = link.other(node)
                    if link.kind is not LinkKind.HOST and link.id not in down and other not in came:
                        came[other] = (node, link.id)
                        queue.append(other)
            if goal not in came:
                return None
            ids: list[str] = []
            node = goal
            while step := came[node]:
                node = step[0]
                ids.append(step[1])
            return tuple(reversed(ids))

        return paths

    return router
