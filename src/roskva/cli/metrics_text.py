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

## What adds up

Label `traffic` is `users`, or `probe` for what the prober of the node itself does.

- `roskva_updates_published_total` = `roskva_updates_applied_total` + `roskva_updates_old_total`, as
  soon as the matchers stand at the end of the feed. A reset counts as an update. *Old* is what is
  not newer than what the matcher has in memory; an old version of an object that nobody online
  cares about is dropped by the store later, and counts as applied. After a start, what is read
  again from the feed counts as applied or old without having been published to this process.
- `roskva_notifications_first_total` = `acked` + `superseded` + `outstanding` + `abandoned`, at any
  time. A *first send* is the first time that a session is told what an object stands at. Telling it
  again counts in `resent`, and nowhere else. EventSource and MQTT with QoS 0 have no acks: theirs
  end as superseded or abandoned.
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
