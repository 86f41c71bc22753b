"""Whether a node may be started where its settings put it.

On loopback nobody but this machine reaches it, so a first try needs nothing. Everywhere else what
is sent has to be unreadable on the way (TLS here, or at a proxy in front), and apps need keys.
"""

import ipaddress

from roskva.config.sections import Config


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def has_keys(config: Config) -> bool:
    """Whether somebody has to show who they are; then nothing is allowed that is not granted."""
    apps = (config.defaults, *config.apps.values())
    return any(app.jwks is not None or app.publish_keys for app in apps)


def open_to_this_machine(config: Config) -> bool:
    """A first try: nobody shows who they are, and nobody else can come."""
    node = config.node
    return is_loopback(node.host) and not node.behind_proxy and not has_keys(config)


def exposed(config: Config) -> list[str]:
    """What would be wrong with starting it, each with what to do; nothing if all is well."""
    node, found = config.node, []
    if not is_loopback(node.host):
        if not config.tls.enabled and not node.behind_proxy:
            found.append(
                f"{node.host} can be reached from other machines, and everything would be readable "
                "on the way: set certificate and key under [tls] (`roskva certs` makes some to try "
                "with), or name the proxy that ends TLS with --behind-proxy"
            )
        if not has_keys(config):
            found.append(
                f"{node.host} can be reached from other machines, and no app has keys, so whoever "
                "reaches it may publish and read everything: give each app keys under [apps.NAME]"
            )
    admin = config.admin
    if admin.port is not None and not is_loopback(admin.host):
        if not config.tls.enabled:
            found.append(
                f"the admin port on {admin.host} would be readable on the way: set certificate and "
                "key under [tls], or leave it on 127.0.0.1"
            )
        if admin.key is None:
            found.append(
                f"the admin port on {admin.host} is open to whoever reaches it: set key under "
                "[admin], or leave it on 127.0.0.1"
            )
    return found
