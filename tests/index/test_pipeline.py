"""Preparing batches ahead, with and without parsing processes (spec 01 §14.2)."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from maadd_worker.index import parsing_pool, pipeline
from maadd_worker.index.full_pass import index_all
from maadd_worker.index.pipeline import Pipeline
from maadd_worker.index.prepare import FileTask, Limits, prepare_files

EXIT_TIMEOUT_S = 20


@pytest.fixture(autouse=True)
def _processes_for_everything(monkeypatch):
    monkeypatch.setattr(pipeline, "_WORTH_A_PROCESS", 1)
    monkeypatch.setattr(parsing_pool, "_MOST", 1)
    monkeypatch.setattr(pipeline, "useful_processes", lambda: 1)
    monkeypatch.setattr("maadd_worker.index.full_pass._BATCH_FILES", 3)


@pytest.fixture
def made(project) -> Iterator[Pipeline]:
    settings = project.settings
    limits = Limits(settings.max_doc_bytes, settings.max_doc_annotations)
    one = Pipeline(project.root, project.plans, limits)
    yield one
    one.close()


def batches(project, number: int, size: int = 4) -> list[list[FileTask]]:
    return [
        [
            FileTask(project.task(f"tsk-{place}-{item}", body="# A\n\n[[person:B|B]]\n"), None)
            for item in range(size)
        ]
        for place in range(number)
    ]


def alone(project, tasks: list[FileTask]):
    settings = project.settings
    limits = Limits(settings.max_doc_bytes, settings.max_doc_annotations)
    return prepare_files(project.root, project.plans, limits, tasks)


def running(one: Pipeline) -> list[subprocess.Popen[bytes]]:
    pool = one._pool
    return [] if pool is None else [process._process for process in pool._processes]


def wait_for_answers(one: Pipeline) -> None:
    """Until the process has answered all that it has."""
    for work in one._window:
        if work.answer is not None:
            work.answer.result(EXIT_TIMEOUT_S)


def test_results_come_in_order_and_are_those_of_the_pass_itself(project, made):
    given = batches(project, 20)
    found = []
    for prepared in made.run(iter(given)):
        wait_for_answers(made)
        found.append(prepared)
    assert found == [alone(project, tasks) for tasks in given]
    assert made._pool is not None
    assert made._pool.answered


def test_batches_are_asked_for_a_bounded_way_ahead(project, made):
    asked: list[int] = []

    def ask() -> Iterator[list[FileTask]]:
        for number, tasks in enumerate(batches(project, 30, 1)):
            asked.append(number)
            yield tasks

    for handed_out, _ in enumerate(made.run(ask())):
        assert len(asked) <= handed_out + pipeline._WINDOW


def test_a_process_that_dies_loses_no_file(project, made):
    given = batches(project, 12)
    found = []
    for number, prepared in enumerate(made.run(iter(given))):
        if number == 1:
            (process,) = running(made)
            process.kill()
            process.wait()
        found.append(prepared)
    assert found == [alone(project, tasks) for tasks in given]


def test_an_answer_that_is_no_answer_is_not_believed(project, made, monkeypatch):
    monkeypatch.setattr(parsing_pool, "_COMMAND", ("-c", "print('x' * 1_000_000)"))
    given = batches(project, 8)
    assert list(made.run(iter(given))) == [alone(project, tasks) for tasks in given]


def test_without_a_process_the_pass_works_alone(project, made, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    given = batches(project, 8)
    assert list(made.run(iter(given))) == [alone(project, tasks) for tasks in given]


def test_few_files_start_no_process(project, made, monkeypatch):
    monkeypatch.setattr(pipeline, "_WORTH_A_PROCESS", 100)
    list(made.run(iter(batches(project, 5))))
    assert made._pool is None


def test_a_process_keeps_to_the_project_and_to_the_caps(project, made, tmp_path):
    outside = tmp_path.parent / f"{tmp_path.name}-outside.md"
    outside.write_text("---\ndoc_id: tsk-x\ndoc_type: task\n---\n")
    (project.path / "work/tasks").mkdir(parents=True)
    (project.path / "work/tasks/link.md").symlink_to(outside)
    project.write("work/tasks/large.md", "x" * 100_001)
    names = ("link", "large", "gone", "../../../etc/passwd")
    tasks = [FileTask(f"work/tasks/{name}.md", None) for name in names]
    given = [tasks] * 8
    found = []
    for prepared in made.run(iter(given)):
        wait_for_answers(made)
        found.append(prepared)
    assert made._pool is not None
    assert made._pool.answered
    for prepared in found:
        assert [file.state for file in prepared] == ["failed", "failed", "gone", "failed"]
        codes = [file.failures[0].code for file in prepared if file.failures]
        assert codes == ["PATH_OUTSIDE_PROJECT", "DOC_TOO_LARGE", "PATH_OUTSIDE_PROJECT"]


def test_errors_keep_code_details_and_place(project, made):
    project.write("work/tasks/colon.md", "---\ndoc_id: tsk-c\ntitle: a: b\n---\n")
    given = [[FileTask("work/tasks/colon.md", None)]] * 8
    for prepared in made.run(iter(given)):
        wait_for_answers(made)
        (error,) = [failure.error() for failure in prepared[0].failures]
        assert error.code == "PARSE_ERROR"
        assert error.location is not None
        assert (error.location.file, error.location.line) == ("work/tasks/colon.md", 3)


def test_closing_ends_the_processes(project, made):
    for _ in made.run(iter(batches(project, 8))):
        processes = running(made)
    made.close()
    assert [process.returncode for process in processes] == [0]


_OWNER = """
import sys
from maadd_worker.disk.root import ProjectRoot
from maadd_worker.index.frames import Assignment
from maadd_worker.index.parsing_pool import ParsingPool
from maadd_worker.index.prepare import FileTask, Limits
from maadd_worker.schema.model import load_model

