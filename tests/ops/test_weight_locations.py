"""Where a run's weights are found, and what is refused before anything starts."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import ray

from buffer.config import WeightsConfig
from buffer.weights.location import Location
from ops.config.schema import ConfigError
from ops.run.weight_locations import weight_locations


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The nodes that Ray lists."""
    known: list[dict[str, Any]] = [{"Alive": True}]
    monkeypatch.setattr(ray, "nodes", lambda: known)
    return known


def locations(tmp_path: Path, **settings: Any) -> tuple[str, str | None]:
    """Where weights published in ``tmp_path`` are found inside and outside of the cluster."""
    config = WeightsConfig.model_validate(settings)
    with weight_locations(config, Location.parse(tmp_path)) as found:
        return str(found.inside), found.url


def test_a_folder_is_found_where_it_is_unless_it_is_served(tmp_path: Path, nodes: list[Any]) -> None:
    assert locations(tmp_path) == (str(tmp_path), None)
    inside, url = locations(tmp_path, http={})
    assert inside == str(tmp_path)
    assert url is not None
    assert url.startswith("http://127.0.0.1:")
    inside, url = locations(tmp_path, transport="http")
    assert inside == url


def test_shared_memory_is_refused_where_there_are_other_machines(tmp_path: Path, nodes: list[Any]) -> None:
    nodes += [{"Alive": False}]
    assert locations(tmp_path) == (str(tmp_path), None)
    nodes += [{"Alive": True}]
    with pytest.raises(ConfigError, match=r"buffer\.weights\.root: .*2 nodes.*transport=ray"):
        locations(tmp_path)
    assert locations(tmp_path, root=str(tmp_path)) == (str(tmp_path), None)


def test_what_would_lie_open_or_cannot_be_served_names_its_field(tmp_path: Path, nodes: list[Any]) -> None:
    with pytest.raises(ConfigError, match=r"buffer\.weights\.http \(0\.0\.0\.0:0\): .*set a token"):
        locations(tmp_path, http={"host": "0.0.0.0"})
    with pytest.raises(ConfigError, match=r"token_file .*No such file"):
        locations(tmp_path, http={"token_file": str(tmp_path / "none")})
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=rf"{port}\): Address already in use.*; port 0"):
            locations(tmp_path, http={"port": port})


def test_beyond_loopback_the_address_is_one_that_others_reach(tmp_path: Path, nodes: list[Any]) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    _, url = locations(tmp_path, http={"host": "0.0.0.0", "token_file": str(token)})
    assert url is not None
    assert "0.0.0.0" not in url
