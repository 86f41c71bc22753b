"""docs/metrics.md, made of the table in `roskva.metrics`.

After a change of the table: `python -m roskva.cli.metrics_text > docs/metrics.md`
"""

from roskva.metrics import GROUPS, Measure

_HEAD = """\
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

Counting costs a few additions per update and per ack, and nothing per delivery. With sampling, the
prober and somebody who asks every few seconds it is less than 3 % of what a core delivers
(`benchmarks/serving/observed.py`). Counters begin at 0 when their process starts; `rate` and
`increase` of Prometheus know how to deal with that.

## What is counted where

Label `traffic` is `users`, or `probe` for what the prober of the node itself does; measures without
it count both.

- `roskva_updates_published_total`: where a group of updates becomes durable, each once. A reset
  counts as an update.
- `roskva_updates_applied_total` and `roskva_updates_old_total`: by the matcher, as what came was
  newer than what it has in memory, or was not. An old version of an object that nobody online
  cares about is dropped by the store later, and counts as applied. On the fast path both add up
  to what was published. After a start, what is read again from the feed counts without having
  been published to this process. What came before a gap was closed comes again, and counts again,
  as old. What the bridge leaves out, because the range has something newer, counts nowhere.
- `roskva_notifications_total`: what was handed to connections. Some of it is repeated: once a
  minute each session is told again what it has not acked, and that counts in
  `roskva_notifications_resent_total`, too. EventSource and MQTT with QoS 0 have no acks.
- `roskva_acks_total`: each ack that was taken; one that repeats another counts as well.
"""

_COMMON = "All have the label `process`, but those of the pipeline and the prober."


def page() -> str:
    parts = [_HEAD, "\n## All of them\n\n", _COMMON, "\n"]
    for group, measures in GROUPS.items():
        parts.append(f"\n### {group}\n\n| metric | kind | labels | what |\n|---|---|---|---|\n")
        parts += [_row(measure) for measure in measures]
    return "".join(parts)


def _row(measure: Measure) -> str:
    labels = ", ".join(f"`{label}`" for label in measure.labels)
    return f"| `{measure.name}` | {measure.kind} | {labels} | {measure.help} |\n"


if __name__ == "__main__":
    print(page(), end="")
