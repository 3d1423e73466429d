"""Overview: is it learning, is it fresh, who waits for whom, is anything wrong."""

from __future__ import annotations

from ops.telemetry.dashboards.page import page
from ops.telemetry.dashboards.panels import graph, listing, number
from ops.telemetry.dashboards.promql import gauge, largest, mean, quantile, rate, share, signed_mean

_NOW = [
    number("Step", largest("magicrl_learner_step"), "Learner steps done."),
    number(
        "Accuracy",
        gauge("magicrl:accuracy:ratio1h"),
        "Share of graded responses that were correct over the last hour, flat groups included.",
        unit="percentunit",
    ),
    number(
        "Since the last step",
        f"time() - {largest('magicrl_learner_last_step_timestamp_seconds')}",
        "Grows while the learner waits or hangs.",
        unit="s",
    ),
    number(
        "Generators ready",
        gauge("magicrl_gen_actors", 'state="ready"'),
        "Generators that are sampling.",
    ),
    number(
        "Stage",
        largest("magicrl_learner_stage"),
        "Stage of the context-length schedule, counted from 0.",
    ),
]

_LEARNING = [
    graph(
        "Reward and accuracy",
        {
            "reward": signed_mean("magicrl_rollout_reward", where='component="total"'),
            "accuracy": share("magicrl_rollout_outcomes_total", 'outcome="correct"'),
            "accuracy of finished answers": share(
                "magicrl_rollout_untruncated_outcomes_total", 'outcome="correct"'
            ),
        },
        (
            "Of all sampled responses, flat groups too. Reward up while the accuracy of finished "
            "answers goes down means that the model only learns to be short."
        ),
    ),
    graph(
        "Evaluation",
        {
            "{{dataset}} avg@{{k}}": gauge("magicrl_eval_accuracy_ratio"),
            "{{dataset}} pass@{{k}}": gauge("magicrl_eval_pass_ratio"),
        },
        "Accuracy on test problems before and after training, and on evaluation.benchmarks in between.",
        unit="percentunit",
    ),
    graph(
        "Entropy",
        {
            "entropy": gauge("magicrl_learner_entropy_nats"),
            "target": gauge("magicrl_reference", 'name="entropy_target"'),
        },
        "Nats per token, estimated over the batch. The controller raises it below the target.",
    ),
]

_FRESHNESS_AND_BALANCE = [
    graph(
        "Staleness",
        {
            "p95": quantile(0.95, "magicrl_train_staleness_versions"),
            "mean": mean("magicrl_train_staleness_versions"),
            "bound": gauge("magicrl_reference", 'name="max_staleness"'),
        },
        "Learner step minus the step of a trained group's oldest token. p95 is estimated from buckets.",
    ),
    graph(
        "Who waits",
        {
            "learner waits for groups": rate("magicrl_learner_wait_seconds_total"),
            "generators idle: {{cause}}": "avg by (cause) "
            "(rate(magicrl_gen_idle_seconds_total{RUN}[WINDOW]))",
        },
        (
            "Shares of the time. Learner waiting: more generators help. Generators idle by "
            "backpressure: fewer suffice, or a larger staleness bound."
        ),
        unit="percentunit",
    ),
    graph(
        "Versions",
        {
            "published": largest("magicrl_weights_published_version"),
            "generator {{actor}}": gauge("magicrl_gen_weights_version"),
        },
        "Step of the newest published weights and of those each generator has loaded.",
    ),
]

_THROUGHPUT_AND_ALARMS = [
    graph(
        "Tokens per second",
        {
            "sampled": rate("magicrl_gen_tokens_total", where='kind="response"'),
            "trained": rate("magicrl_learner_tokens_total"),
        },
        "Sampled counts flat groups too; trained is what entered the loss.",
    ),
    graph(
        "Step time by phase",
        {"{{phase}}": mean("magicrl_learner_phase_seconds", "phase")},
        "Mean seconds per step. wait: for groups; fwdbwd: forward and backward; optim: the optimizer.",
        unit="s",
        stack=True,
    ),
    listing(
        "Alerts",
        ("max by (alertname, severity, alertstate) (ALERTS{RUN})",),
        "Pending and firing alerts of this run; the runbook explains each. Watchdog always fires.",
        columns={"alertname": "Alert", "severity": "Severity", "alertstate": "State"},
    ),
]

OVERVIEW = page(
    "magicrl-overview",
    "magicrl / Overview",
    "One screen for the whole loop; the other three dashboards have the details.",
    {
        "Now": _NOW,
        "Learning": _LEARNING,
        "Freshness and balance": _FRESHNESS_AND_BALANCE,
        "Throughput and alarms": _THROUGHPUT_AND_ALARMS,
    },
)
