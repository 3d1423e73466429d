"""Pushing dashboards to Grafana: a strict local server, written from its documented HTTP API."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner

from ops.commands.observe.dashboards import app
from ops.telemetry.dashboards.catalogue import DASHBOARDS
from ops.telemetry.dashboards.grafana import Grafana, GrafanaError
from ops.telemetry.dashboards.page import to_json

TOKEN = "glsa_right"


class Reply(Exception):
    def __init__(self, status: int, body: dict[str, Any]) -> None:
        self.status, self.body = status, body


class FakeGrafana(ThreadingHTTPServer):
    """Grafana's HTTP API as documented for version 10, folders and dashboards only; refuses anything else.

    https://grafana.com/docs/grafana/latest/developers/http_api/dashboard/ and .../folder/
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.folders: dict[str, dict[str, Any]] = {}
        self.dashboards: dict[str, dict[str, Any]] = {}
        self.token = TOKEN
        self.role = "Editor"
        self.prefix = ""

    def get_folder(self, uid: str) -> dict[str, Any]:
        if uid not in self.folders:
            raise Reply(404, {"message": "folder not found", "status": "not-found"})
        return self.folders[uid]

    def create_folder(self, body: dict[str, Any]) -> dict[str, Any]:
        self._writes(body, {"uid", "title", "parentUid"}, {"title"})
        if any(folder["title"] == body["title"] for folder in self.folders.values()):
            raise Reply(412, {"message": "a folder with the same name already exists"})
        uid = body["uid"]
        self.folders[uid] = {"id": len(self.folders) + 1, "uid": uid, "title": body["title"], "version": 1}
        return self.folders[uid]

    def get_dashboard(self, uid: str) -> dict[str, Any]:
        if uid not in self.dashboards:
            raise Reply(404, {"message": "Dashboard not found"})
        return self.dashboards[uid]

    def save(self, body: dict[str, Any]) -> dict[str, Any]:
        self._writes(body, {"dashboard", "folderUid", "message", "overwrite", "folderId"}, {"dashboard"})
        new = body["dashboard"]
        if not new.get("title"):
            raise Reply(400, {"message": "Dashboard title cannot be empty"})
        if len(new["uid"]) > 40:
            raise Reply(400, {"message": "uid too long, max 40 characters"})
        if body.get("folderUid", "") not in {"", *self.folders}:
            raise Reply(400, {"message": "folder not found"})
        old = self.dashboards.get(new["uid"])
        if old and not body.get("overwrite") and new.get("version") != old["dashboard"]["version"]:
            raise Reply(412, {"status": "version-mismatch", "message": "changed by someone else"})
        version = old["dashboard"]["version"] + 1 if old else 1
        kept = new | {"id": old["dashboard"]["id"] if old else len(self.dashboards) + 1, "version": version}
        address = f"/d/{new['uid']}/{re.sub(r'[^a-z0-9]+', '-', new['title'].lower())}"
        meta = {"folderUid": body.get("folderUid", ""), "url": address, "version": version}
        self.dashboards[new["uid"]] = {"dashboard": kept, "meta": meta}
        return {"id": kept["id"], "uid": new["uid"], "url": address, "status": "success", "version": version}

    def _writes(self, body: dict[str, Any], allowed: set[str], needed: set[str]) -> None:
        if self.role == "Viewer":
            raise Reply(403, {"message": "You'll need additional permissions to perform this action."})
        if set(body) - allowed or needed - set(body):
            raise Reply(400, {"message": f"bad request data: {sorted(body)}"})


