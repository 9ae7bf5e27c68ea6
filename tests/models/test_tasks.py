"""Prefixes of texts by task: every name of the models' tables, titles, names that are none."""

from __future__ import annotations

import pytest

from ferro.models import tasks
from ferro.models.tasks import NoSuchTask, task

NEW, OLD = "gemma-embedding2", "gemma-embedding"
TABLE = {
    "task: search result | query: ": (
        "query SearchQuery Retrieval Retrieval-query Reranking BitextMining"
    ),
    "title: none | text: ": "document Document Retrieval-document",
    "task: question answering | query: ": "QuestionAnswering",
    "task: fact checking | query: ": "FactChecking",
    "task: code retrieval | query: ": "CodeRetrieval InstructionRetrieval",
    "task: classification | query: ": "Classification MultilabelClassification",
    "task: clustering | query: ": "Clustering",
    "task: sentence similarity | query: ": "STS SentenceSimilarity PairClassification",
}


@pytest.mark.parametrize("architecture", [NEW, OLD])
@pytest.mark.parametrize(("prefix", "names"), TABLE.items())
def test_every_name_has_its_prefix(architecture: str, prefix: str, names: str) -> None:
    for name in names.split():
        assert task(architecture, name).text("a {title} b") == prefix + "a {title} b"


def test_summaries_differ_between_the_models() -> None:
    assert task(OLD, "Summarization").prefix == "task: summarization | query: "
    assert task(NEW, "Summarization").prefix == "task: sentence similarity | query: "


def test_names_are_read_without_regard_to_case_and_hyphens() -> None:
    found = task(NEW, "QuestionAnswering")
    assert task(NEW, "question-answering") is task(NEW, "QUESTION_ANSWERING") is found


@pytest.mark.parametrize("architecture", [NEW, OLD])
def test_no_two_tasks_share_a_name(architecture: str) -> None:
    for each in tasks.named(architecture):
        for name in (each.name, *each.other):
            assert task(architecture, name) is each


def test_no_task_changes_nothing() -> None:
    assert task(NEW, None).text("x") == task(NEW, "none").text("x") == "x"
    assert task("unheard of", None).text("x") == "x"


def test_titles() -> None:
    assert task(NEW, "document").text("b", title="a | {title}") == "title: a | {title} | text: b"
    with pytest.raises(NoSuchTask, match="the task `query` have no title"):
        task(NEW, "query").text("b", title="a")


@pytest.mark.parametrize(
    ("architecture", "name", "said"),
    [
        (NEW, "querry", "no task `querry`; did you mean `query`\\? \\(known: none, query, doc"),
        (NEW, "zzz", "no task `zzz` \\(known: none"),
        (NEW, "", "no task ``"),
        ("unheard of", "query", "no task `query` \\(known: none\\)"),
    ],
)
def test_names_that_are_none(architecture: str, name: str, said: str) -> None:
    with pytest.raises(NoSuchTask, match=said) as caught:
        task(architecture, name)
    assert caught.value.exit_code == 2
