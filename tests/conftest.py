"""What holds for all tests."""

import signal


def pytest_configure() -> None:
    """Ctrl-C ends what a test starts, also when the tests run in a shell's background."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
