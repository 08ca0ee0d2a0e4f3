"""Faulty instance files under a running server: each row of spec 04 §2.2, by `maad_instance_reload`
over a listening socket."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from maadd.protocol.roles import Role

ONE = "name: x\nprojects:\n  - {name: main, path: main"
TWO = ONE + "}\n  - {name: b, path: other"
CODE = "INSTANCE_CONFIG_INVALID: "

FAULTS: list[tuple[str, str, tuple[str, ...]]] = [
    ("name: [", "PARSE_ERROR", ("line 2",)),
    (ONE + "}\nname: y\n", "PARSE_ERROR", ("name",)),
    ("", "INSTANCE_CONFIG_INVALID", ()),
    (ONE.replace("name: x\n", "") + "}", "", ("name: ",)),
    (ONE.replace("x", "''", 1) + "}", "", ("name: ",)),
    (ONE.replace("x", "3", 1) + "}", "", ("name: ",)),
    ("name: 3\n", "", ("name: ", "projects: ")),
    ("name: x\nprojects: a\n", "", ("projects: ",)),
    ("name: x\nprojects: []\n", "", ("projects: ",)),
    ("name: x\nprojects: [a, {name: A, path: b}]\n", "", ("projects[0]: ", "'A'")),
    ("name: x\nprojects: [{path: a}]\n", "", ("projects[0]",)),
    (ONE + "}\n  - {name: main, path: other}\n", "", ("'main' is already taken",)),
    ("name: x\nprojects: [{name: a}, {name: b, path: ''}]\n", "", ("[0].path: ", "[1].path: ")),
    (TWO + ", role: king}", "", ("'king' is none of reader, writer, admin",)),
    (TWO + ", history_mode: never}", "", ("'never' is none of audit, feed, read, batch",)),
    (TWO + ", history_options: 3}", "", ("history_options",)),
    (
        TWO + ", history_options: {max_writes: 0, max_delay_ms: 1.5, often: 1}}",
        "",
        ("max_writes: ", "max_delay_ms: ", "often: "),
    ),
    (TWO + ", rol: admin}", "", ("'rol', did you mean 'role'?",)),
    (TWO + "}\nprojetcs: []\n", "", ("'projetcs', did you mean 'projects'?",)),
    (ONE + "}\n  - {name: b, path: main/notes}\n", "", ("'b' lies inside that of project 'main'",)),
    (ONE + "}\n  - {name: b, path: ./other/../main}\n", "", ("main",)),
    (TWO + ", history_mode: batch}", "GIT_NOT_INITIALIZED", ()),
]
"""What stands in the file, the code of its fault when that is no INSTANCE_CONFIG_INVALID, and what
each of its faults is told by."""


async def test_each_fault_of_the_file_leaves_everything_as_it_was(open_front: Any) -> None:
    async with open_front({"main": Role.ADMIN}) as bench, bench.wire() as client_of:
        client = client_of(bench.issue("admin *").plaintext)
        await client.hello()
        await client.data("maad_use_project", name="main")
        before = await client.data("maad_projects")
        path: Path = bench.folder / "instance.yaml"
        good = path.read_text()

        async def refused() -> str:
            error = await client.error("maad_instance_reload")
            assert error["code"] == "INSTANCE_RELOAD_FAILED", error
            message: str = error["message"]
            return message

        for text, code, told in FAULTS:
            path.write_text(text)
            message = await refused()
            assert all(one in message for one in told), message
            assert (f"{code}: " if code else CODE) in message, message
            if not code:
                assert message.count(CODE) == len(told), message
        path.unlink()
        assert "INSTANCE_CONFIG_NOT_FOUND: " in await refused()
        path.mkdir()
        assert "FILE_READ_ERROR: " in await refused()
        path.rmdir()
        os.mkfifo(path)
        assert "no regular file" in await refused()
        path.unlink()
        assert await client.data("maad_projects") == before

        # A path is that of the file's folder, a role that is not given a reader's; what follows
        # a second line of dashes is for others.
        path.write_text(f"---\n{good}  - {{name: more, path: ./more}}\n---\nwhat: [ever\n")
        shutil.copytree(bench.folder / "main", bench.folder / "more", ignore=_pipes)
        done = await client.data("maad_instance_reload")
        assert (done["source"], done["projectsAdded"]) == ("tool", ["more"])
        shown = {
            one["name"]: one["role"] for one in (await client.data("maad_projects"))["projects"]
        }
        assert shown == {"main": "admin", "more": "reader"}


def _pipes(_folder: str, _names: list[str]) -> list[str]:
    return ["gate"]
