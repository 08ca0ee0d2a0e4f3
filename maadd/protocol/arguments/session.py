"""Arguments of the session, subscription and instance tools (spec 04 §3, §4.2, §11)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, field

from maadd.protocol.arguments.base import Arguments, RoleName


class ProjectsArgs(Arguments, frozen=True):
    """`maad_projects`."""


class UseProjectArgs(Arguments, frozen=True):
    """`maad_use_project`. `requested_role` is `as` on the wire."""

    name: str
    requested_role: Annotated[RoleName, Meta(description="ask for a lower role")] | None = field(
        name="as", default=None
    )


class UseProjectsArgs(Arguments, frozen=True):
    """`maad_use_projects`. Repeated names count once; `as` applies to all."""

    names: Annotated[tuple[str, ...], Meta(min_length=1, max_length=64)]
    requested_role: RoleName | None = field(name="as", default=None)


class CurrentSessionArgs(Arguments, frozen=True):
    """`maad_current_session`."""


class SubscribeArgs(Arguments, frozen=True):
    """`maad_subscribe`. Here `project` is the filter, not the route; no types means all."""

    doc_types: Annotated[tuple[str, ...], Meta(max_length=64)] = ()
    project: str | None = None


class UnsubscribeArgs(Arguments, frozen=True):
    """`maad_unsubscribe`."""


class SubscriptionsArgs(Arguments, frozen=True):
    """`maad_subscriptions`."""


class InstanceReloadArgs(Arguments, frozen=True):
    """`maad_instance_reload`."""
