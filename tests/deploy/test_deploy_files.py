"""Container files, the proxy's configuration and the guide to them, against the program."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from maadd.config.settings import VARIABLES, Settings
from maadd.front import scrape

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
GUIDE = (ROOT / "docs/deploy.md").read_text()
BY_NAME = {variable.name: field for field, variable in VARIABLES.items()}
INSTRUCTIONS = {
    "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "STOPSIGNAL",
    "HEALTHCHECK", "ENTRYPOINT",
}  # fmt: skip
HARD_LIMIT_S = 15


def dockerfile() -> list[tuple[str, str]]:
    """Instruction and arguments of each logical line."""
    text = re.sub(r"\\\n\s*", "", (DEPLOY / "Dockerfile").read_text())
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    found = [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]
    assert {name for name, _ in found} <= INSTRUCTIONS
    return found


def of(instruction: str) -> list[str]:
    return [arguments for name, arguments in dockerfile() if name == instruction]


def compose() -> dict[str, Any]:
    service: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"][
        "maadd"
    ]
    return service


def check_setting(name: str, text: str) -> None:
    VARIABLES[BY_NAME[name]].rule.parse(text)


def test_the_image_is_built_from_pinned_bases_and_files_that_exist() -> None:
    for base in of("FROM"):
        assert re.fullmatch(r"[a-z]+:[0-9][\w.-]+( AS [a-z]+)?", base), base
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    copied = [line for line in of("COPY") if not line.startswith("--from")]
    for name in [word.removeprefix("./") for line in copied for word in line.split()[:-1]]:
        assert (ROOT / name).exists()
        assert f"!{name}" in ignored
    assert ignored[0] == "*"


def test_the_image_runs_the_daemon_as_nobody_in_particular() -> None:
    user = of("USER")[-1]
    assert re.fullmatch(r"([1-9]\d+):\1", user)
    assert json.loads(of("ENTRYPOINT")[0]) == ["maadd"]
    check = of("HEALTHCHECK")[0]
    assert "/healthz" in json.loads(check.partition("CMD ")[2])[-1]
    assert of("EXPOSE") == [str(Settings().http_port)]
    for word in shlex.split(of("ENV")[0]):
        name, _, text = word.partition("=")
        if name.startswith("MAAD"):
            check_setting(name, text)


def test_the_compose_example_is_closed_to_the_outside() -> None:
    service = compose()
    assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    assert service["cap_drop"] == ["ALL"]
    assert service["read_only"] is True
    assert service["init"] is True
    for name, text in service["environment"].items():
        assert isinstance(text, str), name
        check_setting(name, text)
    stop_s = int(service["stop_grace_period"].removesuffix("s"))
    assert stop_s > Settings().shutdown_timeout_ms / 1000 + HARD_LIMIT_S
    runtime = dict(place.split(":") for place in service["tmpfs"])["/run/maadd"]
    assert runtime == "uid=10001,gid=10001,mode=0700"


@pytest.mark.parametrize(
    "line",
    [
        "proxy_http_version 1.1;",
        'proxy_set_header Connection "";',
        "proxy_buffering off;",
        "gzip off;",
        "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;",
        'proxy_set_header X-Maad-Pin-Project "";',
        "client_max_body_size 1m;",
    ],
)
def test_the_proxy_does_what_the_daemon_needs(line: str) -> None:
    assert line in (DEPLOY / "nginx.conf").read_text()


def test_the_proxy_closes_idle_connections_before_the_daemon() -> None:
    text = (DEPLOY / "nginx.conf").read_text()
    found = re.search(r"keepalive_timeout (\d+)s;", text)
    assert found is not None
    assert int(found[1]) < Settings().http_keepalive_timeout_ms / 1000
    assert Settings().http_max_body == 1 << 20
    assert f"127.0.0.1:{Settings().http_port}" in text
    assert text.count("{") == text.count("}")
    assert "location /metrics" not in text


def test_the_guide_names_what_exists() -> None:
    for name in re.findall(r"(?<![\w/])(?:systemd|deploy)/[\w./-]+\w", GUIDE):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"`(\w[\w-]+\.conf)`", GUIDE):
        assert (ROOT / "systemd/drop-ins" / name).exists(), name
    for name in set(re.findall(r"MAADD?_[A-Z_]+", GUIDE)):
        assert name in BY_NAME, name


def test_the_guide_lists_the_metrics_that_there_are() -> None:
    told = set(re.findall(r"`(maadd_\w+)", GUIDE))
    sample = scrape.Sample({}, {}, {}, {}, {}, 0, {}, 0, {}, 0, {}, 0, {}, {}, draining=False)
    made = {family.name + ("_total" if family.type == "counter" else "")
            for family in scrape.families(sample)}  # fmt: skip
    assert made == told