class _Handler(BaseHTTPRequestHandler):
    server: FakeGrafana

    def do_GET(self) -> None:
        self._answer("GET", {})

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self._answer("POST", json.loads(self.rfile.read(length)))

    def _answer(self, method: str, body: dict[str, Any]) -> None:
        try:
            status, reply = 200, self._route(method, body)
        except Reply as refusal:
            status, reply = refusal.status, refusal.body
        text = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _route(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.headers.get("Authorization") != f"Bearer {self.server.token}":
            raise Reply(401, {"message": "Invalid API key"})
        path = self.path.removeprefix(self.server.prefix)
        last = path.rsplit("/", 1)[-1]
        match method, path.rsplit("/", 1)[0], path:
            case "POST", _, "/api/dashboards/db":
                return self.server.save(body)
            case "POST", _, "/api/folders":
                return self.server.create_folder(body)
            case "GET", "/api/dashboards/uid", _:
                return self.server.get_dashboard(last)
            case "GET", "/api/folders", _:
                return self.server.get_folder(last)
        raise Reply(404, {"message": f"not found: {method} {path}"})

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    server = FakeGrafana()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


DOCUMENTS = [to_json(dashboard) for dashboard in DASHBOARDS]


def changes(
    server: FakeGrafana, documents: list[dict[str, Any]] = DOCUMENTS, folder: str = "magicrl"
) -> list[str]:
    return [one.change for one in Grafana(server.url + server.prefix, TOKEN).push(documents, folder)]


def test_push_creates_and_a_second_push_changes_nothing(grafana: FakeGrafana) -> None:
    assert changes(grafana) == ["created"] * 4
    assert list(grafana.folders) == ["magicrl"]
    assert {entry["meta"]["folderUid"] for entry in grafana.dashboards.values()} == {"magicrl"}
    assert changes(grafana) == ["unchanged"] * 4
    assert {entry["dashboard"]["version"] for entry in grafana.dashboards.values()} == {1}


def test_push_updates_what_differs(grafana: FakeGrafana) -> None:
    changes(grafana)
    grafana.dashboards["magicrl-fleet"]["dashboard"]["title"] = "edited by hand"
    assert changes(grafana) == ["unchanged", "unchanged", "unchanged", "updated"]
    assert grafana.dashboards["magicrl-fleet"]["dashboard"]["title"] == "magicrl / Fleet"


def test_push_moves_a_dashboard_back_to_its_folder(grafana: FakeGrafana) -> None:
    changes(grafana)
    grafana.dashboards["magicrl-fleet"]["meta"]["folderUid"] = ""
    assert changes(grafana)[3] == "updated"


def test_push_below_a_path(grafana: FakeGrafana) -> None:
    grafana.prefix = "/grafana"
    assert changes(grafana) == ["created"] * 4


def test_the_error_of_a_wrong_token_names_the_fix(grafana: FakeGrafana) -> None:
    grafana.token = "another"
    with pytest.raises(GrafanaError, match="refused the token; make a service account token"):
        changes(grafana)


def test_a_viewer_may_not_write(grafana: FakeGrafana) -> None:
    grafana.role = "Viewer"
    with pytest.raises(GrafanaError, match="role Editor"):
        changes(grafana)


def test_the_server_s_refusal_is_in_the_error(grafana: FakeGrafana) -> None:
    with pytest.raises(GrafanaError, match=r"400.*title cannot be empty"):
        changes(grafana, [DOCUMENTS[0] | {"title": ""}])


def test_grafana_down(grafana: FakeGrafana) -> None:
    url = grafana.url
    grafana.shutdown()
    grafana.server_close()
    with pytest.raises(GrafanaError, match="cannot be reached"):
        Grafana(url, TOKEN).push(DOCUMENTS, "magicrl")


@pytest.mark.parametrize("url", ["grafana.example.org", "ftp://x", "http://"])
def test_an_invalid_address_is_refused(url: str) -> None:
    with pytest.raises(GrafanaError, match="must look like"):
        Grafana(url, TOKEN)


def test_the_command_pushes_and_reports(grafana: FakeGrafana) -> None:
    result = CliRunner().invoke(app, ["push", "--url", grafana.url], env={"GRAFANA_TOKEN": TOKEN})
    assert result.exit_code == 0, result.output
    assert result.output.count("created") == 4
    assert f"{grafana.url}/d/magicrl-overview" in result.output
    refused = CliRunner().invoke(app, ["push", "--url", grafana.url, "--token", "wrong"])
    assert refused.exit_code == 2
