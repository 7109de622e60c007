"""What the proxy counts, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from mulligan.journal.report import ClassSummary

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_FAST = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0)
_SLOW = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
MOST_CLASSES = 200
"""Classes of which the store's figures are given: names come from clients, and every one is a series of its own."""


class Metrics:
    """The counters of one proxy."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        self.requests = self._counter("requests", "Requests passed on, by form and status.", "dialect", "status")
        self.episodes = self._counter("episodes", "Episodes that were begun, finished, abandoned.", "event")
        self.upstream_failures = self._counter("upstream_failures", "Unreachable, timeout, or cut off.", "kind")
        self.disconnects = self._counter("client_disconnects", "Clients that hung up before the answer's end.")
        self.store_failures = self._counter("store_failures", "Times the journal's database did not answer.")
        self.unrecorded = self._counter("unrecorded_requests", "Requests passed on without the journal.", "reason")
        self.lost = self._counter("lost_records", "Records given up, because too many waited for the database.")
        self.store_up = Gauge("mulligan_store_up", "1 while the database answers.", registry=self.registry)
        self.waiting = Gauge("mulligan_waiting_records", "Episodes that wait to be written.", registry=self.registry)
        self.before = self._histogram("before_upstream", "From the whole request to its sending on.", _FAST)
        self.upstream = self._histogram("upstream", "From there to the first byte of the answer.", _SLOW)

    def text(self, classes: Iterable[tuple[str, ClassSummary]]) -> bytes:
        """All figures, with those that the store has of each (namespace, class)."""
        of_store = CollectorRegistry()
        labels = ["namespace", "task_class"]
        outcomes, mean, switched_on = (
            Gauge(f"mulligan_class_{name}", text, labels, registry=of_store)
            for name, text in (
                ("outcomes", "Finished episodes."),
                ("mean_reward", "Of all finished episodes."),
                ("journal_on", "0 where the journal was switched off because it hurt."),
            )
        )
        uplift = Gauge(
            "mulligan_class_uplift",
            "Mean reward with the journal minus without it; low and high hold it with 95 %, whenever one looks.",
            [*labels, "bound"],
            registry=of_store,
        )
        for namespace, summary in list(classes)[:MOST_CLASSES]:
            names = namespace, summary.task_class
            outcomes.labels(*names).set(summary.outcomes)
            mean.labels(*names).set(summary.mean_reward)
            switched_on.labels(*names).set(summary.journal_on)
            for bound in ("low", "mean", "high"):
                uplift.labels(*names, bound).set(getattr(summary.uplift, bound))
        return generate_latest(self.registry) + generate_latest(of_store)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"mulligan_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(f"mulligan_{name}_seconds", text, buckets=buckets, registry=self.registry)
