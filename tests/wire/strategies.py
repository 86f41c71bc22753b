"""Every message there can be, for hypothesis: drawn from the definitions themselves.

A field is as the definition bounds it, so a new field is tested as soon as it is defined. Said here
is only what the definition leaves to the codec: how names, hellos and sums have to look.
"""

from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from hypothesis import strategies as st
from msgspec import inspect

from roskva.model import MAX_NAME_BYTES, MAX_SOURCE_BYTES, MAX_VERSION, NO_VERSION, Key
from roskva.wire.links import FromShard, ToShard
from roskva.wire.messages import MAX_SUM, PROTOCOL, ClientMessage, FromClient, Hello, ServerMessage

S = TypeVar("S", bound=msgspec.Struct)

MANY: Final = 4
"""Members of a drawn list, at most: what goes wrong with a list goes wrong with a short one."""
LONG: Final = 40

NAME_CHARACTERS: Final = st.characters(exclude_categories=["Cc", "Cs"], exclude_characters="+#")
TEXT: Final = st.text(st.characters(exclude_categories=["Cs"]), max_size=LONG)


def apps() -> st.SearchStrategy[str]:
    return st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=63)


def names() -> st.SearchStrategy[str]:
    short = st.text(NAME_CHARACTERS, min_size=1, max_size=12)
    long = st.text(NAME_CHARACTERS, min_size=1, max_size=MAX_NAME_BYTES)
    return (short | long).filter(lambda name: len(name.encode()) <= MAX_NAME_BYTES)


def keys() -> st.SearchStrategy[Key]:
    return st.builds("{}/{}".format, apps(), names())


def versions(lowest: int = 0) -> st.SearchStrategy[int]:
    edges = st.sampled_from([lowest, 2**53 - 1, 2**53, 2**53 + 1, MAX_VERSION - 1, MAX_VERSION])
    return edges | st.integers(lowest, MAX_VERSION)


def _applications() -> st.SearchStrategy[str]:
    return TEXT.filter(lambda text: len(text.encode()) <= MAX_SOURCE_BYTES)


FIELDS: Final[dict[str, Callable[[], st.SearchStrategy[Any]]]] = {
    "v": lambda: st.sampled_from([PROTOCOL, "1.1", "1.4096"]),
    "object": keys,
    "objects": lambda: st.lists(keys(), max_size=MANY),
    "add": lambda: st.lists(keys(), max_size=MANY),
    "drop": lambda: st.lists(keys(), max_size=MANY),
    "sum": lambda: st.integers(0, MAX_SUM),
    "sums": lambda: st.lists(st.integers(0, MAX_SUM), max_size=256),
    "application": _applications,
}


def messages(kind: type[S]) -> st.SearchStrategy[S]:
    """Every struct of this kind."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    return st.builds(kind, **{field.name: _field(field) for field in info.fields})


def hellos() -> st.SearchStrategy[Hello]:
    drawn = messages(Hello)
    return st.one_of(
        st.builds(_with_app, drawn, apps()),
        st.builds(_with_token, drawn, st.binary(min_size=1, max_size=1024)),
    )


def from_client() -> st.SearchStrategy[FromClient]:
    return hellos() | messages(ClientMessage)


def from_server() -> st.SearchStrategy[ServerMessage]:
    return messages(ServerMessage)


def to_shard() -> st.SearchStrategy[ToShard]:
    return st.one_of([messages(kind) for kind in ToShard.__args__])


def from_shard() -> st.SearchStrategy[FromShard]:
    return st.one_of([messages(kind) for kind in FromShard.__args__])


def _with_app(hello: Hello, app: str) -> Hello:
    return msgspec.structs.replace(hello, app=app, token=None)


def _with_token(hello: Hello, token: bytes) -> Hello:
    return msgspec.structs.replace(hello, app=None, token=token)


def _field(field: inspect.Field) -> st.SearchStrategy[Any]:
    if field.name not in FIELDS:
        return _values(field.type)
    drawn = FIELDS[field.name]()
    optional = isinstance(field.type, inspect.UnionType) and field.type.includes_none
    return st.none() | drawn if optional else drawn


def _values(type_: inspect.Type) -> st.SearchStrategy[Any]:
    match type_:
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType(ge=lowest, le=highest):
            if highest in (None, MAX_VERSION):
                return versions(NO_VERSION if lowest is None else lowest)
            return st.integers(lowest, highest)
        case inspect.BytesType(min_length=shortest, max_length=longest):
            shortest = shortest or 0
            return st.binary(min_size=shortest, max_size=min(longest or LONG, shortest + LONG))
        case inspect.StrType(max_length=longest):
            return TEXT.filter(lambda text: longest is None or len(text) <= longest)
        case inspect.LiteralType(values=allowed):
            return st.sampled_from(allowed)
        case inspect.TupleType(item_types=items):
            return st.tuples(*(_values(item) for item in items))
        case inspect.ListType(item_type=item):
            return st.lists(_values(item), max_size=MANY)
        case inspect.UnionType(types=types):
            return st.one_of([_values(member) for member in types])
        case inspect.StructType(cls=kind):
            return messages(kind)
    raise TypeError(f"no strategy for {type_}")
