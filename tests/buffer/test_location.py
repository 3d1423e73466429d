"""Locations of weights, and the store that a location and the settings mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from buffer.config import WeightsConfig, WeightServerConfig
from buffer.weights import scratch
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights
from buffer.weights.http_client import HttpWeights
from buffer.weights.http_server import WeightServer
from buffer.weights.location import TOKEN, Location, open_store, weights_token
from helpers.weight_files import content, version


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "memory"
    root.mkdir()
    monkeypatch.setattr(scratch, "shared_memory", lambda: root)
    monkeypatch.delenv(TOKEN, raising=False)
    return root


@pytest.mark.parametrize(
    ("text", "kind", "address"),
    [
        ("ray:magicrl-weights-run", "ray", "magicrl-weights-run"),
        ("http://host:8300", "http", "http://host:8300"),
        ("https://host", "http", "https://host"),
        (Path("/weights/run"), "folder", "/weights/run"),
        ("rays", "folder", "rays"),
    ],
)
def test_a_location_is_read_from_its_text_and_written_back(text: str | Path, kind: str, address: str) -> None:
    location = Location.parse(text)
    assert (location.kind, location.address) == (kind, address)
    assert str(location) == str(text)


def test_a_store_in_ray_is_not_taken_for_a_folder() -> None:
    with pytest.raises(ValueError, match=r"ray:board .*actors\.weights"):
        open_store(Location.parse("ray:board"), WeightsConfig())


def test_a_folder_needs_no_private_copy_unless_it_has_deltas(tmp_path: Path, memory: Path) -> None:
    assert type(open_store(Location.parse(tmp_path / "w"), WeightsConfig())) is DiskWeights
    assert not list(memory.iterdir())
    store = open_store(Location.parse(tmp_path / "w"), WeightsConfig(full_every=4))
    assert type(store) is DeltaWeights
    assert len(list(memory.iterdir())) == 1
    store.close()
    assert not list(memory.iterdir())


def test_downloads_are_gone_when_the_reader_closes(tmp_path: Path, memory: Path) -> None:
    shared = DiskWeights(tmp_path / "w")
    shared.publish(version(0), content("abc"))
    token = tmp_path / "token"
    token.write_text("secret\n")
    config = WeightsConfig(full_every=4, http=WeightServerConfig(token_file=token))
    with WeightServer(shared, token="secret") as server:
        store = open_store(Location.parse(server.url), config)
        with store.fetch() as fetched:
            assert (fetched.path / "model.safetensors").read_text() == "abc"
            assert memory in fetched.path.parents
        store.close()
    assert not list(memory.iterdir())
    assert type(open_store(Location.parse("http://127.0.0.1:9"), WeightsConfig())) is HttpWeights


def test_the_token_comes_from_the_environment_or_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    config = WeightServerConfig(token_file=file)
    with pytest.raises(ValueError, match=r"token_file .*No such file.*MAGICRL_WEIGHTS_TOKEN"):
        weights_token(config)
    file.write_text("\n")
    with pytest.raises(ValueError, match="first line is empty"):
        weights_token(config)
    file.write_text("from file\nmore")
    assert weights_token(config) == "from file"
    monkeypatch.setenv(TOKEN, "from environment")
    assert weights_token(config) == "from environment"
    assert weights_token(None) == "from environment"
