"""A Redis is checked before a run relies on it; a refusal is one line that names the fix."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import redis

from buffer.backend import connection, embedded
from buffer.backend.embedded import EmbeddedRedis, RedisUnusable, connect
from buffer.config import RedisConfig


@pytest.mark.parametrize(
    ("setting", "value", "complaint"),
    [("maxmemory-policy", "allkeys-lru", "CONFIG SET maxmemory-policy noeviction")],
)
def test_a_redis_that_may_evict_is_refused(
    short_folder: Path, setting: str, value: str, complaint: str
) -> None:
    with EmbeddedRedis(short_folder) as running:
        redis.Redis.from_url(running.url).config_set(setting, value)
        with pytest.raises(RedisUnusable, match=complaint):
            connect(RedisConfig(), running.url)


def test_a_password_is_needed_and_never_shown(short_folder: Path) -> None:
    with EmbeddedRedis(short_folder, port=0) as running:
        redis.Redis.from_url(running.url).config_set("requirepass", "s3cret")
        with pytest.raises(RedisUnusable, match=r"redis\.password_file"):
            connect(RedisConfig(), running.url)
        with pytest.raises(RedisUnusable, match=r"redis\.password_file") as error:
            connect(RedisConfig(password="wrong"), running.url)
        assert "wrong" not in str(error.value)
        (short_folder / "password").write_text("s3cret\n")
        assert connect(RedisConfig(password_file=short_folder / "password"), running.url).ping()
        with pytest.raises(RedisUnusable, match="cannot be read"):
            connect(RedisConfig(password_file=short_folder / "missing"), running.url)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make a certificate")
def test_tls_needs_a_trusted_certificate(short_folder: Path) -> None:
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    names = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1"
    files = f"-keyout {short_folder}/key.pem -out {short_folder}/cert.pem"
    subprocess.run(f"{make} {names} {files}".split(), check=True, capture_output=True, timeout=30)
    with EmbeddedRedis(short_folder, port=0) as running:
        plain, port = redis.Redis.from_url(running.url), embedded._free_port()
        try:
            for name, file in (("cert", "cert"), ("key", "key"), ("ca-cert", "cert")):
                plain.config_set(f"tls-{name}-file", f"{short_folder}/{file}.pem")
            plain.config_set("tls-auth-clients", "no")
            plain.config_set("tls-port", port)
        except redis.exceptions.ResponseError:
            pytest.skip("this redis-server was built without TLS")
        address = f"rediss://127.0.0.1:{port}/0"
        assert connect(RedisConfig(ca_file=short_folder / "cert.pem"), address).ping()
        with pytest.raises(RedisUnusable, match=r"certificate verify failed.*; set redis.ca_file"):
            connect(RedisConfig(), address)


def test_no_server_is_one_line_without_the_password() -> None:
    with pytest.raises(
        RedisUnusable, match=r"no redis at redis://127.0.0.1:1: .*start it or set redis.url"
    ) as error:
        connect(RedisConfig(), "redis://user:s3cret@127.0.0.1:1")
    assert "s3cret" not in str(error.value)
    with pytest.raises(RedisUnusable, match="not valid"):
        connect(RedisConfig(), "http://localhost")


def test_beyond_loopback_a_password_is_required(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_is_local", lambda address: False)
    with EmbeddedRedis(short_folder, port=0) as running:
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