root = ProjectRoot.open(sys.argv[1])
pool = ParsingPool(Assignment(root.path, load_model(root), Limits(0, 0)), 1)
pool.submit([FileTask("people/mbr-a.md", None)]).result()
print(pool._processes[0]._process.pid, flush=True)
sys.stdin.read()
"""


def test_a_parsing_process_does_not_outlive_a_killed_worker(project):
    project.member("mbr-a")
    owner = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(project.path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with owner:
        assert owner.stdout is not None
        watched = os.pidfd_open(int(owner.stdout.readline()))
        owner.send_signal(signal.SIGKILL)
        ended, _, _ = select.select([watched], [], [], EXIT_TIMEOUT_S)
        os.close(watched)
    assert ended == [watched]


@pytest.mark.parametrize("force", [False, True])
def test_a_write_between_batches_is_not_overwritten_by_what_was_read_before(project, force):
    for number in range(30):
        project.task(f"tsk-{number:02}")
    if force:
        project.run()
    made: list[str] = []

    def write_between() -> None:
        if not made:
            for number in (5, 9, 14, 29):
                made.append(project.task(f"tsk-{number:02}", state="done"))
                project.index_file(made[-1])

    report = index_all(
        project.writer,
        project.model,
        project.root,
        project.settings,
        force=force,
        between_chunks=write_between,
    )
    assert report.errors == ()
    assert report.scanned == 30
    found = project.writer.connection.execute(
        "SELECT doc_id FROM field_index WHERE field_name = 'state' ORDER BY doc_id"
    )
    assert found.fetchall() == [("tsk-05",), ("tsk-09",), ("tsk-14",), ("tsk-29",)]


def test_a_pass_with_processes_gives_the_same_rows(project, make_project, tmp_path_factory):
    other = make_project(Path(tmp_path_factory.mktemp("other")))
    try:
        for one in (project, other):
            for number in range(40):
                one.task(f"tsk-{number:02}", owner="mbr-a", labels="[x, y]", points=str(number))
            one.member("mbr-a")
            one.write("work/tasks/broken.md", "---\n[\n---\n")
            one.task("tsk-01", path="work/tasks/twice.md")
        first = project.run()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(pipeline, "useful_processes", lambda: 0)
            second = other.run()
        assert first.view() == second.view()
        for table in ("objects", "relationships", "blocks", "field_values", "type_counts"):
            rows = [
                one.writer.connection.execute(f"SELECT * FROM {table}").fetchall()
                for one in (project, other)
            ]
            assert rows[0] == rows[1]
    finally:
        other.index.close()
        other.root.close()
