"""Reindexes that outlive their worker and their daemon, in real processes (spec 03 §6.1)."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest
from daemon_bench import Client, Daemon, Instance, eventually

RECORDS = 1200


@pytest.fixture
def filled(instance: Instance) -> Instance:
    """An instance whose reindex takes many slices."""
    for number in range(20, RECORDS):
        (instance.project / f"notes/nte-{number}.md").write_text(
            f"---\ndoc_id: nte-{number}\ndoc_type: note\nschema: note.v1\n"
            f"title: Note {number}\nrank: {number}\n---\n\n# Note {number}\n"
        )
    return instance


def bound(daemon: Daemon, instance: Instance) -> Client:
    client = daemon.client(instance.token)
    client.ok("maad_use_project", name="main")
    return client


def newest_job(client: Client) -> dict[str, Any]:
    answer = client.call("maad_health")
    jobs = answer["data"].get("jobs", []) if answer["ok"] else []
    return jobs[0] if jobs else {"state": "unknown"}


def is_over(client: Client, job_id: str) -> bool:
    job = newest_job(client)
    return job.get("jobId") == job_id and job["state"] == "done"


@pytest.mark.parametrize("end", ["worker killed", "daemon stopped"])
def test_a_job_goes_on_in_the_next_process(filled: Instance, start: Any, end: str) -> None:
    daemon = start(filled, MAAD_WATCH="off")
    client = bound(daemon, filled)
    pid = client.ok("maad_health")["worker"]["pid"]
    answer = client.ok("maad_reindex", force=True, wait=False)
    if end == "worker killed":
        os.kill(pid, signal.SIGKILL)
    else:
        # The daemon does not wait for the job, which nobody waits for.
        assert daemon.stop(signal.SIGTERM) == 0
        client = bound(start(filled, MAAD_WATCH="off"), filled)
    assert eventually(lambda: client.call("maad_summary")["ok"])
    assert eventually(lambda: is_over(client, answer["jobId"]))
    assert client.ok("maad_summary")["totalDocuments"] == RECORDS


def test_a_write_does_not_wait_for_a_job(filled: Instance, start: Any) -> None:
    client = bound(start(filled, MAAD_WATCH="off"), filled)
    job_id = client.ok("maad_reindex", force=True, wait=False)["jobId"]
    created = client.ok("maad_create", docType="note", docId="nte-between", fields={"title": "B"})
    assert created["writeDurable"] is True
    assert eventually(lambda: is_over(client, job_id))
    assert client.ok("maad_get", docId="nte-between")["docId"] == "nte-between"
    assert client.ok("maad_summary")["totalDocuments"] == RECORDS + 1
