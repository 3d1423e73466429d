"""Overview: is it learning, is it fresh, who waits for whom, is anything wrong."""

from __future__ import annotations

from ops.dashboards.panel import Dashboard, Panel, Query, Row
from ops.dashboards.promql import gauge, largest, mean, quantile, rate, share, signed_mean

_NOW = Row(
    "Now",
    (
        Panel(
            "Step",
            (Query(largest("magicrl_learner_step"), "step"),),
            "Learner steps done.",
            kind="stat",
            height=4,
        ),
        Panel(
            "Accuracy",
            (Query(gauge("magicrl:accuracy:ratio1h"), "last hour"),),
            "Share of graded responses that were correct over the last hour, flat groups included.",
            kind="stat",
            unit="percentunit",
            height=4,
        ),
        Panel(
            "Since the last step",
            (Query(f"time() - {largest('magicrl_learner_last_step_timestamp_seconds')}", "age"),),
            "Grows while the learner waits or hangs.",
            kind="stat",
            unit="s",
            height=4,
        ),
        Panel(
            "Generators ready",
            (Query(gauge("magicrl_gen_actors", 'state="ready"'), "ready"),),
            "Generators that are sampling.",
            kind="stat",
            height=4,
        ),
        Panel(
            "Stage",
            (Query(largest("magicrl_learner_stage"), "stage"),),
            "Stage of the context-length schedule, counted from 0.",
            kind="stat",
            height=4,
        ),
    ),
)

_LEARNING = Row(
    "Learning",
    (
        Panel(
            "Reward and accuracy",
            (
                Query(signed_mean("magicrl_rollout_reward", where='component="total"'), "reward"),
                Query(share("magicrl_rollout_outcomes_total", 'outcome="correct"'), "accuracy"),
                Query(
                    share("magicrl_rollout_untruncated_outcomes_total", 'outcome="correct"'),
                    "accuracy of finished answers",
                ),
            ),
            "Of all sampled responses, flat groups too. Reward up while the accuracy of finished answers "
            "goes down means that the model only learns to be short.",
        ),
        Panel(
            "Evaluation",
            (Query(gauge("magicrl_eval_accuracy_ratio"), "{{dataset}} @{{k}}"),),
            "Accuracy on test problems, from the start and from each evaluation.",
            unit="percentunit",
        ),
        Panel(
            "Entropy",
            (
                Query(gauge("magicrl_learner_entropy_nats"), "entropy"),
                Query(gauge("magicrl_reference", 'name="entropy_target"'), "target"),
            ),
            "Nats per token, estimated over the batch. The controller pushes back below the target.",
        ),
    ),
)

_FRESHNESS_AND_BALANCE = Row(
    "Freshness and balance",
    (
        Panel(
            "Staleness",
            (
                Query(quantile(0.95, "magicrl_train_staleness_versions"), "p95"),
                Query(mean("magicrl_train_staleness_versions"), "mean"),
                Query(gauge("magicrl_reference", 'name="max_staleness"'), "bound"),
            ),
            "Learner step minus the step of a trained group's oldest token. p95 is read off buckets.",
        ),
        Panel(
            "Who waits",
            (
                Query(rate("magicrl_learner_wait_seconds_total"), "learner waits for groups"),
                Query(
                    "avg by (cause) (rate(magicrl_gen_idle_seconds_total{RUN}[WINDOW]))",
                    "generators idle: {{cause}}",
                ),
            ),
            "Shares of the time. Learner waiting: more generators help. Generators idle by backpressure: "
            "fewer suffice, or a larger staleness bound.",
            unit="percentunit",
        ),
        Panel(
            "Versions",
            (
                Query(largest("magicrl_weights_published_version"), "published"),
                Query(gauge("magicrl_gen_weights_version"), "generator {{actor}}"),
            ),
            "Step of the newest published weights and of those each generator has loaded.",
        ),
    ),
)

_THROUGHPUT_AND_ALARMS = Row(
    "Throughput and alarms",
    (
        Panel(
            "Tokens per second",
            (
                Query(rate("magicrl_gen_tokens_total", where='kind="response"'), "sampled"),
                Query(rate("magicrl_learner_tokens_total"), "trained"),
            ),
            "Sampled counts flat groups too; trained is what entered the loss.",
        ),
        Panel(
            "Step time by phase",
            (Query(mean("magicrl_learner_phase_seconds", "phase"), "{{phase}}"),),
            "Mean seconds per step. wait: for groups; fwdbwd: forward and backward; broadcast: publishing.",
            unit="s",
            stack=True,
        ),
        Panel(
            "Alerts",
            (Query("max by (alertname, severity, alertstate) (ALERTS{RUN})"),),
            "Pending and firing alerts of this run; the runbook explains each. Watchdog always fires.",
            kind="table",
            columns={"alertname": "Alert", "severity": "Severity", "alertstate": "State"},
        ),
    ),
)

OVERVIEW = Dashboard(
    uid="magicrl-overview",
    title="magicrl / Overview",
    description="One screen for the whole loop; the other three dashboards explain what is seen here.",
    rows=(
        _NOW,
        _LEARNING,
        _FRESHNESS_AND_BALANCE,
        _THROUGHPUT_AND_ALARMS,
    ),
)
