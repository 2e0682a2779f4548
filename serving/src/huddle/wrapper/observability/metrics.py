"""Prometheus metrics. Nothing here is touched for a chunk of a stream, only for whole requests."""

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

_LATENCY_BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_OVERHEAD_BUCKETS: Final = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5)
T = TypeVar("T")


@lru_cache(maxsize=4_096)
def of(metric: Any, *labels: str) -> Any:
    """One labelled child of a metric, remembered: `labels()` costs more than counting does."""
    return metric.labels(*labels)


class Metrics:
    """The wrapper's metrics, in a registry of their own. All names begin with `huddle_wrapper_`."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.requests = Counter(
            "huddle_wrapper_requests", "Answered requests.", ("route", "product", "status"), registry=registry
        )
        self.refusals = Counter(
            "huddle_wrapper_refusals", "Requests that the wrapper refused, by reason.", ("code",), registry=registry
        )
        self.limited = Counter(
            "huddle_wrapper_limited", "Requests over a subscriber's limit.", ("product", "limit"), registry=registry
        )
        self.disconnects = Counter(
            "huddle_wrapper_client_disconnects", "Clients that left before their answer's end.", registry=registry
        )
        self.truncated = Counter(
            "huddle_wrapper_truncated_answers", "Answers that broke off after they had begun.", registry=registry
        )
        self.retries = Counter(
            "huddle_wrapper_stale_retries",
            "Requests sent again on a new connection.",
            registry=registry,
        )
        self.keepalives = Counter(
            "huddle_wrapper_keepalive_comments", "Comments sent into silent streams.", registry=registry
        )
        self.tokens = Counter(
            "huddle_wrapper_tokens",
            "Tokens, counted by the engine; of streams that broke off, as far as they came.",
            ("model", "product", "kind"),
            registry=registry,
        )
        self.estimated_tokens = Counter(
            "huddle_wrapper_estimated_tokens",
            "The part of the tokens that the engine did not say: of streams that broke off.",
            ("kind",),
            registry=registry,
        )
        self.usage_missing = Counter(
            "huddle_wrapper_usage_missing", "Answers that came to their end without usage.", registry=registry
        )
        self.overhead = Histogram(
            "huddle_wrapper_overhead_seconds",
            "Time that the wrapper itself added before the first byte, queueing left out.",
            registry=registry,
            buckets=_OVERHEAD_BUCKETS,
        )
        self.queued = Histogram(
            "huddle_wrapper_queue_seconds", "Time in the queue.", registry=registry, buckets=_LATENCY_BUCKETS
        )
        self.ttft = Histogram(
            "huddle_wrapper_time_to_first_token_seconds",
            "From the whole request to the first byte of a stream's body.",
            ("model",),
            registry=registry,
            buckets=_LATENCY_BUCKETS,
        )
        self.duration = Histogram(
            "huddle_wrapper_request_seconds",
            "From the whole request to the end of its answer.",
            ("route",),
            registry=registry,
            buckets=_LATENCY_BUCKETS,
        )
        self.reloads = Counter("huddle_wrapper_reloads", "Reloads of the configuration.", ("ok",), registry=registry)
        self.task_deaths = Counter(
            "huddle_wrapper_task_deaths", "Ends of tasks that should run for ever.", ("task",), registry=registry
        )
        self.logs_dropped = Counter(
            "huddle_wrapper_log_lines_dropped", "Log lines that the log's reader was too slow for.", registry=registry
        )

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read at each scrape."""
        Gauge(f"huddle_wrapper_{name}", text, registry=self.registry).set_function(read)

    def gauge_of_each(self, name: str, text: str, engines: Mapping[str, T], read: Callable[[T], float]) -> None:
        """A gauge for each engine, labelled by its name, which is read at each scrape."""
        gauge = Gauge(f"huddle_wrapper_{name}", text, ("engine",), registry=self.registry)
        for label, engine in engines.items():
            gauge.labels(label).set_function(partial(read, engine))

    def render(self) -> bytes:
        """The text that Prometheus reads."""
        return generate_latest(self.registry)


CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
