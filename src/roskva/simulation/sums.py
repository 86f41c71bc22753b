"""Whether what a registrar and a matcher count adds up, seen by counting again the long way."""

from roskva.core.freshness import Due, due
from roskva.core.matcher import Matcher
from roskva.core.registrar import Registrar
from roskva.simulation.oracle import Violation


def check_sums(core: Registrar) -> None:
    outstanding = {id(core.interests.sums.users): 0, id(core.interests.sums.probe): 0}
    for key, watched in core.watched.items():
        untold = watched.untold or set()
        if not untold <= watched.sessions.keys():
            raise Violation(f"{key} is yet to be told to sessions that are gone")
        told = [
            session
            for session, acked in watched.sessions.items()
            if session not in untold
            and watched.known is not None
            and due(acked, watched.known) is not Due.NOTHING
        ]
        if len(told) != watched.outstanding:
            raise Violation(f"{key}: {watched.outstanding} counted as told, and it is {len(told)}")
        outstanding[id(watched.sums)] += len(told)
    for sums in (core.interests.sums.users, core.interests.sums.probe):
        if sums.outstanding != outstanding[id(sums)]:
            raise Violation(f"{sums.outstanding} outstanding, and it is {outstanding[id(sums)]}")


def check_counted(matcher: Matcher, handed: set[int]) -> None:
    """Each entry of the feed once, however often it was `handed` to the matcher."""
    counters = matcher.counters
    if counters["epochs"]:
        return  # the same offset may have been something else since
    counted = sum(counters[name] for name in ("applied", "old", "probe_applied", "probe_old"))
    if counted != len(handed):
        raise Violation(f"shard {matcher.config.shard} counted {counted} updates of {len(handed)}")
