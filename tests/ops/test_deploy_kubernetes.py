"""The Kubernetes files, checked by the schemas of Kubernetes and its operators, and by promtool."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from helpers.promtool import needs_promtool, run_promtool
from helpers.running import REPOSITORY
from ops.config.loader import load_config

KUBERNETES = sorted((REPOSITORY / "ops/deploy/kubernetes").glob("*.yaml"))


def documents() -> list[dict[str, Any]]:
    return [document for path in KUBERNETES for document in yaml.safe_load_all(path.read_text())]


def one(kind: str, name: str) -> dict[str, Any]:
    (found,) = [d for d in documents() if (d["kind"], d["metadata"]["name"]) == (kind, name)]
    return found


def identity(document: dict[str, Any]) -> str:
    return f"{document['kind']}-{document['metadata']['name']}"


CORE = [document for document in documents() if "ray.io" not in document["apiVersion"] + document["kind"]
        and not document["apiVersion"].startswith("keda.sh")]  # fmt: skip


@pytest.mark.parametrize("document", CORE, ids=identity)
def test_kubernetes_accepts(document: dict[str, Any]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    kubernetes_validate.validate(document, "1.31", strict=True)


def pods() -> Iterator[tuple[str, dict[str, Any]]]:
    cluster = one("RayCluster", "magicrl")["spec"]
    yield "head", cluster["headGroupSpec"]["template"]
    for group in cluster["workerGroupSpecs"]:
        yield group["groupName"], group["template"]
    for document in documents():
        if document["kind"] in ("Deployment", "StatefulSet"):
            yield identity(document), document["spec"]["template"]


PODS = list(pods())


@pytest.mark.parametrize(("name", "template"), PODS, ids=[name for name, _ in PODS])
def test_every_pod_is_one_and_mounts_what_it_has(name: str, template: dict[str, Any]) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], "name": "pod"}}
    kubernetes_validate.validate(pod | {"spec": template["spec"]}, "1.31", strict=True)
    volumes = {volume["name"] for volume in template["spec"].get("volumes", [])}
    for container in template["spec"]["containers"]:
        mounted = {mount["name"] for mount in container.get("volumeMounts", [])}
        assert mounted - volumes <= {"data"}, "data comes from a claim template"
        assert "memory" in container["resources"]["limits"]


TEXT = {"type": "string"}
COUNT = {"type": "integer", "minimum": 0}


def strict(required: str, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


def list_of(schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "array", "items": schema, "minItems": 1}


PARAMETERS = {"type": "object", "additionalProperties": TEXT}
TEMPLATE = strict("spec", metadata={"type": "object"}, spec={"type": "object"})
# https://prometheus.io/docs/prometheus/latest/configuration/configuration/#kubernetes_sd_config
DISCOVERY = strict(
    "role", role={"enum": ["pod"]}, namespaces=strict("own_namespace", own_namespace={"const": True})
)
# What the operators' reference documents of the fields used here:
# https://ray-project.github.io/kuberay/reference/api/ and https://keda.sh/docs/latest/reference/scaledobject-spec/
SCHEMAS = {
    "RayCluster": strict(
        "headGroupSpec",
        rayVersion=TEXT,
        enableInTreeAutoscaling={"type": "boolean"},
        authOptions=strict("mode", mode={"enum": ["disabled", "token"]}),
        headGroupSpec=strict("template", rayStartParams=PARAMETERS, template=TEMPLATE, serviceType=TEXT),
        workerGroupSpecs=list_of(
            strict(
                "groupName template",
                groupName=TEXT,
                replicas=COUNT,
                minReplicas=COUNT,
                maxReplicas=COUNT,
                rayStartParams=PARAMETERS,
                template=TEMPLATE,
            )
        ),
    ),
    "RayJob": strict("entrypoint", entrypoint=TEXT, clusterSelector=PARAMETERS, backoffLimit=COUNT),
    "ScaledObject": strict(
        "scaleTargetRef triggers",
        scaleTargetRef=strict("name", name=TEXT, kind=TEXT, apiVersion=TEXT),
        minReplicaCount=COUNT,
        maxReplicaCount=COUNT,
        pollingInterval=COUNT,
        cooldownPeriod=COUNT,
        advanced={"type": "object"},
        triggers=list_of(
            strict(
                "type metadata",
                type={"const": "prometheus"},
                metricType={"enum": ["AverageValue", "Value"]},
                metadata=strict(
                    "serverAddress query threshold", serverAddress=TEXT, query=TEXT, threshold=TEXT
                ),
            )
        ),
    ),
}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_operators_accept(kind: str) -> None:
    for document in (document for document in documents() if document["kind"] == kind):
        assert document["apiVersion"] in ("ray.io/v1", "keda.sh/v1alpha1")
        jsonschema.validate(document["spec"], SCHEMAS[kind])


def test_generators_scale_apart_from_the_learner() -> None:
    spec = one("RayCluster", "magicrl")["spec"]
    groups = {group["groupName"]: group for group in spec["workerGroupSpecs"]}
    assert spec["enableInTreeAutoscaling"] is False
    assert groups["learner"]["minReplicas"] == groups["learner"]["maxReplicas"]
    assert groups["generator"]["maxReplicas"] > groups["generator"]["replicas"]
    assert json.loads(json.loads(groups["generator"]["rayStartParams"]["resources"])) == {"generator": 1}
    assert json.loads(json.loads(groups["learner"]["rayStartParams"]["resources"])) == {"learner": 8}
    assert spec["authOptions"]["mode"] == "token"


def test_the_generators_are_started_with_options_that_exist() -> None:
    from typer.main import get_command

    from ops.commands.jobs.generator import app

    container = one("Deployment", "magicrl-generators")["spec"]["template"]["spec"]["containers"][0]
    command, *options = container["args"]
    assert command == "generator"
    context = get_command(app).make_context("generator", options)
    assert context.params["run"] == "math"
    # Beyond loopback, with the token that Prometheus sends: else the ScaledObject below has nothing to go by.
    assert context.params["metrics_host"] == "0.0.0.0"
    config = yaml.safe_load(one("ConfigMap", "magicrl-prometheus")["data"]["prometheus.yml"])
    sent = config["scrape_configs"][0]["authorization"]["credentials_file"]
    assert str(context.params["metrics_token_file"]) == sent
    assert "/etc/magicrl/metrics" in {mount["mountPath"] for mount in container["volumeMounts"]}


def test_the_scaled_object_scales_the_deployment() -> None:
    target = one("ScaledObject", "magicrl-generators")["spec"]["scaleTargetRef"]["name"]
    deployment = one("Deployment", target)
    grace = deployment["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace > load_config("quickstart").actors.drain_seconds


@needs_promtool
@pytest.mark.parametrize(
    ("waits", "held_back", "wanted"), [(0.5, 0.0, 6), (0.0, 0.0, 4), (0.0, 0.5, 2), (None, None, 1)]
)
def test_more_generators_while_the_learner_waits_fewer_while_they_do(
    waits: float | None, held_back: float | None, wanted: float, tmp_path: Path
) -> None:
    """Four generators; the shares of time in which the learner waits, and in which admission blocks them."""
    query = one("ScaledObject", "magicrl-generators")["spec"]["triggers"][0]["metadata"]["query"]
    series = {'magicrl_learner_wait_seconds_total{run="math"}': f"0+{60 * (waits or 0):g}x20"}
    for actor in range(4) if held_back is not None else ():
        labels = f'run="math",actor="{actor}",instance="generator-{actor}"'
        series[f"magicrl_gen_weights_version{{{labels}}}"] = "0+1x20"
        series[f'magicrl_gen_idle_seconds_total{{{labels},cause="backpressure"}}'] = (
            f"0+{60 * held_back:g}x20"
        )
    case = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {"expr": query, "eval_time": "20m", "exp_samples": [{"labels": "{}", "value": wanted}]}
        ],
    }
    path = tmp_path / "case.yml"
    path.write_text(yaml.safe_dump({"evaluation_interval": "1m", "tests": [case]}))
    run_promtool("test", "rules", str(path))


@needs_promtool
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    path = tmp_path / "prometheus.yml"
    config = yaml.safe_load(one("ConfigMap", "magicrl-prometheus")["data"]["prometheus.yml"])
    for job in config["scrape_configs"]:  # Debian builds Prometheus without Kubernetes discovery
        discovery = job.pop("kubernetes_sd_configs", [])
        jsonschema.validate(discovery, {"type": "array", "items": DISCOVERY})
    path.write_text(yaml.safe_dump(config))
    run_promtool("check", "config", "--syntax-only", str(path))


def test_the_job_starts_a_run_with_settings_that_exist() -> None:
    command, config, *rest = shlex.split(one("RayJob", "magicrl-train")["spec"]["entrypoint"])[1:]
    assert command == "train"
    assert config == "/etc/magicrl/run/config.yaml"
    overrides = [argument for argument in rest if not argument.startswith("--")]
    loaded = load_config("quickstart", overrides)
    assert loaded.metrics.port == one("Service", "magicrl-driver")["spec"]["ports"][0]["port"]
    assert (loaded.actors.resources, loaded.learner.resources) == ({"generator": 1}, {"learner": 1})
    assert "--resume=auto" in rest
