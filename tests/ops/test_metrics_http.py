"""The HTTP server of metrics: formats, who may read, and TLS."""

from __future__ import annotations

import socket
import ssl
import subprocess
import urllib.error
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Gauge

from helpers.scrape import get
from ops.telemetry.metrics.http import MetricsServer, is_loopback


@pytest.fixture
def registry() -> CollectorRegistry:
    registry = CollectorRegistry()
    Gauge("magicrl_test_gauge", "A gauge.", registry=registry).set(7)
    return registry


def test_names_are_served_as_they_are(registry: CollectorRegistry) -> None:
    """Prometheus before 3 asks for OpenMetrics, and the client library then writes vllm_x for vllm:x."""
    Gauge("vllm:num_requests_running", "As vLLM names it.", registry=registry).set(1)
    served = MetricsServer("127.0.0.1", 0, registry=registry)
    accept = "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4;q=0.5"
    assert "\nvllm:num_requests_running 1.0" in get(f"http://{served.address}/metrics", Accept=accept)[1]
    served.close()


def test_metrics_are_served(registry: CollectorRegistry) -> None:
    served = MetricsServer("127.0.0.1", 0, registry=registry)
    kind, text = get(f"http://{served.address}/metrics")
    assert kind.startswith("text/plain")
    assert "magicrl_test_gauge 7.0" in text
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(f"http://{served.address}/secrets")
    served.close()


def test_a_token_is_asked_for(registry: CollectorRegistry) -> None:
    served = MetricsServer("127.0.0.1", 0, token="right", registry=registry, targets=list)
    for path in ("/metrics", "/targets"):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"http://{served.address}{path}", Authorization="Bearer wrong")
        assert get(f"http://{served.address}{path}", Authorization="Bearer right")
    served.close()


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.3.4", "example.org"])
def test_beyond_loopback_only_with_a_key(host: str) -> None:
    assert not is_loopback(host)
    with pytest.raises(ValueError, match=r"metrics\.token_file or metrics\.certificate"):
        MetricsServer(host, 0)


def test_metrics_over_tls_beside_a_client_that_is_silent(registry: CollectorRegistry, tmp_path: Path) -> None:
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1"
    command += f" -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1 -keyout {key} -out {certificate}"
    subprocess.run(command.split(), check=True, capture_output=True, timeout=30)
    served = MetricsServer("127.0.0.1", 0, certificate=certificate, key=key, registry=registry)
    trusting = ssl.create_default_context(cafile=str(certificate))
    with socket.create_connection(("127.0.0.1", served.port)):  # sends nothing, and blocks nobody
        assert "magicrl_test_gauge" in get(f"https://{served.address}/metrics", context=trusting)[1]
    served.close()


def test_a_taken_port_is_an_error(registry: CollectorRegistry) -> None:
    served = MetricsServer("127.0.0.1", 0, registry=registry)
    with pytest.raises(OSError, match="in use"):
        MetricsServer("127.0.0.1", served.port)
    served.close()
