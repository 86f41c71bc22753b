"""Bodies on their way: who loses when there is too much of them."""

from roskva.channels.bodies import MAX_BYTES, MAX_SHARE_BYTES, Bodies

MIB = 1 << 20


class Given:
    def __init__(self) -> None:
        self.up: list[str] = []
        self.bodies: Bodies[str] = Bodies(self.up.append)

    def begin(self, name: str, *owners: str) -> None:
        self.bodies.begin(name)
        for owner in owners:
            self.bodies.count_for(name, owner)


def test_an_address_that_has_too_much_loses_its_oldest() -> None:
    given = Given()
    given.begin("other", "2.2.2.2")
    given.bodies.arrived("other", 20 * MIB)
    for number in range(9):
        given.begin(f"body-{number}", "1.1.1.1")
        given.bodies.arrived(f"body-{number}", MAX_SHARE_BYTES // 8)
    assert given.up == ["body-0"]


def test_when_all_have_too_much_it_is_the_oldest_of_all() -> None:
    given = Given()
    count = MAX_BYTES // MAX_SHARE_BYTES + 1
    for number in range(count):
        given.begin(f"body-{number}", f"1.1.1.{number}")
    for number in reversed(range(count)):
        given.bodies.arrived(f"body-{number}", MAX_SHARE_BYTES)
    assert given.up == ["body-0"]


def test_what_came_before_it_was_known_whose_it_is_counts_too() -> None:
    given = Given()
    for name in ("one", "two"):
        given.begin(name)
        given.bodies.arrived(name, MAX_SHARE_BYTES)
        given.bodies.count_for(name, "alice")
    assert given.up == ["one"]


def test_a_body_alone_is_not_given_up() -> None:
    given = Given()
    given.begin("one", "1.1.1.1")
    given.bodies.arrived("one", 2 * MAX_BYTES)
    assert not given.up


def test_nothing_is_kept_of_what_is_done() -> None:
    given = Given()
    given.begin("one", "1.1.1.1")
    given.begin("two", "1.1.1.1", "alice")
    for _ in range(2):
        given.bodies.arrived("one", MAX_BYTES)
        given.bodies.arrived("two", MIB)
    given.bodies.done("one")
    given.bodies.done("two")
    given.bodies.arrived("two", MIB)
    given.bodies.count_for("two", "bob")
    assert given.up == ["one"]
    assert not given.bodies._shares
    assert not given.bodies._under_way
