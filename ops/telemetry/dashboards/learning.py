"""Learning health: entropy, clips, gaps, pass rates, and what the responses look like."""

from __future__ import annotations

from ops.telemetry.dashboards.page import page
from ops.telemetry.dashboards.panels import graph, histogram
from ops.telemetry.dashboards.promql import buckets, gauge, increase, mean, quantile, rate, share, signed_mean

_ENTROPY = [
    graph(
        "Entropy and its target",
        {
            "entropy": gauge("magicrl_learner_entropy_nats"),
            "target": gauge("magicrl_reference", 'name="entropy_target"'),
        },
        "Nats per token.",
    ),
    graph(
        "Entropy coefficient",
        {"alpha": gauge("magicrl_learner_entropy_coefficient")},
        "alpha_k of the adaptive controller: 0 while entropy is above the target.",
    ),
    graph(
        "Shares of the loss",
        {"{{term}}": gauge("magicrl_learner_loss_share_ratio")},
        "Size of each term over the sum of sizes. The entropy term should stay small.",
        unit="percentunit",
        stack=True,
        maximum=1.0,
    ),
]

_UPDATE = [
    graph(
        "Clipped tokens",
        {"{{side}}": gauge("magicrl_learner_clip_ratio")},
        "Share of tokens whose gradient the clip cut. 0 on the first update on fresh samples.",
        unit="percentunit",
    ),
    graph(
        "Importance ratio",
        {"{{stat}}": gauge("magicrl_learner_importance_ratio")},
        "pi_theta over the sampler's probability, over the tokens of a batch.",
    ),
    graph(
        "Sampler gap and KL",
        {
            "sampler to learner": gauge("magicrl_learner_mismatch_kl"),
            "to the reference": gauge("magicrl_learner_ref_kl"),
        },
        (
            "Nats per token. The sampler gap is over tokens sampled by the very version being "
            "trained: bf16 samplers show about 1e-3; growth means that the two compute different "
            "policies."
        ),
    ),
    graph("Gradient norm", {"norm": gauge("magicrl_learner_grad_norm")}, "2-norm before clipping."),
    graph(
        "Loss and skipped steps",
        {
            "policy loss": gauge("magicrl_learner_policy_loss"),
            "non-finite steps": increase("magicrl_learner_nonfinite_total"),
        },
        "The value of a policy-gradient loss means little; every skipped step matters.",
    ),
]

_PROBLEMS = [
    histogram(
        "Pass rate of groups",
        buckets("magicrl_group_pass_rate"),
        (
            "Share of a group's responses that were correct, all finished groups. A healthy run has "
            "mass in the middle; all mass at 0 or 1 teaches nothing."
        ),
        unit="percentunit",
    ),
    graph(
        "Groups by kind",
        {"{{kind}}": rate("magicrl_groups_total", "kind")},
        "Only mixed groups carry a gradient.",
        stack=True,
    ),
    graph(
        "Outcomes",
        {"{{outcome}}": rate("magicrl_rollout_outcomes_total", "outcome")},
        "Verdicts of responses per second; error means that the grader failed.",
        stack=True,
    ),
    graph(
        "Accuracy by dataset",
        {"{{dataset}}": share("magicrl_rollout_outcomes_total", 'outcome="correct"', "dataset")},
        "Of all sampled responses.",
        unit="percentunit",
    ),
]

_LENGTH = [
    graph(
        "Length by outcome",
        {"{{outcome}}": mean("magicrl_rollout_response_tokens", "outcome")},
        "Mean tokens. If only wrong answers grow, the model rambles when it does not know the answer.",
    ),
    graph(
        "Length with reflection",
        {"{{outcome}}": mean("magicrl_rollout_reflection_tokens", "outcome")},
        "Mean tokens of responses that use a reflection word. Empty while no response reflects.",
    ),
    graph(
        "Length p95",
        {"{{outcome}}": quantile(0.95, "magicrl_rollout_response_tokens", "outcome")},
        "Estimated from buckets; near the limit responses are truncated.",
    ),
    graph(
        "Truncated",
        {
            "stage {{stage}}": rate("magicrl_rollout_truncated_total", "stage")
            + " / on () group_left () "
            + rate("magicrl_rollout_outcomes_total")
        },
        "Share of responses cut by the response limit.",
        unit="percentunit",
        limit=0.2,
    ),
]

_HABITS = [
    graph(
        "Accuracy of finished answers",
        {"finished": share("magicrl_rollout_untruncated_outcomes_total", 'outcome="correct"')},
        "Responses that were not truncated.",
        unit="percentunit",
    ),
    graph(
        "Accuracy by reflection pattern",
        {"{{pattern}}": share("magicrl_rollout_reflections_total", 'outcome="correct"', "pattern")},
        "Of responses that use the pattern. Empty while no response reflects.",
        unit="percentunit",
    ),
    graph(
        "Likeness within groups",
        {"n-gram overlap": mean("magicrl_rollout_group_likeness")},
        ("0: answers of a group share nothing; 1: they are the same. Rising: sampling loses its variety."),
    ),
    graph(
        "Repetition",
        {"{{outcome}}": mean("magicrl_rollout_repetition_score", "outcome")},
        "Compressibility of a response; near 1 it repeats itself.",
    ),
]

_FORM = [
    graph(
        "Format failures",
        {"{{kind}}": rate("magicrl_rollout_format_failures_total", "kind")},
        "Responses per second without a gradable answer, by the missing part.",
        stack=True,
    ),
    graph(
        "Off-language share",
        {"{{dataset}}": mean("magicrl_rollout_language_mix_ratio", "dataset")},
        "Share of a response's letters that are not in the problem's script.",
        unit="percentunit",
    ),
    graph(
        "Reward components",
        {"{{component}}": signed_mean("magicrl_rollout_reward", "component")},
        "Mean of each part of the reward.",
    ),
    graph(
        "Grading time",
        {
            "{{verifier}} p50": quantile(0.5, "magicrl_verify_seconds", "verifier"),
            "{{verifier}} p99": quantile(0.99, "magicrl_verify_seconds", "verifier"),
        },
        "Seconds for one response.",
        unit="s",
    ),
]

LEARNING = page(
    "magicrl-learning",
    "magicrl / Learning health",
    "The effect of the updates on the policy, and of the policy on its answers.",
    {
        "Entropy": _ENTROPY,
        "Update": _UPDATE,
        "Problems": _PROBLEMS,
        "Length": _LENGTH,
        "Habits": _HABITS,
        "Form": _FORM,
    },
)
