"""Roles get what they need and no more, in RabbitMQ's own terms."""

from __future__ import annotations

import re
import shlex

import pytest

from canoa.broker import topology
from canoa.broker.port import Binding, Declaration, Relay
from canoa.doctor.rights import Rights, Role, command, expression, lacking, needed

ALL = Rights(configure=(".*",), write=(".*",), read=(".*",))
NONE = Rights(configure=("^$",), write=("",), read=("^$",))


def granted(role: Role, *apps: str) -> Rights:
    """As RabbitMQ has them once the command has run."""
    *_, configure, write, read = shlex.split(command(role, vhost="/", user="u", apps=apps or ("*",)))
    return Rights(configure=(configure,), write=(write,), read=(read,))


@pytest.mark.parametrize("role", Role)
def test_who_may_do_all_lacks_nothing_and_who_may_do_nothing_lacks_all(role: Role) -> None:
    wanted = needed(role)

    assert lacking(role, ALL) == []
    assert len(lacking(role, NONE)) == len(wanted.configure) + len(wanted.write) + len(wanted.read)


@pytest.mark.parametrize("role", Role)
def test_the_printed_command_grants_what_the_role_needs(role: Role) -> None:
    assert lacking(role, granted(role)) == []


def test_a_client_cannot_take_the_place_of_a_worker_or_a_recorder() -> None:
    assert "configure canoa.action.*" in lacking(Role.WORKER, granted(Role.CLIENT))
    assert "read canoa.submit" in lacking(Role.RECORDER, granted(Role.CLIENT))
    assert lacking(Role.CLIENT, granted(Role.WORKER)) == []


def test_a_manager_is_a_recorder_and_reaches_every_node() -> None:
    assert lacking(Role.RECORDER, granted(Role.MANAGER)) == []
    assert f"write {topology.NODE_UNICAST}" in lacking(Role.MANAGER, granted(Role.RECORDER))
    assert f"read {topology.TASK_REQUESTS}" in lacking(Role.MANAGER, granted(Role.WORKER))


def test_a_device_reaches_nothing_but_topics_and_whoever_listens_there() -> None:
    for role in set(Role) - {Role.DEVICE}:
        assert lacking(role, granted(Role.DEVICE))
    assert "read amq.topic" in lacking(Role.DEVICE, granted(Role.CLIENT))


def test_a_worker_of_one_app_may_not_run_the_actions_of_another() -> None:
    rights = granted(Role.WORKER, "shop")

    assert lacking(Role.WORKER, rights, ["shop"]) == []
    assert lacking(Role.WORKER, rights, ["bank"]) == [
        "configure canoa.action.bank.*",
        "configure canoa.suspect.bank.*",
        "read canoa.action.bank.*",
        "read canoa.suspect.bank.*",
    ]


def test_names_are_matched_whole_and_dots_are_dots() -> None:
    matches = re.compile(expression(["canoa.dead", "canoa.reply.*"])).search

    assert matches("canoa.dead")
    assert matches("canoa.reply.a.b")
    assert not matches("canoa_dead")
    assert not matches("my-canoa.dead")
    assert not matches("canoa.dead2")


def test_every_exchange_and_queue_that_all_share_is_for_workers_to_declare() -> None:
    configure = re.compile(granted(Role.WORKER).configure[0]).search

    for declared in topology.shared():
        name = getattr(declared, "name", None)
        assert name is None or configure(name), name


@pytest.mark.parametrize("declared", [*topology.manager(), *topology.mqtt_finals()])
def test_whatever_managers_declare_and_bind_is_for_them_to_declare_and_bind(declared: Declaration) -> None:
    rights = granted(Role.MANAGER)
    configure, write, read = (re.compile(each[0]).search for each in (rights.configure, rights.write, rights.read))

    match declared:
        case Binding(exchange=source, queue=target) | Relay(exchange=source, to=target):
            assert read(source)
            assert write(target)
        case _:
            assert configure(declared.name)


def test_a_virtual_host_is_quoted_for_the_shell() -> None:
    line = command(Role.CLIENT, vhost="my host; rm", user="canoa-client")

    assert shlex.split(line)[:5] == ["rabbitmqctl", "set_permissions", "-p", "my host; rm", "canoa-client"]


def test_an_expression_in_another_dialect_is_given_the_benefit_of_the_doubt() -> None:
    other = Rights(configure=("(?<n>.*)(",), write=("(",), read=("(",))

    assert lacking(Role.CLIENT, other) == []
