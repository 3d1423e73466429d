"""Push dashboards to a Grafana server. No other module uses the grafana-api package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

import requests
from grafana_api.grafana_api import GrafanaClientError, GrafanaException, GrafanaUnauthorizedError
from grafana_api.grafana_face import GrafanaFace

TIMEOUT_SECONDS = 10.0
NOT_FOUND = 404
FORBIDDEN = 403

Change = Literal["created", "updated", "unchanged"]


class GrafanaError(Exception):
    """The server refused or cannot be reached; the message names the fix."""


@dataclass(frozen=True, slots=True)
class Pushed:
    """The change of one dashboard on the server, and its address there."""

    title: str
    change: Change
    url: str


class Grafana:
    """One Grafana server. Every call has a deadline of ten seconds. Raises GrafanaError."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise GrafanaError(f"--url {url!r}: must look like https://grafana.example.org:3000")
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        path = parts.path.strip("/")
        self._url = f"{parts.scheme}://{parts.netloc}"
        self._api = GrafanaFace(
            auth=token,
            host=host,
            port=parts.port,
            url_path_prefix=f"{path}/" if path else "",
            protocol=parts.scheme,
            timeout=TIMEOUT_SECONDS,
        )

    def push(self, dashboards: Sequence[dict[str, Any]], folder: str) -> list[Pushed]:
        """Create or update the dashboards in the folder with this uid; equal ones are left alone."""
        try:
            self._ensure_folder(folder)
            return [self._push_one(document, folder) for document in dashboards]
        except (GrafanaException, requests.RequestException) as error:
            raise GrafanaError(self._explain(error)) from None

    def _ensure_folder(self, folder: str) -> None:
        try:
            self._api.folder.get_folder(folder)
        except GrafanaClientError as error:
            if error.status_code != NOT_FOUND:
                raise
            self._api.folder.create_folder(title=folder, uid=folder)

    def _push_one(self, document: dict[str, Any], folder: str) -> Pushed:
        current = self._find(document["uid"])
        if current and current["meta"].get("folderUid") == folder and _same(current["dashboard"], document):
            return Pushed(document["title"], "unchanged", self._url + current["meta"]["url"])
        body = {
            "dashboard": document | {"id": None},
            "folderUid": folder,
            "overwrite": True,
            "message": "magicrl",
        }
        reply = self._api.dashboard.update_dashboard(body)
        return Pushed(document["title"], "updated" if current else "created", self._url + reply["url"])

    def _find(self, uid: str) -> dict[str, Any] | None:
        try:
            found: dict[str, Any] = self._api.dashboard.get_dashboard(uid)
        except GrafanaClientError as error:
            if error.status_code == NOT_FOUND:
                return None
            raise
        return found

    def _explain(self, error: Exception) -> str:
        if isinstance(error, GrafanaUnauthorizedError):
            return f"{self._url} refused the token; make a service account token with the role Editor"
        if isinstance(error, GrafanaException) and error.status_code == FORBIDDEN:
            return f"{self._url}: the token may not write folders and dashboards; give it the role Editor"
        if isinstance(error, GrafanaException):
            return f"{self._url} answered {error.status_code}: {error.message}"
        if isinstance(error, requests.JSONDecodeError):
            return f"{self._url} answers, but not as Grafana; check the address"
        if isinstance(error, requests.Timeout):
            return f"{self._url} did not answer within {TIMEOUT_SECONDS:g} s"
        return f"{self._url} cannot be reached; is Grafana running there?"


def _same(theirs: dict[str, Any], ours: dict[str, Any]) -> bool:
    """Return whether the server has our document; it adds keys of its own (id, version)."""
    return all(theirs.get(key) == value for key, value in ours.items())
