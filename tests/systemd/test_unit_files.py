"""Units and example files against the program they start (spec 04 §15, §19)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
from units import FOLDER, INSTALLED, UNITS, environment, values

from maadd.cli.main import root
from maadd.config.settings import VARIABLES, Settings
from maadd.ops.activation import METRICS_NAME

SERVICE = FOLDER / "maadd.service"
BY_NAME = {variable.name: field for field, variable in VARIABLES.items()}
SECTIONS = {"Unit", "Service", "Socket", "Slice", "Install"}


def named(path: Path) -> str:
    return path.name


@pytest.mark.parametrize("path", UNITS, ids=named)
def test_every_variable_of_a_unit_is_a_setting_with_a_value_it_accepts(path: Path) -> None:
    for name, value in environment(path).items():
        VARIABLES[BY_NAME[name]].rule.parse(value)


def test_every_command_exists_with_its_flags() -> None:
    commands = [value for path in UNITS for key in ("ExecStart", "ExecReload")
                for value in values(path, key) if value]  # fmt: skip
    assert len(commands) == 2
    for command in commands:
        program, *words = shlex.split(command)
        assert program.startswith(INSTALLED)
        names = {"maadd": ["serve"], "maad": []}[program.removeprefix(INSTALLED)]
        found: click.Command = root
        while names or (words and isinstance(found, click.Group)):
            assert isinstance(found, click.Group)
            word = names.pop(0) if names else words.pop(0)
            inner = found.get_command(click.Context(found), word)
            assert inner is not None, command
            found = inner
        options = {name for parameter in found.params for name in parameter.opts}
        assert {word for word in words if word.startswith("--")} <= options


def test_the_example_settings_are_settings_and_show_their_defaults() -> None:
    told: list[str] = []
    for line in (FOLDER / "maadd.env").read_text().splitlines():
        match = re.fullmatch(r"#?(MAADD?_[A-Z_]+)=(.+)", line)
        assert match or not line or line.startswith(("# ", "# ---")), line
        if match:
            name, text = match.groups()
            told.append(name)
            value = VARIABLES[BY_NAME[name]].rule.parse(text)
            default = getattr(Settings(), BY_NAME[name])
            differs = name in {
                "MAAD_TRANSPORT", "MAAD_TRUST_PROXY", "MAAD_HTTP_ALLOWED_ORIGINS",
                "MAADD_METRICS", "MAAD_AUDIT_PATH", "MAAD_WORKER_MEMORY_MB",
                "MAAD_HISTORY_MODE_DEFAULT",
            }  # fmt: skip
            assert (value != default) is differs, line
    assert len(told) == len(set(told)) > 10


def test_stopping_is_given_the_time_it_may_take() -> None:
    stop_s = int(values(SERVICE, "TimeoutStopSec")[0])
    assert stop_s > Settings().shutdown_timeout_ms / 1000 + 15
    assert values(SERVICE, "KillMode") == ["mixed"]
    assert values(SERVICE, "OOMPolicy") == ["continue"]


def test_the_service_works_before_253_and_a_drop_in_serves_later_versions() -> None:
    assert values(SERVICE, "Type") == ["notify"]
    assert "instance reload" in values(SERVICE, "ExecReload")[0]
    later = FOLDER / "drop-ins/notify-reload.conf"
    assert values(later, "Type") == ["notify-reload"]
    assert values(later, "ReloadSignal") == ["SIGHUP"]
    assert values(later, "ExecReload") == [""]


def test_the_sockets_carry_the_names_that_the_daemon_looks_for() -> None:
    assert values(FOLDER / "maadd-metrics.socket", "FileDescriptorName") == [METRICS_NAME]
    assert values(FOLDER / "maadd.socket", "FileDescriptorName") != [METRICS_NAME]
    (listen,) = values(FOLDER / "maadd.socket", "ListenStream")
    assert listen == f"{Settings().http_host}:{Settings().http_port}"


def test_user_folders_and_places_agree() -> None:
    (user,) = values(SERVICE, "User")
    accounts = (FOLDER / "sysusers.d/maadd.conf").read_text().split()
    assert accounts[:2] == ["u", user]
    home = accounts[-1]
    places = environment(SERVICE)
    assert places["MAAD_INSTANCE"].startswith(f"{home}/")
    assert home == f"/var/lib/{values(SERVICE, 'StateDirectory')[0]}"
    assert places["MAADD_RUNTIME_DIR"] == f"/run/{values(SERVICE, 'RuntimeDirectory')[0]}"
    # The daemon refuses a runtime directory or a registry that is open to others.
    assert values(SERVICE, "RuntimeDirectoryMode") == ["0700"]
    folders = {}
    for line in (FOLDER / "tmpfiles.d/maadd.conf").read_text().splitlines():
        kind, path, mode, *_ = line.split()
        assert kind == "d"
        folders[path] = mode
    assert folders[f"{home}/_auth"] == "0700"
    (settings,) = values(SERVICE, "EnvironmentFile")
    assert Path(settings.removeprefix("-")).parent == Path("/etc/maadd")


def test_the_registry_can_be_a_credential() -> None:
    path = FOLDER / "drop-ins/tokens-credential.conf"
    (credential,) = values(path, "LoadCredential")
    name = credential.partition(":")[0]
    assert environment(path)["MAADD_TOKENS_FILE"] == f"%d/{name}"
