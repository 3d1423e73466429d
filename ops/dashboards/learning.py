"""Learning health: entropy, clips, gaps, pass rates, and what the responses look like."""

from __future__ import annotations

from ops.dashboards.panel import Dashboard, Panel, Query, Row
from ops.dashboards.promql import buckets, gauge, increase, mean, quantile, rate, share, signed_mean

_ENTROPY = Row(
    "Entropy",
    (
        Panel(
            "Entropy and its target",
            (
                Query(gauge("magicrl_learner_entropy_nats"), "entropy"),
                Query(gauge("magicrl_reference", 'name="entropy_target"'), "target"),
            ),
            "Nats per token.",
        ),
        Panel(
            "Entropy coefficient",
            (Query(gauge("magicrl_learner_entropy_coefficient"), "alpha"),),
            "alpha_k of the adaptive controller: 0 while entropy is above the target.",
        ),
        Panel(
            "Shares of the loss",
            (Query(gauge("magicrl_learner_loss_share_ratio"), "{{term}}"),),
            "Size of each term over the sum of sizes. The entropy term should stay small.",
            unit="percentunit",
            stack=True,
            maximum=1.0,
        ),
    ),
)

_UPDATE = Row(
    "Update",
    (
        Panel(
            "Clipped tokens",
            (Query(gauge("magicrl_learner_clip_ratio"), "{{side}}"),),
            "Share of tokens whose gradient the clip cut. 0 on the first update on fresh samples.",
            unit="percentunit",
        ),
        Panel(
            "Importance ratio",
            (Query(gauge("magicrl_learner_importance_ratio"), "{{stat}}"),),
            "pi_theta over the sampler's probability, over the tokens of a batch.",
        ),
        Panel(
            "Sampler gap and KL",
            (
                Query(gauge("magicrl_learner_mismatch_kl"), "sampler to learner"),
                Query(gauge("magicrl_learner_ref_kl"), "to the reference"),
            ),
            "Nats per token. The sampler gap is over tokens sampled by the very version being trained: bf16 "
            "samplers show about 1e-3; growth means that the two compute different policies.",
        ),
        Panel(
            "Gradient norm",
            (Query(gauge("magicrl_learner_grad_norm"), "norm"),),
            "2-norm before clipping.",
        ),
        Panel(
            "Loss and skipped steps",
            (
                Query(gauge("magicrl_learner_policy_loss"), "policy loss"),
                Query(increase("magicrl_learner_nonfinite_total"), "non-finite steps"),
            ),
            "The loss's value says little in policy gradients; a skipped step says much.",
        ),
    ),
)

_PROBLEMS = Row(
    "Problems",
    (
        Panel(
            "Pass rate of groups",
            (Query(buckets("magicrl_group_pass_rate"), "{{le}}"),),
            "Share of a group's responses that were correct, all finished groups. A healthy run has mass in "
            "the middle; all mass at 0 or 1 teaches nothing.",
            kind="heatmap",
            unit="percentunit",
        ),
        Panel(
            "Groups by kind",
            (Query(rate("magicrl_groups_total", "kind"), "{{kind}}"),),
            "Only mixed groups carry a gradient.",
            stack=True,
        ),
        Panel(
            "Outcomes",
            (Query(rate("magicrl_rollout_outcomes_total", "outcome"), "{{outcome}}"),),
            "Verdicts of responses per second; error means that the grader failed.",
            stack=True,
        ),
        Panel(
            "Accuracy by dataset",
            (
                Query(
                    share("magicrl_rollout_outcomes_total", 'outcome="correct"', "dataset"),
                    "{{dataset}}",
                ),
            ),
            "Of all sampled responses.",
            unit="percentunit",
        ),
    ),
)

_LENGTH = Row(
    "Length",
    (
        Panel(
            "Length by outcome",
            (Query(mean("magicrl_rollout_response_tokens", "outcome"), "{{outcome}}"),),
            "Mean tokens. Wrong answers growing alone: the model rambles when it is lost.",
        ),
        Panel(
            "Length with reflection",
            (
                Query(
                    mean("magicrl_rollout_reflection_tokens", "outcome"),
                    "{{outcome}}",
                    "a model that writes reflection words",
                ),
            ),
            "Mean tokens of responses that use a reflection word.",
        ),
        Panel(
            "Length p95",
            (Query(quantile(0.95, "magicrl_rollout_response_tokens", "outcome"), "{{outcome}}"),),
            "Read off buckets; near the limit means truncation.",
        ),
        Panel(
            "Truncated",
            (
                Query(
                    f"{rate('magicrl_rollout_truncated_total', 'stage')} / on () group_left () "
                    + rate("magicrl_rollout_outcomes_total"),
                    "stage {{stage}}",
                ),
            ),
            "Share of responses cut by the response limit.",
            unit="percentunit",
            limits={0.2: "red"},
        ),
    ),
)

_HABITS = Row(
    "Habits",
    (
        Panel(
            "Accuracy of finished answers",
            (
                Query(
                    share("magicrl_rollout_untruncated_outcomes_total", 'outcome="correct"'),
                    "finished",
                ),
            ),
            "Responses that were not truncated.",
            unit="percentunit",
        ),
        Panel(
            "Accuracy by reflection pattern",
            (
                Query(
                    share("magicrl_rollout_reflections_total", 'outcome="correct"', "pattern"),
                    "{{pattern}}",
                    "a model that writes reflection words",
                ),
            ),
            "Of responses that use the pattern. Empty while no response reflects.",
            unit="percentunit",
        ),
        Panel(
            "Likeness within groups",
            (Query(mean("magicrl_rollout_group_likeness"), "n-gram overlap"),),
            "0: answers of a group share nothing; 1: they are the same. Rising: sampling loses its variety.",
        ),
        Panel(
            "Repetition",
            (Query(mean("magicrl_rollout_repetition_score", "outcome"), "{{outcome}}"),),
            "Compressibility of a response; near 1 it repeats itself.",
        ),
    ),
)

_FORM = Row(
    "Form",
    (
        Panel(
            "Format failures",
            (Query(rate("magicrl_rollout_format_failures_total", "kind"), "{{kind}}"),),
            "Responses per second without a gradable answer, by what is missing.",
            stack=True,
        ),
        Panel(
            "Off-language share",
            (Query(mean("magicrl_rollout_language_mix_ratio", "dataset"), "{{dataset}}"),),
            "Share of a response's letters that are not in the problem's script.",
            unit="percentunit",
        ),
        Panel(
            "Reward components",
            (Query(signed_mean("magicrl_rollout_reward", "component"), "{{component}}"),),
            "Mean of each part of the reward.",
        ),
        Panel(
            "Grading time",
            (
                Query(quantile(0.5, "magicrl_verify_seconds", "verifier"), "{{verifier}} p50"),
                Query(quantile(0.99, "magicrl_verify_seconds", "verifier"), "{{verifier}} p99"),
            ),
            "Seconds for one response.",
            unit="s",
        ),
    ),
)

LEARNING = Dashboard(
    uid="magicrl-learning",
    title="magicrl / Learning health",
    description="What the update does to the policy, and what the policy does to its answers.",
    rows=(
        _ENTROPY,
        _UPDATE,
        _PROBLEMS,
        _LENGTH,
        _HABITS,
        _FORM,
    ),
)
