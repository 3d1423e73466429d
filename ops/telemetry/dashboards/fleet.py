"""Fleet: lag, speed and idleness of each generator, publishing and loading of weights, and devices."""

from __future__ import annotations

from ops.telemetry.dashboards.page import page
from ops.telemetry.dashboards.panels import graph, listing
from ops.telemetry.dashboards.promql import gauge, increase, mean, quantile, rate

_GENERATORS = [
    graph(
        "Generators by state",
        {"{{state}}": gauge("magicrl_gen_actors")},
        "Dead generators are replaced; if their number stays high, their log gives the reason.",
        stack=True,
    ),
    listing(
        "Now, one by one",
        (
            "sum by (actor) (magicrl_gen_weights_lag{RUN})",
            "sum by (actor) (magicrl_gen_inflight{RUN})",
            "sum by (actor) (magicrl_gen_kv_cache_ratio{RUN})",
            "sum by (actor) (rate(magicrl_gen_tokens_total{RUN}[5m]))",
        ),
        "Versions behind, responses in flight, share of the key/value cache in use, tokens per second.",
        columns={
            "actor": "Generator",
            "Value #A": "Lag",
            "Value #B": "In flight",
            "Value #C": "KV cache",
            "Value #D": "Tokens/s",
        },
    ),
    graph(
        "Restarts",
        {"{{reason}}": increase("magicrl_gen_actor_restarts_total", "reason")},
        "Generators started in place of a lost one.",
    ),
]

_SAMPLING = [
    graph(
        "Tokens per second",
        {"{{actor}}": rate("magicrl_gen_tokens_total", "actor", where='kind="response"')},
        "Response tokens.",
        stack=True,
    ),
    graph(
        "Response time",
        {
            "p50": quantile(0.5, "magicrl_gen_response_seconds"),
            "p95": quantile(0.95, "magicrl_gen_response_seconds"),
            "queue p95": quantile(0.95, "magicrl_gen_queue_seconds"),
        },
        "Seconds for one response, and its wait inside the engine.",
        unit="s",
    ),
    graph(
        "Finished and aborted",
        {"{{finish}}": rate("magicrl_gen_responses_total", "finish")},
        "Responses per second.",
        stack=True,
    ),
]

_LOAD = [
    graph(
        "Idle by cause",
        {"{{actor}} {{cause}}": rate("magicrl_gen_idle_seconds_total", "actor", "cause")},
        "Share of the time. sync: loading weights; backpressure: admission starts no new groups.",
        unit="percentunit",
    ),
    graph(
        "In flight and waiting",
        {
            "{{actor}} in flight": gauge("magicrl_gen_inflight"),
            "{{actor}} waiting": "sum by (actor) (magicrl_gen_waiting{RUN})",
        },
        "Responses in the engine.",
    ),
    graph(
        "KV cache and preemptions",
        {
            "{{actor}} cache": gauge("magicrl_gen_kv_cache_ratio"),
            "{{actor}} preemptions/s": rate("magicrl_gen_preemptions_total", "actor"),
        },
        "Preemptions mean that fewer responses should be in flight.",
    ),
]

_WEIGHTS = [
    graph(
        "Lag",
        {"{{actor}}": gauge("magicrl_gen_weights_lag")},
        "Published minus loaded version.",
        limit=2.0,
    ),
    graph(
        "Loading",
        {"{{actor}} p95": quantile(0.95, "magicrl_gen_weights_load_seconds", "actor")},
        "Seconds from noticing a version to sampling from it.",
        unit="s",
    ),
    graph(
        "Publishing by phase",
        {"{{phase}}": mean("magicrl_weights_broadcast_seconds", "phase")},
        "Mean seconds to gather the weights from the ranks and write them where generators read.",
        unit="s",
        stack=True,
    ),
    graph(
        "Published",
        {
            "bytes/s": rate("magicrl_weights_broadcast_bytes_total"),
            "not loaded: {{reason}}": increase("magicrl_gen_weights_failures_total", "reason"),
        },
        "Bytes published per second, and versions that a generator could not load.",
        unit="bytes",
    ),
]

_ENGINES_AND_DEVICES = [
    graph(
        "vLLM: running requests",
        {"{{instance}}": "sum by (instance) (vllm:num_requests_running{RUN})"},
        "vLLM's own count, served by the generator's process.",
    ),
    graph(
        "vLLM: time per output token",
        {
            "{{instance}} p95": "histogram_quantile(0.95, sum by (instance, le) "
            "(rate(vllm:request_time_per_output_token_seconds_bucket{RUN}[WINDOW])))"
        },
        "Seconds between two tokens of one response.",
        unit="s",
    ),
    graph(
        "GPU idle",
        {"{{role}}": gauge("magicrl_gpu_idle_ratio")},
        "1 minus utilisation, from Ray's node metrics. Empty without a GPU.",
        unit="percentunit",
    ),
    graph(
        "Learner: model FLOPs utilisation",
        {"MFU": gauge("magicrl_learner_mfu_ratio")},
        "Share of the devices' peak that the update's arithmetic uses. Empty without a GPU.",
        unit="percentunit",
    ),
]

FLEET = page(
    "magicrl-fleet",
    "magicrl / Fleet",
    "Each generator, and the weights on their way to it.",
    {
        "Generators": _GENERATORS,
        "Sampling": _SAMPLING,
        "Load": _LOAD,
        "Weights": _WEIGHTS,
        "Engines and devices": _ENGINES_AND_DEVICES,
    },
)
