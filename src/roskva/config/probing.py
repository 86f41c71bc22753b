"""The settings of the prober that runs beside a node, and of what it holds the node to."""

from typing import Annotated, Final, NamedTuple

import msgspec
from msgspec import Meta

SLIS: Final = (
    "register",
    "publish",
    "notify-websocket",
    "notify-events",
    "notify-mqtt",
    "notify-pipeline",
    "reconnect",
)
"""What is measured."""

Milliseconds = Annotated[int, Meta(ge=1, le=600_000)]
Share = Annotated[float, Meta(ge=0.0, le=0.99999)]


class Slo(NamedTuple):
    target_ms: int
    share: float


class ProbeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The prober: real clients over each channel that measure what users would see."""

    enabled: Annotated[bool, Meta(description="Run it with the node.")] = True
    every_seconds: Annotated[
        float, Meta(ge=0.5, le=3600.0, description="From one round to the next.")
    ] = 5.0
    key: Annotated[
        Annotated[str, Meta(min_length=1)] | None,
        Meta(
            description="On a node with keys, what `roskva probe --key` has to show from "
            "elsewhere: `env:NAME` or `file:PATH`. Not set: only the node's own prober gets in."
        ),
    ] = None


class SloConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What the node is held to, for each that the prober measures: the time it may take, and the
    share of rounds that have to keep it, over a day. What may miss it is the error budget."""

    register_ms: Annotated[
        Milliseconds, Meta(description="To connect over WebSocket and register.")
    ] = 500
    register_share: Annotated[Share, Meta(description="Of the rounds.")] = 0.99
    publish_ms: Annotated[
        Milliseconds, Meta(description="Until a publish is acknowledged, and thus durable.")
    ] = 250
    publish_share: Annotated[Share, Meta(description="Of the rounds.")] = 0.99
    notify_websocket_ms: Annotated[
        Milliseconds, Meta(description="From publishing to being told, over WebSocket.")
    ] = 500
    notify_websocket_share: Annotated[Share, Meta(description="Of the rounds.")] = 0.99
    notify_events_ms: Annotated[
        Milliseconds, Meta(description="The same by a stream of events.")
    ] = 500
    notify_events_share: Annotated[Share, Meta(description="Of the rounds.")] = 0.99
    notify_mqtt_ms: Annotated[Milliseconds, Meta(description="The same over MQTT.")] = 500
    notify_mqtt_share: Annotated[Share, Meta(description="Of the rounds.")] = 0.99
    notify_pipeline_ms: Annotated[
        Milliseconds,
        Meta(description="The same without the fast path: it waits for a batch of the pipeline."),
    ] = 5000
    notify_pipeline_share: Annotated[Share, Meta(description="Of the rounds.")] = 0.95
    reconnect_ms: Annotated[
        Milliseconds, Meta(description="To come back and be told what was missed.")
    ] = 1000
    reconnect_share: Annotated[Share, Meta(description="Of the rounds.")] = 0.99

    def of(self, sli: str) -> Slo:
        key = sli.replace("-", "_")
        return Slo(getattr(self, f"{key}_ms"), getattr(self, f"{key}_share"))
