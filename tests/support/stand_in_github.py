"""A stand-in for GitHub's REST API: comments of one pull request, held in memory by a server of this process."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "a-token-that-nothing-may-print"  # noqa: S105
LONGEST = 65_536
BOT = {"login": "github-actions[bot]", "type": "Bot"}


class StandIn:
    """The comments of pull request 7 of o/r, newest last, and what was asked for. `refuses` is a code for all writing."""

    def __init__(self) -> None:
        self.comments: list[dict[str, Any]] = []
        self.asked: list[str] = []
        self.refuses = 0
        self.redirects_to = ""
        self.address = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        self.asked.append(f"{method} {path}")
        if path == "/user":
            return 403, {"message": "Resource not accessible by integration"}
        if method == "GET" and (found := re.fullmatch(r"/repos/o/r/issues/7/comments\?per_page=100&page=(\d+)", path)):
            first = (int(found[1]) - 1) * 100
            return 200, self.comments[first : first + 100]
        if self.refuses:
            return self.refuses, {"message": "Resource not accessible by integration"}
        if len(body["body"]) > LONGEST:
            return 422, {"message": "Validation Failed: body is too long"}
        if method == "POST" and path == "/repos/o/r/issues/7/comments":
            self.comments.append(
                {"id": len(self.comments) + 1, "user": BOT, "html_url": "https://example.org/c", **body}
            )
            return 201, self.comments[-1]
        found = re.fullmatch(r"/repos/o/r/issues/comments/(\d+)", path)
        assert method == "PATCH"
        assert found is not None
        self.comments[int(found[1]) - 1].update(body)
        return 200, self.comments[int(found[1]) - 1]


@contextmanager
def github() -> Iterator[StandIn]:
    """A stand-in that listens at its `address` within the block."""
    stand_in = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            assert self.headers["Authorization"] == f"Bearer {TOKEN}"
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            if stand_in.redirects_to:
                self.send_response(307)
                self.send_header("Location", stand_in.redirects_to)
                self.end_headers()
                return
            code, answer = stand_in.answer(self.command, self.path, body)
            self.send_response(code)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        do_GET = do_POST = do_PATCH = _answer  # noqa: N815  names that the library calls

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    stand_in.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield stand_in
    finally:
        server.shutdown()
        server.server_close()
