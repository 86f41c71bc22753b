"""What a server says, read in both formats. In JSON browsers read it, and nothing here."""

from typing import Any

import msgspec

from roskva.errors import BadMessage, TooLarge
from roskva.wire import codec
from roskva.wire.messages import MAX_FRAME_BYTES, ServerMessage

_decoder = msgspec.json.Decoder(ServerMessage, strict=False)


def decode_from_server(frame: bytes, format: codec.Format = "msgpack") -> ServerMessage:
    if format == "msgpack":
        return codec.decode_from_server(frame)
    if len(frame) > MAX_FRAME_BYTES:
        raise TooLarge(f"a frame of {len(frame)} bytes")
    try:
        message = _decoder.decode(frame)
        as_written: list[list[Any]] = msgspec.json.decode(frame).get("notifications", [])
        pairs = zip(message.notifications, as_written, strict=True)
        read = [_with_payload(notification, parts) for notification, parts in pairs]
        message = msgspec.structs.replace(message, notifications=read)
        return codec.decode_from_server(msgspec.msgpack.encode(message))
    except (msgspec.MsgspecError, OverflowError, ValueError) as error:
        raise BadMessage(str(error)) from None


def _with_payload(notification: Any, parts: list[Any]) -> Any:
    """Reading integers from text, msgspec takes any text "null" for null; but it is base64 too."""
    if len(parts) < 4 or parts[3] is None:
        return notification
    payload = msgspec.convert(parts[3], bytes)
    return msgspec.structs.replace(notification, payload=payload)
