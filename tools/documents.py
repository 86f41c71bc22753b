"""The pages of docs/ that are made from the code, so that they say what it does.

After a change of settings, errors, limits or metrics: `make documents`.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Final

from roskva.cli.config import in_toml
from roskva.config import NAMED, SECTIONS, Setting, settings
from roskva.metrics import GROUPS, Measure
from tools.errors_page import errors_page
from tools.limits_page import limits_page

_CONFIGURATION = """\
# Configuration

A node needs no configuration: `roskva serve` starts with the defaults below. To change some of
them, write a file with every setting and what it means in it, edit it, and have it checked:

```sh
roskva config init
roskva config check
```

Both take a file name and use `roskva.toml` without one; `roskva config init --force` replaces a
file that exists. `check` loads the file exactly as a node does and prints what holds, for scripts
as JSON (`roskva config check --json`). What is wrong is named all at once, with the line and what
to do about it, and the exit code is 2:

```
roskva: roskva.toml:3: [node] has no key prot; did you mean port?
roskva: roskva.toml:9: versions must be "app" or "assigned", not "assinged"
```

The file is TOML. A setting is looked for in this order, and the last word wins:

1. the default;
2. the file that `roskva serve --config FILE` names;
3. the environment, for the section `[node]`: `ROSKVA_PORT`, `ROSKVA_DATA`, and so on;
4. the flags of the command.

Where "off" is allowed it is written in quotes. Numbers may have underscores: `64_000_000`.
"""

_APPS = """\
A table for each app that differs from `[defaults]`. It has the same keys, and takes what it does
not set from there. Apps need not be named here to be used.

```toml
[apps.thermostats]
versions = "assigned"
max_payload_bytes = 4096
```
"""


_METRICS = """\
# Metrics

A node answers `GET /metrics` in the text format of Prometheus, for all its processes at once: ask
any one. It is behind the same rules as `/v1/status` (see [security](security.md)): the admin port,
or the admin key as a bearer token where there is one.

```yaml
scrape_configs:
  - job_name: roskva
    authorization: { credentials_file: /etc/prometheus/roskva-admin.key }  # if there is a key
    static_configs: [{ targets: ["127.0.0.1:7600"] }]
```

`deploy/prometheus/roskva.rules.yml` has alerts, `deploy/grafana/roskva.json` a dashboard;
[operations](operations.md) says what to do when an alert fires.

Counting costs a few additions per update and per ack, and nothing per delivery. What it costs with
sampling, the prober and somebody who asks every few seconds is measured beside a node without all
that: see "MQTT deliveries of an observed node" in the [benchmarks](benchmarks/README.md#serving).
Counters begin at 0 when their process starts; `rate` and `increase` of Prometheus know how to deal
with that.

## What is counted where

Label `traffic` is `users`, or `probe` for what the prober of the node itself does; measures without
it count both.

- `roskva_updates_published_total`: where a group of updates becomes durable, each once. A reset
  counts as an update.
- `roskva_updates_refused_total` has a label `why`: `rate` (more updates in a second than allowed),
  `bytes` (more bytes than an address may send without a key: a request counts as one update, as
  it is not read), `shedding` (the node had too much to do) or `disk` (it was full).
- `roskva_updates_applied_total` has a label `way`: `fast`, `bridge`, `own` or `start`. See
  [who brings what](pipeline.md#the-bridge).
- `roskva_updates_applied_total` and `roskva_updates_old_total`: by the matcher, as what came was
  newer than what it has in memory, or was not. An old version of an object that nobody online
  cares about is dropped by the store later, and counts as applied. On the fast path both add up
  to what was published. After a start, what is read again from the feed counts without having
  been published to this process. What came before a gap was closed comes again, and counts again,
  as old. What the bridge leaves out, because the range has something newer, counts nowhere.
- `roskva_notifications_total`: once for each client and notification, when it is handed to the
  client's connection or request. Who reads too slowly is left out and does not count; who is told
  later what it had missed counts then. Some of it is repeated: once a minute (`resend_seconds`)
  each session over a WebSocket or an own channel is told again what it has not acked, and that
  counts in `roskva_notifications_resent_total`, too. MQTT and HTTP repeat nothing over one
  connection.
- `roskva_acks_total`: each ack that was taken; one that repeats another counts as well, and so does
  one that a channel takes for its client (MQTT 5, subscribed without the current version). Streams
  of events, polls and MQTT with QoS 0 have no acks.

`roskva status` and `/v1/status` have the same counters by the same names, without `roskva_` and
`_total`; what a label tells apart follows a dot, as in `acks_refused.forged`. Of those with the
label `traffic` they have the users'. On a node that is left alone they all stand still, but for
`collector_rounds`.
"""

_COMMON = "All have the label `process`, but those of the pipeline and the prober."


def configuration_page() -> str:
    parts = [_CONFIGURATION]
    for section, struct in SECTIONS.items():
        if section == "apps":
            parts.append(f"\n## `[apps.NAME]`\n\n{_APPS}")
            continue
        title = f"{section}.NAME" if section in NAMED else section
        parts.append(f"\n## `[{title}]`\n\n{inspect.getdoc(struct)}\n\n")
        parts.append("| key | value | default | |\n|---|---|---|---|\n")
        parts += [
            f"| `{s.key}` | {s.expected} | {_default(s)} | {s.description} |\n"
            for s in settings(struct)
        ]
    return "".join(parts)


def _default(setting: Setting) -> str:
    return "" if setting.default is None else f"`{in_toml(setting.default)}`"


def metrics_page() -> str:
    parts = [_METRICS, "\n## All of them\n\n", _COMMON, "\n"]
    for group, measures in GROUPS.items():
        parts.append(f"\n### {group}\n\n| metric | kind | labels | what |\n|---|---|---|---|\n")
        parts += [_row(measure) for measure in measures]
    return "".join(parts)


def _row(measure: Measure) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    return f"| `{measure.name}` | {measure.kind} | {labels} | {measure.help} |\n"


DOCUMENTS: Final[dict[str, Callable[[], str]]] = {
    "docs/configuration.md": configuration_page,
    "docs/errors.md": errors_page,
    "docs/limits.md": limits_page,
    "docs/metrics.md": metrics_page,
}

if __name__ == "__main__":
    for name, page in DOCUMENTS.items():
        Path(__file__).parents[1].joinpath(name).write_text(page(), encoding="utf-8")
