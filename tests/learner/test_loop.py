"""The learner's loop on real Redis and DeepSpeed; a thread pushes groups as generators would."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import numpy as np
import pytest
import torch

from buffer.records.versions import PolicyVersion
from helpers.learner_run import MakeRun, pass_rate
from helpers.local_ranks import LocalRanks
from helpers.ragged_groups import overflowing
from learner.config import CheckpointConfig, EntropyConfig, LearnerConfig
from learner.coordinator.claims import LearnerStarved
from learner.coordinator.nonfinite import NonFinite
from learner.coordinator.resume import ResumeRefused
from learner.recipe.schedule import Schedule, StageConfig

NEVER = threading.Event()
LEARNER = LearnerConfig(
    lr=1e-3, entropy=EntropyConfig(target=5.0, delta=0.01, cap=0.035), checkpoint=CheckpointConfig(every=2)
)


def schedule(*stages: dict, learner: LearnerConfig = LEARNER) -> Schedule:
    base = {"response_limit": 24, "prompts_per_step": 3, "group_size": 4}
    return Schedule([StageConfig(**(base | stage)) for stage in stages or ({},)], learner)


def test_steps_publish_announce_commit_and_leave_balanced_books(make_run: MakeRun) -> None:
    run = make_run(schedule())
    learner = run.learner()
    assert learner.begin() == PolicyVersion(1, 0)
    run.feed()
    learner.run(3, NEVER)
    assert [report.version for report in run.reports] == ["1.0", "1.1", "1.2"]
    assert run.buffer.state.announced() == PolicyVersion(1, 3)
    assert run.connections.weights().versions()[-1] == PolicyVersion(1, 3)
    books = run.buffer.state.books()
    assert books.balanced
    assert (books.trained, books.claimed) == (9, 0)
    assert [checkpoint.version.step for checkpoint in run.checkpoints.all()] == [2, 3]
    report = run.reports[-1]
    assert report.applied
    assert report.grad_norm > 0
    assert {"wait", "fetch", "fwdbwd", "optim", "publish", "commit"} <= report.seconds.keys()
    json.dumps(report.as_dict())


def test_staleness_zero_trains_each_token_on_the_weights_that_sampled_it(make_run: MakeRun) -> None:
    run = make_run(schedule(), max_staleness=0)
    learner = run.learner()
    learner.begin()
    run.feed()
    learner.run(3, NEVER)
    for report in run.reports:
        assert report.staleness_max == 0
        assert report.gap_tokens == report.tokens > 0


def test_stages_change_the_rules_exactly_at_their_step_and_survive_a_resume(make_run: MakeRun) -> None:
    stages = (
        {"steps": 2},
        {
            "steps": 2,
            "prompts_per_step": 2,
            "group_size": 6,
            "lr": 5e-4,
            "entropy_delta": 0.002,
            "temperature": 0.8,
        },
        {"steps": 2, "prompts_per_step": 4, "kl": 0.05, "clip_high": 0.3},
    )
    run = make_run(schedule(*stages))
    learner = run.learner()
    learner.begin()
    run.feed()
    learner.run(3, NEVER)  # ends in the middle of the second stage
    resumed = run.learner()
    assert resumed.begin(run.checkpoints.newest()) == PolicyVersion(2, 3)
    resumed.run(6, NEVER)
    assert [report.step for report in run.reports] == list(range(6))
    assert [report.stage for report in run.reports] == [0, 0, 1, 1, 2, 2]
    assert [report.lineage for report in run.reports] == [1, 1, 1, 2, 2, 2]
    assert [report.groups for report in run.reports] == [3, 3, 2, 2, 4, 4]
    assert [report.responses for report in run.reports] == [12, 12, 12, 12, 16, 16]
    assert [report.lr for report in run.reports] == [1e-3, 1e-3, 5e-4, 5e-4, 1e-3, 1e-3]
    coefficients = [report.coefficient for report in run.reports]
    np.testing.assert_allclose(coefficients, [0.0, 0.01, 0.02, 0.022, 0.024, 0.034])
    assert [report.loss_kl > 0 for report in run.reports] == [False] * 4 + [True] * 2
    assert run.buffer.state.books().balanced


@pytest.mark.parametrize("staleness", [0, 1])
def test_a_stage_trains_on_its_own_prompts_from_its_first_step_on(make_run: MakeRun, staleness: int) -> None:
    """The range of pass rates and the mixture change at their step, and outlive a resume within the stage."""
    stages = (
        {"steps": 2, "pass_rate": (0.0, 0.5), "mixture": {"even": 0.0}},
        {"steps": 3, "pass_rate": (0.4, 0.6), "mixture": {"odd": 0.0}},
        {"steps": 2},
    )
    run = make_run(schedule(*stages), max_staleness=staleness, difficulty={"initial_low": 0.8})
    learner = run.learner()
    learner.begin()
    run.feed()
    learner.run(3, NEVER)
    resumed = run.learner()
    resumed.begin(run.checkpoints.newest())
    resumed.run(7, NEVER)
    trained = [
        [(each.summary.data_source, pass_rate(each.summary.id.prompt)) for each in claim.groups]
        for claim in run.claims
    ]
    assert len(trained) == 7
    assert all(source == "odd" and 0 < rate < 0.5 for step in trained[:2] for source, rate in step)
    assert all(source == "even" and 0.4 < rate < 0.6 for step in trained[2:5] for source, rate in step)
    assert {source for step in trained[5:] for source, _ in step} == {"even", "odd"}
    assert all(rate > 0.8 for step in trained[5:] for _, rate in step)


def test_a_stop_abandons_the_wait_and_writes_a_checkpoint(make_run: MakeRun) -> None:
    run = make_run(schedule())
    stop = threading.Event()
    run.at_phase = lambda phase: threading.Timer(0.3, stop.set).start()
    learner = run.learner()
    learner.begin()
    learner.run(3, stop)  # nothing is fed
    assert run.reports == []
    assert run.checkpoints.newest().version == PolicyVersion(1, 0)


def test_the_error_for_a_missing_batch_names_what_it_waited_for(make_run: MakeRun) -> None:
    run = make_run(schedule(learner=LEARNER.model_copy(update={"claim_timeout": 0.2})))
    learner = run.learner()
    learner.begin()
    with pytest.raises(LearnerStarved, match=r"0 of 3 groups.*in 0 s; waited \d s for the generators"):
        learner.run(1, NEVER)


def test_a_body_that_cannot_be_read_is_dropped_and_its_place_filled(make_run: MakeRun) -> None:
    run = make_run(schedule())
    learner = run.learner()
    learner.begin()
    claim, spoiled = run.buffer.learner.claim, []

    def spoil(lineage, step):
        result = claim(lineage, step)
        if not spoiled and hasattr(result, "groups"):
            spoiled.append(result.groups[1].summary.id)
            run.buffer.state.client.set(result.groups[1].body_key, b"rubbish")
        return result

    run.buffer.learner.claim = spoil
    run.feed()
    learner.run(2, NEVER)
    assert [report.groups for report in run.reports] == [3, 3]
    assert dict(run.buffer.state.books().dropped) == {"corrupt": 1}
    assert run.buffer.state.books().balanced


def test_steps_whose_gradient_is_not_finite_are_skipped_kept_and_end_the_run(make_run: MakeRun) -> None:
    run = make_run(schedule(learner=LEARNER.model_copy(update={"advantage": "no_std", "nonfinite_limit": 2})))
    learner = run.learner()
    learner.begin()
    run.alter = overflowing
    run.feed()
    before = run.published()
    with pytest.raises(NonFinite, match="2 steps in a row up to 1"):
        learner.run(5, NEVER)
    assert [report.applied for report in run.reports] == [False, False]
    assert run.connections.weights().versions()[-1] == PolicyVersion(1, 2)
    assert all(torch.equal(weight, before[name]) for name, weight in run.published().items())
    assert all(len(list((run.folder / "nonfinite" / f"1.{k}").glob("*.group"))) == 3 for k in (0, 1))
    json.dumps(run.reports[-1].as_dict(), allow_nan=False)
    assert learner.state.skipped == 2


def test_a_resume_may_not_change_what_the_checkpoint_is_made_of(make_run: MakeRun) -> None:
    run = make_run(schedule())
    learner = run.learner()
    learner.begin()
    run.feed()
    learner.run(1, NEVER)
    run.schedule = schedule(learner=LEARNER.model_copy(update={"zero_stage": 2, "lr": 1e-2}))
    with pytest.raises(ResumeRefused, match=r"only be resumed with learner.zero_stage=1$"):
        run.learner().begin(run.checkpoints.newest())


def test_a_resume_with_another_model_is_refused(make_run: MakeRun, untied_model: Path) -> None:
    run = make_run(schedule())
    learner = run.learner()
    learner.begin()
    run.feed()
    learner.run(1, NEVER)
    run.model = untied_model
    with pytest.raises(ResumeRefused, match=r"model.path: .* another model \(parameters \d+; the folder has"):
        run.learner().begin(run.checkpoints.newest())


def test_an_out_of_memory_names_sizes_halves_the_budget_once_and_continues(
    make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    from learner.compute.engine import DeepSpeedEngine
    from learner.coordinator.rank_group import OutOfMemory

    run = make_run(schedule())
    ranks = LocalRanks(run.spec())
    learner = run.learner(ranks)
    real, limit = DeepSpeedEngine.forward_backward, 9000

    def tight(self, batch, objective, tokens):
        if ranks.config.token_budget > limit:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(self, batch, objective, tokens)

    monkeypatch.setattr(DeepSpeedEngine, "forward_backward", tight)
    learner.begin()
    run.feed()
    learner.run(1, NEVER)
    assert ranks.config.token_budget == 8192
    assert [report.version for report in run.reports] == ["2.0"]
    limit = 0
    with pytest.raises(OutOfMemory, match=r"micro-batch of \d+ x \d+ tokens.*lower learner.token_budget"):
        learner.run(2, NEVER)
