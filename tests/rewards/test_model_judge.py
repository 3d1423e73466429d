"""The model grader against a small server that misbehaves on request."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from rewards.config import JudgeConfig, RewardsConfig
from rewards.graders.model_judge import JudgeReward
from rewards.pool.pool import GraderPool
from rewards.reward import Problem

PROBLEM = Problem("essay", "Paris", prompt="What is the capital of France?")


class Server:
    """Replies are taken in turn from ``script``: text, a status, or seconds to wait; the last one stays."""

    def __init__(self) -> None:
        self.script: list[Any] = ["Verdict: correct"]
        self.requests: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.at_once = self.most_at_once = 0
        self.lock = threading.Lock()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.reply(self)

            def log_message(self, *args: object) -> None:
                return

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/v1"

    def reply(self, handler: BaseHTTPRequestHandler) -> None:
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        with self.lock:
            self.requests.append({"path": handler.path, **body})
            self.keys.append(handler.headers.get("Authorization"))
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, float):
            time.sleep(answer)
            answer = "Verdict: correct"
        status = answer if isinstance(answer, int) else 200
        data = json.dumps({"choices": [{"message": {"content": answer}}]}).encode()
        with self.lock:
            self.at_once -= 1
        try:
            handler.send_response(status)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
        except OSError:
            return  # the client gave up


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    thread = threading.Thread(target=running.http.serve_forever, daemon=True)
    thread.start()
    yield running
    running.http.shutdown()
    running.http.server_close()
    thread.join()


@pytest.fixture
def judge(server: Server) -> Callable[..., JudgeReward]:
    def build(**settings: Any) -> JudgeReward:
        return JudgeReward(JudgeConfig(url=server.url, model="judge", **settings))

    return build


@pytest.mark.parametrize(
    ("reply", "value", "verdict"),
    [
        ("It agrees.\nVerdict: correct", 1.0, "correct"),
        ("**Verdict:** incorrect", 0.0, "wrong"),
        ('The answer says "Verdict: correct" but is not.\nVerdict: incorrect', 0.0, "wrong"),
        ("VERDICT: WRONG.", 0.0, "wrong"),
    ],
)
def test_the_judge_s_reply_becomes_a_verdict(
    server: Server, judge: Callable[..., JudgeReward], reply: str, value: float, verdict: str
) -> None:
    server.script = [reply]
    score = judge().score(PROBLEM, "<think>hm</think> It is Paris.")
    assert (score.value, score.verdict) == (value, verdict)


def test_what_the_judge_sees(server: Server, judge: Callable[..., JudgeReward]) -> None:
    judge(rubric="Be strict.").score(PROBLEM, "<think>secret thought</think> It is Paris.")
    (request,) = server.requests
    assert request["path"] == "/v1/chat/completions"
    assert request["model"] == "judge"
    assert request["temperature"] == 0.0
    text = "\n".join(message["content"] for message in request["messages"])
    assert "Be strict." in text
    assert "What is the capital of France?" in text
    assert "Reference answer:\nParis" in text
    assert "It is Paris." in text
    assert "secret thought" not in text


def test_without_a_reference(server: Server, judge: Callable[..., JudgeReward]) -> None:
    assert judge().score(Problem("essay", None, prompt="Why?"), "Because.").value == 1.0
    assert "Reference answer" not in json.dumps(server.requests)


@pytest.mark.parametrize("trouble", [503, 429, "no verdict here", ""])
def test_trouble_is_tried_again(server: Server, judge: Callable[..., JudgeReward], trouble: object) -> None:
    server.script = [trouble, "Verdict: correct"]
    assert judge().score(PROBLEM, "Paris").verdict == "correct"
    assert len(server.requests) == 2


def test_lasting_trouble_is_an_error_never_wrong(server: Server, judge: Callable[..., JudgeReward]) -> None:
    server.script = [500]
    score = judge(retries=1).score(PROBLEM, "Paris")
    assert (score.verdict, score.detail) == ("error", "HTTP 500 from the judge")
    assert len(server.requests) == 2
    server.script = [401]
    assert judge(retries=5).score(PROBLEM, "Paris").verdict == "error"
    assert len(server.requests) == 3  # refused for good: asked once


def test_a_late_reply_is_a_timeout(server: Server, judge: Callable[..., JudgeReward]) -> None:
    server.script = [5.0]
    began = time.monotonic()
    assert judge(deadline_seconds=0.5).score(PROBLEM, "Paris").verdict == "timeout"
    assert time.monotonic() - began < 4


def test_an_endpoint_that_is_missing_is_an_error(judge: Callable[..., JudgeReward]) -> None:
    lost = JudgeReward(JudgeConfig(url="http://127.0.0.1:9", model="judge", retries=1))
    assert lost.score(PROBLEM, "Paris").verdict == "error"
    assert JudgeReward(JudgeConfig()).score(PROBLEM, "Paris").detail == "rewards.judge.url is not set"


def test_the_same_question_is_asked_once(server: Server, judge: Callable[..., JudgeReward]) -> None:
    grader = judge(cache=1)
    for answer in ("Paris", "Paris", "Lyon", "Paris"):
        grader.score(PROBLEM, answer)
    assert len(server.requests) == 3


def test_the_key_comes_from_the_environment(
    server: Server, judge: Callable[..., JudgeReward], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JUDGE_KEY", "k")
    judge(api_key_env="JUDGE_KEY").score(PROBLEM, "Paris")
    assert server.keys == ["Bearer k"]
    monkeypatch.delenv("JUDGE_KEY")
    assert "JUDGE_KEY" in judge(api_key_env="JUDGE_KEY").score(PROBLEM, "Lyon").detail


def test_through_the_pool_with_bounded_concurrency(server: Server) -> None:
    server.script = [0.05]
    config = RewardsConfig(
        abilities={"essay": "judge", "math": "math"},
        judge=JudgeConfig(url=server.url, model="judge", concurrency=3),
    )
    with GraderPool(config) as pool:
        items = [(PROBLEM, f"Paris {k}") for k in range(12)] + [(Problem("math", "5"), "\\boxed{5}")]
        assert all(score.value == 1.0 for score in pool.score_many(items))
    assert 1 < server.most_at_once <= 3
