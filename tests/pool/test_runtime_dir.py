from __future__ import annotations

import fcntl
import hashlib
import os
import resource
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from maadd.config.runtime_path import control_sockets, runtime_path
from maadd.pool.router import Router
from maadd.pool.runtime_dir import RuntimeDir
from maadd.protocol.errors import MaadError


def key(path: str) -> str:
    return hashlib.sha256(os.path.realpath(path).encode()).hexdigest()[:16]


def refusal(target: str, environ: dict[str, str]) -> MaadError:
    with pytest.raises(MaadError) as caught:
        RuntimeDir.claim(target, environ)
    return caught.value


def test_the_directory_follows_the_real_path_of_the_instance(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    environ = {"XDG_RUNTIME_DIR": str(tmp_path)}
    expected = str(tmp_path / "maadd" / key(str(tmp_path / "real")))
    assert runtime_path(str(tmp_path / "real"), environ) == expected
    assert runtime_path(str(tmp_path / "link"), environ) == expected


def test_without_a_session_directory_it_lies_in_the_temporary_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    expected = f"{tmp_path}/maadd-{os.geteuid()}/{key('/srv/x')}"
    assert runtime_path("/srv/x", {}) == expected
    assert runtime_path("/srv/x", {"XDG_RUNTIME_DIR": str(tmp_path / "absent")}) == expected


def test_a_claim_makes_private_directories_and_a_lock_with_the_pid(short_dir: str) -> None:
    runtime = RuntimeDir.claim("/srv/x", {"XDG_RUNTIME_DIR": short_dir})
    try:
        for path in (runtime.path, os.path.dirname(runtime.path)):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
        assert Path(runtime.path, "lock").read_text() == f"{os.getpid()}\n"
        assert runtime.workers_endpoint == f"ipc://{runtime.path}/workers.sock"
        assert runtime.control_path == f"{runtime.path}/control.sock"
    finally:
        runtime.release()


def test_a_second_front_is_told_who_owns_the_instance(short_dir: str) -> None:
    environ = {"MAADD_RUNTIME_DIR": short_dir}
    runtime = RuntimeDir.claim("/srv/x", environ)
    error = refusal("/srv/x", environ)
    assert error.code == "PROJECT_LOCKED"
    assert error.details == {"scope": "instance", "ownerPid": os.getpid()}
    other = refusal("/srv/y", environ)
    assert f"uses the runtime directory {short_dir}; stop it first, or set an" in other.message
    runtime.release()
    RuntimeDir.claim("/srv/x", environ).release()


def test_the_lock_of_a_killed_front_is_free(short_dir: str) -> None:
    program = (
        "import os, sys, time; from maadd.pool.runtime_dir import RuntimeDir;"
        "r = RuntimeDir.claim('/srv/x', {'MAADD_RUNTIME_DIR': sys.argv[1]});"
        "print('claimed', flush=True); time.sleep(60)"
    )
    front = subprocess.Popen([sys.executable, "-c", program, short_dir], stdout=subprocess.PIPE)
    assert front.stdout is not None
    assert front.stdout.readline() == b"claimed\n"
    assert refusal("/srv/x", {"MAADD_RUNTIME_DIR": short_dir}).details == {
        "scope": "instance",
        "ownerPid": front.pid,
    }
    front.kill()
    front.communicate()
    RuntimeDir.claim("/srv/x", {"MAADD_RUNTIME_DIR": short_dir}).release()


def test_stale_sockets_are_removed_and_nothing_else(short_dir: str) -> None:
    for name in ("workers.sock", "control.sock", "listener-abc"):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(os.path.join(short_dir, name))
    Path(short_dir, "notes").write_text("mine")
    runtime = RuntimeDir.claim("/srv/x", {"MAADD_RUNTIME_DIR": short_dir})
    assert sorted(os.listdir(short_dir)) == ["lock", "notes"]
    runtime.release()
    runtime.release()


def test_an_open_directory_is_refused(short_dir: str) -> None:
    os.chmod(short_dir, 0o750)
    error = refusal("/srv/x", {"MAADD_RUNTIME_DIR": short_dir})
    assert error.code == "INSTANCE_CONFIG_INVALID"
    assert "0750" in error.message
    assert "chmod 700" in error.message


def test_a_link_is_refused(short_dir: str) -> None:
    os.mkdir(os.path.join(short_dir, "real"), 0o700)
    os.symlink("real", os.path.join(short_dir, "link"))
    error = refusal("/srv/x", {"MAADD_RUNTIME_DIR": os.path.join(short_dir, "link")})
    assert error.code == "INSTANCE_CONFIG_INVALID"
    assert "is a link" in error.message


def test_a_directory_above_ours_that_is_open_to_others_is_refused(short_dir: str) -> None:
    os.mkdir(os.path.join(short_dir, "maadd"))
    os.chmod(os.path.join(short_dir, "maadd"), 0o777)
    assert "open to other users" in refusal("/srv/x", {"XDG_RUNTIME_DIR": short_dir}).message


def test_a_directory_of_another_user_is_refused(
    short_dir: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.geteuid", lambda: os.getuid() + 1)
    error = refusal("/srv/x", {"MAADD_RUNTIME_DIR": short_dir})
    assert f"belongs to user {os.getuid()}" in error.message


def test_a_disk_that_takes_no_more_is_named(short_dir: str) -> None:
    environ = {"MAADD_RUNTIME_DIR": f"{short_dir}/run"}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        error = refusal("/srv/x", environ)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert error.code == "INSTANCE_CONFIG_INVALID"
    assert error.message == (
        f"the lock {short_dir}/run/lock cannot be written (File too large); see to its file "
        "system, or set MAADD_RUNTIME_DIR to a directory on another one"
    )
    RuntimeDir.claim("/srv/x", environ).release()


async def test_a_socket_that_cannot_be_made_is_a_fault_of_the_directory(short_dir: str) -> None:
    runtime = RuntimeDir.claim("/srv/x", {"MAADD_RUNTIME_DIR": f"{short_dir}/run"})
    endpoint = f"ipc://{short_dir}/none/workers.sock"
    with pytest.raises(MaadError) as caught, runtime.placing_sockets():
        Router(endpoint, lambda *_: None, high_water=1, log=structlog.get_logger())
    runtime.release()
    assert caught.value.code == "INSTANCE_CONFIG_INVALID"
    assert f"in the runtime directory {short_dir}/run (No such file" in caught.value.message


def test_a_missing_parent_is_named(short_dir: str) -> None:
    path = os.path.join(short_dir, "no", "such")
    assert "cannot be created" in refusal("/srv/x", {"MAADD_RUNTIME_DIR": path}).message


@pytest.mark.parametrize(("length", "fits"), [(107, True), (108, False)])
def test_socket_paths_over_107_bytes_are_refused(short_dir: str, length: int, fits: bool) -> None:
    longest = len("/control.sock")
    path = os.path.join(short_dir, "ö" * 10)
    path += "x" * (length - longest - len(path.encode()))
    environ = {"MAADD_RUNTIME_DIR": path}
    if fits:
        RuntimeDir.claim("/srv/x", environ).release()
    else:
        error = refusal("/srv/x", environ)
        assert error.code == "INSTANCE_CONFIG_INVALID"
        assert "MAADD_RUNTIME_DIR" in error.message
        assert not os.path.exists(path)


def test_stdio_servers_find_places_beside_each_other_and_a_daemon_does_not(
    short_dir: str,
) -> None:
    environ = {"MAADD_RUNTIME_DIR": short_dir}
    instance = Path(short_dir, "instance.yaml")
    instance.touch()
    servers = [RuntimeDir.claim(str(instance), environ, beside=True) for _ in range(3)]
    assert [one.path for one in servers] == [short_dir, f"{short_dir}/2", f"{short_dir}/3"]
    assert refusal(str(instance), environ).details == {"scope": "instance", "ownerPid": os.getpid()}
    servers[0].release()
    # The instance file itself tells the daemon of the others.
    assert refusal(str(instance), environ).code == "PROJECT_LOCKED"
    assert RuntimeDir.claim(str(instance), environ, beside=True).path == short_dir
    for one in servers:
        one.release()


def test_a_place_beside_may_have_too_long_a_path(short_dir: str) -> None:
    folder = os.path.join(short_dir, "x" * (106 - len(short_dir) - len("//control.sock")))
    environ = {"MAADD_RUNTIME_DIR": folder}
    first = RuntimeDir.claim("/srv/x", environ, beside=True)
    with pytest.raises(MaadError) as caught:
        RuntimeDir.claim("/srv/x", environ, beside=True)
    assert caught.value.code == "INSTANCE_CONFIG_INVALID"
    assert "MAADD_RUNTIME_DIR" in caught.value.message
    first.release()


def test_control_sockets_are_found_where_fronts_have_them(short_dir: str) -> None:
    environ = {"XDG_RUNTIME_DIR": short_dir}
    fronts = [RuntimeDir.claim("/srv/x", environ, beside=True) for _ in range(2)]
    fronts.append(RuntimeDir.claim("/srv/y", environ))
    for front in fronts:
        Path(front.control_path).touch()
    assert sorted(control_sockets(environ)) == sorted(one.control_path for one in fronts)
    assert control_sockets({"MAADD_RUNTIME_DIR": fronts[2].path}) == [fronts[2].control_path]
    for front in fronts:
        front.release()
    assert control_sockets(environ) == []


def test_a_directory_that_somebody_removed_is_given_up_all_the_same(short_dir: str) -> None:
    claimed = RuntimeDir.claim(short_dir, {"MAADD_RUNTIME_DIR": f"{short_dir}/run"})
    shutil.rmtree(claimed.path)
    claimed.release()
    RuntimeDir.claim(short_dir, {"MAADD_RUNTIME_DIR": f"{short_dir}/run"}).release()


def test_a_removed_directory_is_made_again_and_is_still_this_fronts(short_dir: str) -> None:
    environ = {"XDG_RUNTIME_DIR": short_dir}
    first = RuntimeDir.claim("/srv/x", environ)
    second = RuntimeDir.claim("/srv/x", environ, beside=True)
    for runtime in (first, second):
        bind_sockets(runtime)
        assert runtime.is_intact
    shutil.rmtree(os.path.join(short_dir, "maadd"))
    for runtime in (first, second):
        assert not runtime.is_intact
        runtime.restore()
        # ZeroMQ removes a socket by its name, and may do so late.
        assert runtime.workers_endpoint == f"ipc://{runtime.path}/work-1.sock"
        bind_sockets(runtime)
        assert runtime.is_intact
        assert stat.S_IMODE(os.stat(runtime.path).st_mode) == 0o700
        assert Path(runtime.path, "lock").read_text() == f"{os.getpid()}\n"
    assert refusal("/srv/x", environ).code == "PROJECT_LOCKED"
    for runtime in (second, first):
        runtime.release()
        assert set(os.listdir(runtime.path)) <= {"lock", "2"}


def bind_sockets(runtime: RuntimeDir) -> None:
    for path in (runtime.workers_endpoint.removeprefix("ipc://"), runtime.control_path):
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path)


@pytest.mark.parametrize("name", ["lock", "workers.sock", "control.sock"])
def test_each_part_of_the_directory_is_missed(short_dir: str, name: str) -> None:
    runtime = RuntimeDir.claim("/srv/x", {"MAADD_RUNTIME_DIR": short_dir})
    bind_sockets(runtime)
    os.unlink(os.path.join(short_dir, name))
    assert not runtime.is_intact
    runtime.restore()
    bind_sockets(runtime)
    assert runtime.is_intact
    runtime.release()


def test_a_directory_that_another_front_has_taken_since_is_left_to_it(short_dir: str) -> None:
    environ = {"MAADD_RUNTIME_DIR": short_dir + "/run"}
    first = RuntimeDir.claim("/srv/x", environ)
    shutil.rmtree(first.path)
    other = RuntimeDir.claim("/srv/y", environ)
    with pytest.raises(MaadError, match="PROJECT_LOCKED"):
        first.restore()
    assert Path(other.path, "lock").read_text()
    other.release()
    first.restore()
    first.release()


def test_what_cleans_up_finds_the_directory_in_use(short_dir: str) -> None:
    runtime = RuntimeDir.claim("/srv/x", {"MAADD_RUNTIME_DIR": short_dir})
    fd = os.open(short_dir, os.O_RDONLY)
    with pytest.raises(BlockingIOError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    runtime.release()
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(fd)
