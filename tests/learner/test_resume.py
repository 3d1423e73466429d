"""What a resume may change."""

from __future__ import annotations

import pytest

from learner.config import EntropyConfig, LearnerConfig
from learner.coordinator.resume import ResumeRefused, changed_settings


def test_a_resume_lists_changes_and_refuses_some() -> None:
    saved = LearnerConfig().model_dump(mode="json")
    changed = LearnerConfig(lr=1.0, ranks=2, entropy=EntropyConfig(delta=1.0))
    assert set(changed_settings(saved, changed)) == {"lr", "ranks", "entropy"}
    with pytest.raises(ResumeRefused, match=r"learner.dtype=auto, learner.zero_stage=1"):
        changed_settings(saved, LearnerConfig(zero_stage=3, dtype="float32"))
