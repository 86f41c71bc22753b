"""Roskva: clients learn, reliably and at once, that the data they cache has changed.

What applications use is here; see docs/client.md. Each name is loaded when it is first asked for,
so that nobody pays for what they do not need. Their types are in `__init__.pyi`.
"""

from importlib import import_module

__version__ = "0.1.0.dev0"

_HOMES = {
    "roskva.client.client": ("Client",),
    "roskva.client.events": ("Listener",),
    "roskva.publisher.publisher": ("Publisher",),
    "roskva.net.channel": ("Attach", "Channel"),
    "roskva.net.tls": ("Tls",),
    "roskva.blocking": ("publish",),
    "roskva.core.effects": (
        "ClientEvent",
        "Notify",
        "NotifyUnknown",
        "RegistrationFailure",
        "RegistrationStatus",
        "ReissueRegistrations",
        "Trouble",
    ),
    "roskva.errors": (
        "BadConfig",
        "BadInput",
        "BadMessage",
        "BadName",
        "Damaged",
        "Fenced",
        "LimitExceeded",
        "Overloaded",
        "Refused",
        "RoskvaError",
        "StorageUnavailable",
        "TokenRejected",
        "TooLarge",
        "Unauthorised",
        "Unavailable",
        "UnknownClient",
        "WrongProtocol",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted([*_HOME_OF, "__version__", "blocking"])


def __getattr__(name: str) -> object:
    if name == "blocking":
        return import_module("roskva.blocking")
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)
