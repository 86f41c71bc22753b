"""The table of metrics: its names, where they are used, and how they are exposed."""

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from roskva.metrics import BOUNDS, MEASURES, Sample, Times, of_times
from roskva.server.admin.samples import exposition

ROOT = Path(__file__).parents[1]
NAMES = {measure.name for measure in MEASURES} | {
    f"{measure.name}_{part}"
    for measure in MEASURES
    if measure.kind == "histogram"
    for part in ("bucket", "sum", "count")
}


def test_every_name_in_the_dashboard_exists() -> None:
    dashboard = json.loads((ROOT / "deploy/grafana/roskva.json").read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(expressions) > 20
    used = {name for text in expressions for name in re.findall(r"\broskva_\w+", text)}
    assert used <= NAMES


def test_every_name_in_the_alerts_exists() -> None:
    rules = (ROOT / "deploy/prometheus/roskva.rules.yml").read_text()
    used = set(re.findall(r"\broskva_\w+", rules))
    assert used
    assert used <= NAMES
    alerts = re.findall(r"alert: (\w+)", rules)
    operations = (ROOT / "docs/operations.md").read_text()
    assert [alert for alert in alerts if f"`{alert}`" not in operations] == []


def test_names_follow_the_conventions() -> None:
    assert len(MEASURES) == len({measure.name for measure in MEASURES})
    for measure in MEASURES:
        assert measure.name.startswith("roskva_")
        assert measure.name.endswith("_total") == (measure.kind == "counter")
        assert measure.kind != "histogram" or measure.name.endswith("_seconds")
        assert measure.help.endswith(".")


def test_times_are_put_together_and_told_as_a_histogram() -> None:
    one, other = Times(), Times()
    one.observe(0.003)
    one.observe(BOUNDS[0])
    other.observe(99.0)
    text = exposition({"node": [of_times("roskva_store_sync_seconds", [one, other])]}).decode()
    (family,) = text_string_to_metric_families(text)
    found = {s.labels.get("le", s.name): s.value for s in family.samples}
    assert found["0.0001"] == 1
    assert (found["0.0025"], found["0.005"], found["30"], found["+Inf"]) == (1, 2, 2, 3)
    assert found["roskva_store_sync_seconds_sum"] == 0.003 + BOUNDS[0] + 99.0


def test_what_belongs_to_no_process_has_no_such_label() -> None:
    text = exposition({None: [Sample("roskva_pipeline_running", 1)], "a": []}).decode()
    assert "roskva_pipeline_running 1.0" in text
