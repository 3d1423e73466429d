"""DiskWeights: all or nothing, checksummed, pinned with a deadline, retained without a lock."""

from __future__ import annotations

import binascii
import json
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from buffer.records.versions import PolicyVersion
from buffer.weights.base import TornWeights, VersionGone, WeightsError
from buffer.weights.disk import DiskWeights
from helpers.weight_files import content, version


def test_what_is_fetched_is_what_was_published(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=2)
    published = store.publish(version(0), content("zero"), {"dtype": "float32"})
    assert (published.version, published.bytes) == (version(0), 4)
    with store.fetch() as fetched:
        assert fetched.version == version(0)
        assert (fetched.path / "model.safetensors").read_text() == "zero"
        assert fetched.manifest.details == {"dtype": "float32"}
        assert fetched.manifest.files["model.safetensors"].crc32 == f"{binascii.crc32(b'zero'):08x}"


def test_newest_is_by_lineage_then_step(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=9)
    for number in (version(9), version(10), version(3, lineage=2)):
        store.publish(number, content(str(number)))
    assert store.versions() == [version(9), version(10), version(3, lineage=2)]
    with store.fetch() as fetched:
        assert fetched.version == version(3, lineage=2)
    with store.fetch(version(10)) as fetched:
        assert (fetched.path / "model.safetensors").read_text() == "1.10"


def test_an_empty_store_a_missing_version_and_a_second_publish_are_errors(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=2)
    with pytest.raises(VersionGone, match="there: none"), store.fetch():
        pass
    store.publish(version(1), content("one"))
    with pytest.raises(VersionGone, match=r"1\.7 .* there: 1\.1"), store.fetch(version(7)):
        pass
    with pytest.raises(WeightsError, match=r"publishing weights 1\.1"):
        store.publish(version(1), content("other"))
    with store.fetch() as fetched:
        assert (fetched.path / "model.safetensors").read_text() == "one"


def test_a_publish_that_fails_leaves_nothing(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=2)

    def full_disk(folder: Path) -> None:
        (folder / "model.safetensors").write_text("half")
        raise OSError(28, "No space left on device")

    with pytest.raises(WeightsError, match="No space left"):
        store.publish(version(1), full_disk)
    with pytest.raises(WeightsError, match="nothing to publish"):
        store.publish(version(1), lambda folder: None)
    assert store.versions() == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    store.publish(version(1), content("one"))
    assert store.versions() == [version(1)]


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "manifest", "swap"])
def test_torn_weights_are_not_handed_out(tmp_path: Path, damage: str) -> None:
    store = DiskWeights(tmp_path, keep=2)
    store.publish(version(1), content("some weights"))
    file, manifest = tmp_path / "1/1/model.safetensors", tmp_path / "1/1/manifest.json"
    match damage:
        case "flip":
            file.write_text("some weighty")
        case "cut":
            file.write_text("some")
        case "remove":
            file.unlink()
        case "manifest":
            manifest.write_text("{")
        case "swap":
            manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": "1.2"}))
    with pytest.raises(TornWeights), store.fetch():
        pass


def test_a_manifest_cannot_name_files_outside_its_folder(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=2)
    store.publish(version(1), content("x"))
    path = tmp_path / "1/1/manifest.json"
    body = json.loads(path.read_text())
    body["files"] = {"../../../etc/passwd": {"bytes": 1, "crc32": "00000000"}}
    path.write_text(json.dumps(body))
    with pytest.raises(TornWeights, match="plain name"), store.fetch():
        pass


def test_a_pinned_version_stays_until_it_is_released(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=1)
    reader = DiskWeights(tmp_path, keep=1)
    store.publish(version(1), content("one"))
    with reader.fetch(version(1)) as fetched:
        store.publish(version(2), content("two"))
        store.publish(version(3), content("three"))
        assert (fetched.path / "model.safetensors").read_text() == "one"
        assert store.versions() == [version(3)]
        with pytest.raises(VersionGone), reader.fetch(version(1)):
            pass
    store.publish(version(4), content("four"))
    assert not (tmp_path / "1/1").exists()


def test_the_pin_of_a_dead_reader_dies(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path, keep=1, pin_seconds=0.0)
    reader = DiskWeights(tmp_path, keep=1)
    store.publish(version(1), content("one"))
    abandoned = ExitStack()
    abandoned.enter_context(reader.fetch(version(1)))
    store.publish(version(2), content("two"))
    assert not (tmp_path / "1/1").exists()
    abandoned.close()


def test_readers_never_see_a_version_vanish_under_them(tmp_path: Path) -> None:
    """Readers race with a writer that keeps one version; each must read whole, right contents."""
    store = DiskWeights(tmp_path, keep=1)
    store.publish(version(0), content("0" * 1000))
    failures: list[str] = []
    done = threading.Event()

    def read() -> None:
        reader = DiskWeights(tmp_path, keep=1)
        while not done.is_set():
            try:
                with reader.fetch() as fetched:
                    text = (fetched.path / "model.safetensors").read_text()
                    if text != str(fetched.version.step) * 1000:
                        failures.append(f"{fetched.version}: {text[:20]}")
            except (OSError, WeightsError) as error:
                failures.append(repr(error))

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(1, 150):
        store.publish(version(step), content(str(step) * 1000))
    done.set()
    for thread in threads:
        thread.join(30)
    assert failures == []


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6)), min_size=1, max_size=12, unique=True))
def test_retention_keeps_the_newest(
    tmp_path_factory: pytest.TempPathFactory, order: list[tuple[int, int]]
) -> None:
    store = DiskWeights(tmp_path_factory.mktemp("store"), keep=2)
    seen: list[PolicyVersion] = []
    for lineage, step in order:
        number = PolicyVersion(lineage, step)
        store.publish(number, content("x"))
        seen = sorted([*seen, number])[-2:]
        assert store.versions() == seen
