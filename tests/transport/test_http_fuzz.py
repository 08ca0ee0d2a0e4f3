"""Whatever comes in, the answer is an orderly refusal and the server goes on."""

from __future__ import annotations

import os

import pytest
from http_fuzzer import Fuzzer, run
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

SETTINGS = settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "arguments", "_meta", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": json_values,
        "method": st.sampled_from(
            ["tools/call", "tools/list", "initialize", "ping", "notifications/cancelled", "x", 7]
        ),
        "params": json_values,
        "result": json_values,
    },
)


@SETTINGS
@given(body=messages | st.lists(messages, max_size=3) | json_values)
def test_any_json_is_answered(server, tokens, body):
    session = server.initialize(tokens.admin)
    for known in (None, session):
        response = server.request(body=body, token=tokens.admin, session=known)
        assert response.status in (200, 202, 400), (body, response)


@SETTINGS
@given(
    version=st.sampled_from(["", "2025-11-25", "2026-07-28", "x"]),
    method=st.sampled_from(["", "tools/call", "tools/list"]),
    name=st.text(alphabet="ab=?/ ", max_size=6),
    body=messages,
)
def test_any_routing_header_is_answered(server, tokens, version, method, name, body):
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": method, "Mcp-Name": name}
    response = server.request(body=body, token=tokens.admin, headers=headers)
    assert response.status in (200, 202, 400, 404), (body, response)


def open_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("seed", range(3))
def test_nothing_that_comes_in_is_a_failure_or_leaves_anything_behind(server, tokens, seed):
    fuzzer = Fuzzer(seed, tokens.admin, lambda: server.initialize(tokens.admin))
    run(fuzzer, server.port, lambda sent: sent < 20)
    before = open_descriptors()
    statuses = run(fuzzer, server.port, lambda sent: sent < 1200)
    assert {200, 202, 400, 404} <= statuses.keys()
    assert not server.logged("http_request_failed")
    assert not server.logged("mcp_handler_failed")
    assert server.request("GET", path="/healthz").status == 200
    assert len(server.do(lambda: list(server.sessions))) < 200
    # Connections that the server has not yet seen end are the only difference.
    assert open_descriptors() <= before + 10
