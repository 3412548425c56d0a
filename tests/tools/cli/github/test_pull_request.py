"""The comment on a pull request, made and updated at a stand-in for GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from ncu_launch.errors import NcuBenchError

from ncu_tools.cli.github.pull_request import comment_on_pull_request, fitted
from tests.support.stand_in_github import BOT, LONGEST, TOKEN, StandIn, github


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    event = tmp_path / "event.json"
    event.write_text(json.dumps({"pull_request": {"number": 7}}), "utf-8")
    with github() as stand_in:
        for name, value in {
            "GITHUB_API_URL": stand_in.address, "GITHUB_TOKEN": TOKEN, "GITHUB_REPOSITORY": "o/r",
            "GITHUB_EVENT_PATH": str(event), "GITHUB_RUN_ID": "42", "GITHUB_SERVER_URL": "https://github.com",
        }.items():  # fmt: skip
            monkeypatch.setenv(name, value)
        yield stand_in


def test_is_made_once_and_then_updated_in_place(api: StandIn) -> None:
    assert comment_on_pull_request("first") == "https://example.org/c"
    comment_on_pull_request("second")
    assert [one["body"] for one in api.comments] == ["<!-- ncu-bench: gates -->\nsecond"]


def test_of_another_name_is_another_comment(api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    comment_on_pull_request("of one gate")
    monkeypatch.setenv("NCU_BENCH_COMMENT", "h100 --> <b>")
    comment_on_pull_request("of another")
    assert [one["body"].split("\n")[0] for one in api.comments] == [
        "<!-- ncu-bench: gates -->",
        "<!-- ncu-bench: h100  <b> -->",
    ]


def test_is_found_behind_a_hundred_others(api: StandIn) -> None:
    api.comments += [{"id": at + 1, "user": BOT, "body": "something else"} for at in range(130)]
    comment_on_pull_request("first")
    comment_on_pull_request("second")
    assert len(api.comments) == 131


def test_with_the_marker_by_somebody_else_is_left_alone(api: StandIn) -> None:
    forged = {"id": 1, "user": {"login": "mallory", "type": "User"}, "body": "<!-- ncu-bench: gates -->\nall is well"}
    api.comments.append(forged)
    comment_on_pull_request("slower")
    assert [one["body"].split("\n")[1] for one in api.comments] == ["all is well", "slower"]


def test_that_may_not_be_written_says_what_to_add_to_the_workflow(api: StandIn) -> None:
    api.refuses = 403
    with pytest.raises(NcuBenchError, match=r"permissions: \{contents: read, pull-requests: write\}") as error:
        comment_on_pull_request("first")
    assert TOKEN not in error.value.paragraph


def test_that_github_refuses_otherwise_says_what_github_said(api: StandIn) -> None:
    api.refuses = 500
    with pytest.raises(NcuBenchError, match="Resource not accessible"):
        comment_on_pull_request("first")


def test_does_not_follow_a_redirection_with_the_token(api: StandIn) -> None:
    with github() as elsewhere:
        api.redirects_to = elsewhere.address + "/user"
        with pytest.raises(NcuBenchError, match="307"):
            comment_on_pull_request("first")
        assert elsewhere.asked == []


def test_that_is_too_long_is_cut_with_a_link_to_the_run(api: StandIn) -> None:
    comment_on_pull_request("<details><summary>all</summary>\n\n" + "a line\n" * 20_000 + "</details>")
    (made,) = api.comments
    assert len(made["body"]) <= LONGEST
    assert made["body"].count("<details>") == made["body"].count("</details>") == 1
    assert made["body"].endswith(
        "in the [summary and the artefacts of the run](https://github.com/o/r/actions/runs/42)."
    )


def test_outside_of_a_pull_request_is_not_made(api: StandIn, tmp_path: Path) -> None:
    (tmp_path / "event.json").write_text('{"pusher": {}}', "utf-8")
    assert comment_on_pull_request("first") is None
    assert api.asked == []


def test_without_a_token_says_where_it_is_read_from(api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GITHUB_TOKEN")
    with pytest.raises(NcuBenchError, match="GITHUB_TOKEN"):
        comment_on_pull_request("first")


def test_where_github_is_not_reached_says_so(api: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_API_URL", "http://127.0.0.1:9")
    with pytest.raises(NcuBenchError, match="could not be reached"):
        comment_on_pull_request("first")


def test_that_fits_is_not_cut() -> None:
    assert fitted("x" * LONGEST) == "x" * LONGEST
