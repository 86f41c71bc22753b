"""Virtual time: a heap of things to do, in the order of their moments."""

import heapq
from collections.abc import Callable


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, delay: float, do: Callable[[], None]) -> None:
        self._count += 1  # equal moments keep the order in which they were asked for
        heapq.heappush(self._heap, (self.now + max(delay, 0.0), self._count, do))

    def run(self, until: float) -> None:
        heap = self._heap
        while heap and heap[0][0] <= until:
            self.now, _, do = heapq.heappop(heap)
            do()
        self.now = max(self.now, until)
