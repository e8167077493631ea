"""The metrics of the control plane: every family that `/metrics` exposes is declared here.

Names follow Prometheus: the prefix `shoal_`, base units, `_total` for counters; labels have few values
(a controller, a kind, a route's template), never the name of an object. The families belong to the
process, as its threads do; `render` gives them as text. Thread-safe.

Imported by what runs in a server (store, control, server), not by the client or the command line:
prometheus_client takes 50 ms to import.
"""

from __future__ import annotations

from collections import Counter as PyCounter
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.registry import Collector

from shoal import __version__, background

__all__ = ["CONTENT_TYPE", "REGISTRY", "render"]

REGISTRY = CollectorRegistry(auto_describe=True)
CONTENT_TYPE = CONTENT_TYPE_LATEST

_FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


def _counter(name: str, text: str, *labels: str) -> Counter:
    return Counter(f"shoal_{name}", text, labels, registry=REGISTRY)


def _gauge(name: str, text: str, *labels: str) -> Gauge:
    return Gauge(f"shoal_{name}", text, labels, registry=REGISTRY)


def _seconds(name: str, text: str, *labels: str) -> Histogram:
    return Histogram(f"shoal_{name}_seconds", text, labels, registry=REGISTRY, buckets=_FAST)


Info("shoal_build", "Version of the server.", registry=REGISTRY).info({"version": __version__})

# Controllers

WORKQUEUE_DEPTH = _gauge("workqueue_depth", "Keys that wait for a worker.", "controller")
WORKQUEUE_ADDS = _counter("workqueue_adds_total", "Keys added to the work queue.", "controller")
WORKQUEUE_LATENCY = _seconds(
    "workqueue_queue_duration", "Time from a key's addition to its reconcile.", "controller"
)
WORKQUEUE_RETRIES = _counter("workqueue_retries_total", "Keys requeued with backoff.", "controller")
RECONCILE_SECONDS = _seconds("reconcile_duration", "Duration of a reconcile.", "controller")
RECONCILE_FAILURES = _counter("reconcile_failures_total", "Reconciles that raised.", "controller")
UNDECODABLE = _gauge("undecodable_objects", "Stored objects that cannot be decoded.", "kind")


class _ThreadRestarts(Collector):
    """Read from the threads when metrics are asked for: `shoal.background` knows no metrics."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """See `Collector.collect`."""
        text = "Restarts of a background loop."
        family = CounterMetricFamily("shoal_thread_restarts", text, labels=["thread"])
        restarts: PyCounter[str] = PyCounter()
        for report in background.reports():  # one link thread for each node, and so on
            restarts[report.name.rpartition("-")[0] or report.name] += report.restarts
        for name in sorted(restarts):
            family.add_metric([name], restarts[name])
        yield family


REGISTRY.register(_ThreadRestarts())

# Scheduling and tasks

DECISIONS = _counter(
    "decisions_total", "Scheduling decisions: `changed` something, `unchanged`, `failed`.", "result"
)
DECISION_SECONDS = _seconds("decision_duration", "Duration of a scheduling decision.")
TASK_STARTS = _counter("task_starts_total", "Tasks that were given what they need to run.")
TASK_ENDS = _counter(
    "task_ends_total",
    "Ends of tasks, by the reason of their stop (Exited: none).",
    "reason",
)
TASK_REFUSALS = _counter("task_refusals_total", "Tasks that a node refused to admit.", "reason")
JOB_EVENTS = _counter(
    "job_events_total", "Events of jobs by reason, such as Restarted and Preempted.", "reason"
)

# Store

STORE_SECONDS = _seconds("store_request_duration", "Duration of a store call.", "operation", "kind")
STORE_FAILURES = _counter(
    "store_request_failures_total",
    "Store calls that raised, by error code.",
    "operation",
    "kind",
    "code",
)
WATCHES = _gauge("watches", "Open watches.", "kind")

# API

HTTP_REQUESTS = _counter(
    "http_requests_total", "Requests by route template, method and status.", "route", "method", "status"
)
HTTP_SECONDS = _seconds(
    "http_request_duration",
    "Time from a request to the start of its response.",
    "route",
    "method",
)
HTTP_CONNECTIONS = _gauge("http_connections", "Open connections.", "listener")
HTTP_REFUSED = _counter(
    "http_connections_refused_total", "Connections refused or cut off.", "listener", "reason"
)
AUTHENTICATION_FAILURES = _counter(
    "authentication_failures_total", "Requests without valid credentials.", "listener"
)


def render() -> bytes:
    """All metrics in Prometheus' text format."""
    return generate_latest(REGISTRY)
