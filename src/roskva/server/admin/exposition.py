"""What every process has counted, in the text format of Prometheus."""

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from roskva.metrics import LE, MEASURES, Measure, Sample


def exposition(told: Mapping[str | None, Iterable[Sample]]) -> bytes:
    """`told`: by every process. None: what belongs to no process."""
    by_name: dict[str, list[tuple[str | None, Sample]]] = {}
    for process, samples in told.items():
        for sample in samples:
            by_name.setdefault(sample.name, []).append((process, sample))
    return generate_latest(_Collected(by_name))


class _Collected:
    def __init__(self, by_name: Mapping[str, list[tuple[str | None, Sample]]]) -> None:
        self._by_name = by_name

    def collect(self) -> Iterator[Metric]:
        for measure in MEASURES:
            if measure.name in self._by_name:
                yield _family(measure, self._by_name[measure.name])


def _family(measure: Measure, samples: list[tuple[str | None, Sample]]) -> Metric:
    names = [*(("process",) if measure.by_process else ()), *measure.labels]
    if measure.kind == "histogram":
        histogram = HistogramMetricFamily(measure.name, measure.help, labels=names)
        for process, sample in samples:
            buckets, count = [], 0
            for le, n in zip(LE, sample.counts, strict=True):
                count += n
                buckets.append((le, float(count)))
            histogram.add_metric(_values(measure, process, sample), buckets, sample.value)
        return histogram
    kind = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = kind(measure.name, measure.help, labels=names)
    for process, sample in samples:
        family.add_metric(_values(measure, process, sample), sample.value)
    return family


def _values(measure: Measure, process: str | None, sample: Sample) -> list[str]:
    own = [process or ""] if measure.by_process else []
    return [*own, *(sample.labels.get(label, "") for label in measure.labels)]
