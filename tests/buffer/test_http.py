"""Weights over HTTP on loopback: verified, resumed, pinned, behind a token; alone and under deltas."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import requests

from buffer.weights.base import TornWeights, VersionGone, WeightsError
from buffer.weights.delta import DeltaWeights
from buffer.weights.disk import DiskWeights
from buffer.weights.http_client import HttpWeights
from buffer.weights.http_server import WeightServer
from helpers.weight_files import content, saved, version


@pytest.fixture
def store(tmp_path: Path) -> DiskWeights:
    return DiskWeights(tmp_path / "store", keep=2)


@pytest.fixture
def server(store: DiskWeights) -> Iterator[WeightServer]:
    with WeightServer(store) as server:
        yield server


def reader(url: str, folder: Path, token: str | None = None) -> HttpWeights:
    return HttpWeights(url, DiskWeights(folder, keep=1), token, timeout_seconds=5)


def test_a_late_joiner_gets_the_newest_and_what_it_asks_for(
    store: DiskWeights, server: WeightServer, tmp_path: Path
) -> None:
    weights = reader(server.url, tmp_path / "cache")
    with pytest.raises(VersionGone), weights.fetch():
        pass
    for step in range(3):
        store.publish(version(step), content(bytes([step]) * 3_000_000), {"dtype": "float32"})
    assert weights.versions() == [version(1), version(2)]
    with weights.fetch() as fetched:
        assert fetched.version == version(2)
        assert (fetched.path / "model.safetensors").read_bytes() == b"\x02" * 3_000_000
        assert fetched.manifest.details == {"dtype": "float32"}
    with weights.fetch(version(1)) as fetched:
        assert (fetched.path / "model.safetensors").read_bytes()[:2] == b"\x01\x01"
    with pytest.raises(VersionGone, match=r"1\.0"), weights.fetch(version(0)):
        pass


def test_a_flipped_byte_is_found_by_the_receiver(
    store: DiskWeights, server: WeightServer, tmp_path: Path
) -> None:
    store.publish(version(1), content(b"some weights"))
    (tmp_path / "store/1/1/model.safetensors").write_bytes(b"some weightz")
    with pytest.raises(TornWeights), reader(server.url, tmp_path / "cache").fetch():
        pass
    assert DiskWeights(tmp_path / "cache").versions() == []


def test_a_line_that_breaks_off_is_taken_up_again(
    store: DiskWeights, server: WeightServer, tmp_path: Path
) -> None:
    data = np.random.default_rng(0).bytes(2_000_000)
    store.publish(version(1), content(data))
    with breaking_proxy(server.url, after_bytes=600_000) as (url, connections):
        weights = HttpWeights(url, DiskWeights(tmp_path / "cache"), timeout_seconds=5, tries=9)
        with weights.fetch() as fetched:
            assert (fetched.path / "model.safetensors").read_bytes() == data
    assert len(connections) >= 4


class breaking_proxy:
    """Passes bytes on in both directions and cuts every connection after so many bytes of answer."""

    def __init__(self, url: str, after_bytes: int) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        self._target, self._limit = (host, int(port)), after_bytes
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.connections: list[int] = []

    def __enter__(self) -> tuple[str, list[int]]:
        threading.Thread(target=self._serve, daemon=True).start()
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}", self.connections

    def __exit__(self, *error: object) -> None:
        self._listener.close()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(1)
            upstream = socket.create_connection(self._target)
            threading.Thread(target=self._pump, args=(client, upstream, 1 << 40), daemon=True).start()
            threading.Thread(target=self._pump, args=(upstream, client, self._limit), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, limit: int) -> None:
        passed = 0
        with suppress(OSError):
            while passed < limit and (data := source.recv(min(65536, limit - passed))):
                target.sendall(data)
                passed += len(data)
        for end in (source, target):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)


def test_a_version_stays_while_it_is_downloaded(store: DiskWeights, server: WeightServer) -> None:
    store.publish(version(1), content(b"one"))
    pin, held = server.pin(version(1))
    for step in range(2, 6):
        store.publish(version(step), content(b"more"))
    assert (held.path / "model.safetensors").read_bytes() == b"one"
    server.unpin(pin)
    store.publish(version(6), content(b"more"))
    assert not held.path.exists()


def test_the_token_is_asked_for_and_needed_beyond_loopback(store: DiskWeights, tmp_path: Path) -> None:
    store.publish(version(1), content(b"one"))
    with pytest.raises(ValueError, match="set a token"):
        WeightServer(store, host="0.0.0.0")
    with WeightServer(store, token="secret") as server:
        with pytest.raises(WeightsError, match="401"), reader(server.url, tmp_path / "a", "guess").fetch():
            pass
        with pytest.raises(WeightsError, match="401"), reader(server.url, tmp_path / "a", "é").fetch():
            pass
        with pytest.raises(WeightsError, match="401"), reader(server.url, tmp_path / "b").fetch():
            pass
        with reader(server.url, tmp_path / "c", "secret").fetch() as fetched:
            assert fetched.version == version(1)


def test_no_path_leads_out_of_the_store(store: DiskWeights, server: WeightServer, tmp_path: Path) -> None:
    store.publish(version(1), content(b"one"))
    (tmp_path / "secret").write_text("x")
    pin, _ = server.pin(None)
    for path in (
        f"/pins/{pin}/..%2f..%2f..%2fsecret",
        f"/pins/{pin}/manifest.json",
        "/pins/x/model.safetensors",
    ):
        assert requests.get(server.url + path, timeout=5).status_code == 404
    assert requests.get(f"{server.url}/pins/{pin}/model.safetensors", timeout=5).content == b"one"


def test_requests_that_are_too_long_or_unreadable_are_refused(
    store: DiskWeights, server: WeightServer
) -> None:
    store.publish(version(1), content(b"one"))
    for body in (b"x" * 100_000, b"{", b"[]", b'{"version": "new"}'):
        assert requests.post(f"{server.url}/pins", data=body, timeout=5).status_code in (400, 413)


def test_the_pin_of_a_client_that_vanished_expires(tmp_path: Path) -> None:
    store = DiskWeights(tmp_path / "store", keep=1, pin_seconds=0.0)
    store.publish(version(1), content(b"one"))
    with WeightServer(store) as server:
        vanished = requests.post(f"{server.url}/pins", json={"version": None}, timeout=5).json()["pin"]
        file = f"{server.url}/pins/{vanished}/model.safetensors"
        assert requests.get(file, timeout=5).status_code == 200
        requests.post(f"{server.url}/pins", json={"version": None}, timeout=5)
        assert requests.get(file, timeout=5).status_code == 404


def test_a_server_that_is_not_there_is_a_weights_error(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="does not answer"), reader("http://127.0.0.1:9", tmp_path).fetch():
        pass


def test_deltas_travel_over_http(tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    shared = DiskWeights(tmp_path / "shared", keep=2)
    learner = DeltaWeights(shared, DiskWeights(tmp_path / "learner", keep=2), full_every=8)
    tensor = random.normal(size=50_000).astype(np.float16)
    with WeightServer(shared) as server:
        remote = DeltaWeights(reader(server.url, tmp_path / "downloads"), DiskWeights(tmp_path / "whole"))
        for step in range(5):
            tensor = tensor.copy()
            tensor[random.integers(0, len(tensor), 200)] += 1
            learner.publish(version(step), saved({"w": tensor}), {"dtype": "float16"})
            if step in (0, 1, 4):
                with remote.fetch() as fetched:
                    whole = (tmp_path / f"learner/1/{step}/model.safetensors").read_bytes()
                    assert (fetched.path / "model.safetensors").read_bytes() == whole
