"""How long the stages take, from publishing to the ack."""

from roskva.server.admin.queries import stage_times


def test_a_stage_takes_the_time_since_the_one_before_it() -> None:
    passed = [
        ("a/x", 1, "sent", 5_000),
        ("a/x", 1, "published", 0),
        ("a/x", 1, "appended", 2_000),
        ("a/x", 1, "matched", 3_000),
        ("a/x", 1, "sent", 9_000),  # to somebody else, later
        ("a/y", 7, "published", 0),
        ("a/y", 7, "appended", 4_000),
    ]
    times = {time.stage: time for time in stage_times(passed)}
    assert list(times) == ["appended", "matched", "sent"]
    assert (times["appended"].p50_ms, times["appended"].count) == (3.0, 2)
    assert (times["matched"].p50_ms, times["sent"].p50_ms) == (1.0, 2.0)


def test_the_bridge_takes_no_time_where_it_was_not_waited_for() -> None:
    fast = [("a/x", 1, "published", 0), ("a/x", 1, "appended", 1_000), ("a/x", 1, "matched", 2_000)]
    late = [*fast, ("a/x", 1, "bridged", 90_000)]
    assert stage_times(late) == stage_times(fast)
    slow = [*fast[:2], ("a/x", 1, "bridged", 50_000), ("a/x", 1, "matched", 51_000)]
    assert [(time.stage, time.p50_ms) for time in stage_times(slow)] == [
        ("appended", 1.0),
        ("bridged", 49.0),
        ("matched", 1.0),
    ]


def test_nothing_sampled_is_nothing_said() -> None:
    assert stage_times([]) == []
