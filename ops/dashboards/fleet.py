"""Fleet: each generator's lag, speed and idleness, the weights' way to it, and the devices."""

from __future__ import annotations

from ops.dashboards.panel import Dashboard, Panel, Query, Row
from ops.dashboards.promql import gauge, increase, mean, quantile, rate

_GENERATORS = Row(
    "Generators",
    (
        Panel(
            "Generators by state",
            (Query(gauge("magicrl_gen_actors"), "{{state}}"),),
            "Dead ones are replaced; a rising count that stays says why in the log.",
            stack=True,
        ),
        Panel(
            "Now, one by one",
            (
                Query("sum by (actor) (magicrl_gen_weights_lag{RUN})"),
                Query("sum by (actor) (magicrl_gen_inflight{RUN})"),
                Query("sum by (actor) (magicrl_gen_kv_cache_ratio{RUN})"),
                Query("sum by (actor) (rate(magicrl_gen_tokens_total{RUN}[5m]))"),
            ),
            "Versions behind, responses in flight, share of the key/value cache in use, tokens per second.",
            kind="table",
            columns={
                "actor": "Generator",
                "Value #A": "Lag",
                "Value #B": "In flight",
                "Value #C": "KV cache",
                "Value #D": "Tokens/s",
            },
        ),
        Panel(
            "Restarts",
            (
                Query(
                    increase("magicrl_gen_actor_restarts_total", "reason"),
                    "{{reason}}",
                ),
            ),
            "Generators begun in the place of a lost one.",
        ),
    ),
)

_SAMPLING = Row(
    "Sampling",
    (
        Panel(
            "Tokens per second",
            (Query(rate("magicrl_gen_tokens_total", "actor", where='kind="response"'), "{{actor}}"),),
            "Response tokens.",
            stack=True,
        ),
        Panel(
            "Response time",
            (
                Query(quantile(0.5, "magicrl_gen_response_seconds"), "p50"),
                Query(quantile(0.95, "magicrl_gen_response_seconds"), "p95"),
                Query(quantile(0.95, "magicrl_gen_queue_seconds"), "queue p95"),
            ),
            "Seconds for one response, and its wait inside the engine.",
            unit="s",
        ),
        Panel(
            "Finished and aborted",
            (Query(rate("magicrl_gen_responses_total", "finish"), "{{finish}}"),),
            "Responses per second.",
            stack=True,
        ),
    ),
)

_LOAD = Row(
    "Load",
    (
        Panel(
            "Idle by cause",
            (Query(rate("magicrl_gen_idle_seconds_total", "actor", "cause"), "{{actor}} {{cause}}"),),
            "Share of the time. sync: loading weights; backpressure: admission holds new groups back.",
            unit="percentunit",
        ),
        Panel(
            "In flight and waiting",
            (
                Query(gauge("magicrl_gen_inflight"), "{{actor}} in flight"),
                Query("sum by (actor) (magicrl_gen_waiting{RUN})", "{{actor}} waiting"),
            ),
            "Responses in the engine.",
        ),
        Panel(
            "KV cache and preemptions",
            (
                Query(gauge("magicrl_gen_kv_cache_ratio"), "{{actor}} cache"),
                Query(rate("magicrl_gen_preemptions_total", "actor"), "{{actor}} preemptions/s"),
            ),
            "Preemptions mean that fewer responses should be in flight.",
        ),
    ),
)

_WEIGHTS = Row(
    "Weights",
    (
        Panel(
            "Lag",
            (Query(gauge("magicrl_gen_weights_lag"), "{{actor}}"),),
            "Published minus loaded version.",
            limits={2.0: "red"},
        ),
        Panel(
            "Loading",
            (Query(quantile(0.95, "magicrl_gen_weights_load_seconds", "actor"), "{{actor}} p95"),),
            "Seconds from noticing a version to sampling from it.",
            unit="s",
        ),
        Panel(
            "Publishing by phase",
            (Query(mean("magicrl_weights_broadcast_seconds", "phase"), "{{phase}}"),),
            "Mean seconds. gather: from the ranks; send: to where generators read.",
            unit="s",
            stack=True,
        ),
        Panel(
            "Published",
            (
                Query(rate("magicrl_weights_broadcast_bytes_total"), "bytes/s"),
                Query(
                    increase("magicrl_gen_weights_failures_total", "reason"),
                    "not loaded: {{reason}}",
                    "weights that do not load",
                ),
            ),
            "Bytes published per second, and versions that a generator could not load.",
            unit="bytes",
        ),
    ),
)

_ENGINES_AND_DEVICES = Row(
    "Engines and devices",
    (
        Panel(
            "vLLM: running requests",
            (Query("sum by (instance) (vllm:num_requests_running{RUN})", "{{instance}}"),),
            "vLLM's own count, served by the generator's process.",
        ),
        Panel(
            "vLLM: time per output token",
            (
                Query(
                    "histogram_quantile(0.95, sum by (instance, le) "
                    "(rate(vllm:request_time_per_output_token_seconds_bucket{RUN}[WINDOW])))",
                    "{{instance}} p95",
                ),
            ),
            "Seconds between two tokens of one response.",
            unit="s",
        ),
        Panel(
            "GPU idle",
            (Query(gauge("magicrl_gpu_idle_ratio"), "{{role}}", "a GPU"),),
            "1 minus utilisation, from Ray's node metrics.",
            unit="percentunit",
        ),
        Panel(
            "Learner: model FLOPs utilisation",
            (Query(gauge("magicrl_learner_mfu_ratio"), "MFU", "a GPU"),),
            "Share of the devices' peak that the update's arithmetic uses.",
            unit="percentunit",
        ),
    ),
)

FLEET = Dashboard(
    uid="magicrl-fleet",
    title="magicrl / Fleet",
    description="Generators one by one, and the weights they are sent.",
    rows=(
        _GENERATORS,
        _SAMPLING,
        _LOAD,
        _WEIGHTS,
        _ENGINES_AND_DEVICES,
    ),
)
