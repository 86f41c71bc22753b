"""A range of the feed with only what a matcher needs of it: per object the last reset, and the
highest version after it."""

from collections.abc import Iterable

import msgspec

from roskva.model import Key, Update


def coalesce(updates: Iterable[tuple[int, Update]]) -> list[tuple[int, Update]]:
    resets: dict[Key, tuple[int, Update]] = {}
    newest: dict[Key, tuple[int, Update]] = {}
    for offset, update in updates:
        key = update.object
        if update.reset:
            resets[key] = (offset, update)
            newest.pop(key, None)
            continue
        before = newest.get(key)
        if before is None:
            newest[key] = (offset, update)
            continue
        # With one left out, nobody can tell any more whether the author of the other knew it.
        winner = (offset, update) if update.version > before[1].version else before
        newest[key] = (winner[0], msgspec.structs.replace(winner[1], source=None))
    return sorted([*resets.values(), *newest.values()], key=lambda item: item[0])
