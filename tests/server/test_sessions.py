"""What the settings of sessions and handshakes become."""

from tests.loops import in_loop
from tests.server.fronts import registrar_of_one_shard

from roskva.config import Config, LimitsConfig, SessionsConfig
from roskva.core.backoff import Rate


@in_loop
async def test_a_registrar_is_told_of_every_interval() -> None:
    sessions = SessionsConfig(
        heartbeat_seconds=600.0, missed_heartbeats=3, resend_seconds=90.0, ack_flush_seconds=0.5
    )
    limits = LimitsConfig(handshakes_per_second=5000)
    core = registrar_of_one_shard(Config(sessions=sessions, limits=limits)).core.config
    assert (core.heartbeat, core.missed_heartbeats) == (600.0, 3)
    assert (core.scan_interval, core.ack_flush) == (90.0, 0.5)
    assert core.handshakes == Rate(5000, 1000)
