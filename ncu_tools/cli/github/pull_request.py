"""One comment on a pull request, made once and then updated in place, through GitHub's REST API.

The token is read from the environment, sent to the API's own host alone, and never printed.
"""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any

from ncu_launch.errors import NcuBenchError

from ncu_tools.cli.github.annotations import run_link

MARKER = "<!-- ncu-bench: {name} -->"
"""The first line of our comment; `name` distinguishes the comments of several gates."""
MOST_CHARACTERS = 65_536
"""Most characters that GitHub accepts; longer bodies are refused with 422."""
SECONDS = 30
PER_PAGE = 100
MOST_PAGES = 30
TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
NAME = "NCU_BENCH_COMMENT"
"""Environment variable that names the comment, for workflows with several gates."""


def comment_on_pull_request(text: str) -> str | None:
    """Make the comment, or update the one made before; returns its address, None in a job for no pull request.

    Raises `NcuBenchError` if GitHub refuses or cannot be reached.
    """
    token = next((found for name in TOKENS if (found := os.environ.get(name))), None)
    repository, number = os.environ.get("GITHUB_REPOSITORY"), _number()
    if not repository or number is None:
        return None
    if token is None:
        raise NcuBenchError(
            "The pull request was not commented on: there is no token.",
            f"It is read from {TOKENS[0]}.",
            "Add to the step: env: {GITHUB_TOKEN: ${{ github.token }}}",
        )
    marker = MARKER.format(name="".join(filter(str.isprintable, os.environ.get(NAME, "gates"))).replace("-->", ""))
    body = {"body": fitted(f"{marker}\n{text}")}
    api = GitHub(os.environ.get("GITHUB_API_URL", "https://api.github.com"), token)
    before = _ours(api, f"/repos/{repository}/issues/{number}/comments", marker)
    if before is None:
        made = api.ask("POST", f"/repos/{repository}/issues/{number}/comments", body)
    else:
        made = api.ask("PATCH", f"/repos/{repository}/issues/comments/{before}", body)
    return str(made.get("html_url", ""))


def _number() -> int | None:
    """The number of the pull request, from the event of the job; None for another event."""
    try:
        event = json.loads(Path(os.environ["GITHUB_EVENT_PATH"]).read_text("utf-8"))
        return int(event["pull_request"]["number"])
    except (KeyError, OSError, TypeError, ValueError):
        return None


def fitted(body: str) -> str:
    """The body, cut at a line's end if it is too long, with a link to the run, which has all of it."""
    if len(body) <= MOST_CHARACTERS:
        return body
    link = run_link()
    where = f"the [summary and the artefacts of the run]({link})" if link else "the summary of the job"
    end = f"\n\n…\n\n</details>\n\nCut: it is too long for a comment. All of it is in {where}."
    head = body[: MOST_CHARACTERS - len(end)]
    head = head[: head.rfind("\n")]
    is_folded = head.count("<details>") > head.count("</details>")
    return head + (end if is_folded else end.replace("</details>\n\n", ""))


def _ours(api: GitHub, comments: str, marker: str) -> int | None:
    """The id of our comment: with the marker, and by the owner of the token, so that nobody else can forge it."""
    me = api.login()
    for page in range(1, MOST_PAGES + 1):
        found = api.ask("GET", f"{comments}?per_page={PER_PAGE}&page={page}")
        for one in found:
            author = one.get("user") or {}
            is_mine = author.get("login") == me if me is not None else author.get("type") == "Bot"
            if is_mine and str(one.get("body", "")).startswith(marker):
                return int(one["id"])
        if len(found) < PER_PAGE:
            return None
    return None


class GitHub:
    """GitHub's REST API at an address, for the owner of a token."""

    def __init__(self, address: str, token: str) -> None:
        self._address = address.rstrip("/")
        self._token = token
        self._opener = urllib.request.build_opener(_StaysHere)

    def login(self) -> str | None:
        """The name of the token's owner; None for the token of a job, which owns no account."""
        try:
            return str(self.ask("GET", "/user")["login"])
        except NcuBenchError:
            return None

    def ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        """The JSON answer to a request. Raises `NcuBenchError`, which names a missing permission."""
        request = urllib.request.Request(  # noqa: S310  the address is the one that the job gives
            self._address + path, method=method, data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": f"Bearer {self._token}", "Accept": "application/vnd.github+json",
                "X-GitHub-Api-Version": "2022-11-28", "User-Agent": "ncu-bench", "Content-Type": "application/json",
            },
        )  # fmt: skip
        try:
            with self._opener.open(request, timeout=SECONDS) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise _refusal(error) from None  # the request contains the token
        except (OSError, ValueError) as error:
            raise NcuBenchError(
                "The pull request was not commented on: GitHub could not be reached.", f"{error}.",
                "Run the job again; the gates stand as they are.",
            ) from None  # fmt: skip


def _refusal(error: urllib.error.HTTPError) -> NcuBenchError:
    what = f"The pull request was not commented on: GitHub answered {error.code} {error.reason}."
    if error.code in (401, 403, 404):
        return NcuBenchError(
            what, "The token may not write comments; on pull requests from forks it never may.",
            "Add to the workflow: permissions: {contents: read, pull-requests: write}",
        )  # fmt: skip
    return NcuBenchError(what, f"{_message(error)}.", "Run the job again; the gates stand as they are.")


def _message(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.loads(error.read(10_000))["message"])
    except (OSError, ValueError, KeyError, TypeError):
        return "It said nothing more"


class _StaysHere(urllib.request.HTTPRedirectHandler):
    """Follows no redirect, which would send the token to another host."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> urllib.request.Request | None:
        return None
