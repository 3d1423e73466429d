"""A disk that is full when weights are published: a clear error, nothing half done, the old ones served."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from buffer.versions import PolicyVersion
from buffer.weights import DiskWeights, WeightsError
from learner.weights import tensor_writer


@contextmanager
def files_up_to(size: int) -> Iterator[None]:
    """The kernel refuses to let a file grow beyond ``size`` bytes, as it does when the disk is full."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_nothing_half_written_is_published_and_the_old_version_stays(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=2)
    small, large = {"w": torch.zeros(10)}, {"w": torch.arange(100_000, dtype=torch.float32)}
    store.publish(PolicyVersion(1, 0), tensor_writer(small.items(), torch.float32))
    with files_up_to(100_000), pytest.raises(WeightsError, match=r"publishing weights 1\.1 .*too large"):
        store.publish(PolicyVersion(1, 1), tensor_writer(large.items(), torch.float32))
    assert store.versions() == [PolicyVersion(1, 0)]
    assert not list((tmp_path / ".staging").iterdir())
    with store.fetch() as fetched:
        assert fetched.version == PolicyVersion(1, 0)
    store.publish(PolicyVersion(1, 1), tensor_writer(large.items(), torch.float32))
    with store.fetch() as fetched:
        assert fetched.version == PolicyVersion(1, 1)
