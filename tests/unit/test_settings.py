"""Settings have types, wrong values are refused by name, secrets stay hidden. Where they come from is tested apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.pretty import pretty_repr

from canoa import Canoa
from canoa.broker.amqp.engine import Login
from canoa.errors import SettingError, WrongUse
from canoa.settings import Settings, read, without_password
from canoa.vocabulary import Layer
from canoa.wire.compression_policy import DEFAULT_POLICY, Compression


def test_an_argument_beats_the_environment_which_beats_the_default() -> None:
    environment = {"CANOA_BROKER": "amqp://there", "CANOA_MAX_PAYLOAD_BYTES": "10", "CANOA_SUBMIT_TIMEOUT_S": "2.5"}

    settings = read({"broker": "amqp://here", "max_payload_bytes": None}, environment)

    assert settings == Settings(broker="amqp://here", max_payload_bytes=10, submit_timeout_s=2.5, heartbeat_s=10)


def test_without_anything_it_is_the_memory_broker() -> None:
    assert read({}, {}) == Settings()
    assert read({}, {"CANOA_BROKER": ""}).is_memory


@pytest.mark.parametrize("variable", ["CANOA_MAX_PAYLOAD_BYTES", "CANOA_SUBMIT_TIMEOUT_S", "CANOA_HEARTBEAT_S"])
@pytest.mark.parametrize("text", ["ten", "-1", "0", "nan", "inf", "1e999", "[]", "0x10"])
def test_a_wrong_value_in_the_environment_is_refused_by_its_variable(variable: str, text: str) -> None:
    with pytest.raises(SettingError, match=variable):
        read({}, {variable: text})


@pytest.mark.parametrize("value", ["10", 1.5, True, 0, -3, [1]])
def test_a_wrong_argument_is_refused_by_its_name_and_value(value: object) -> None:
    with pytest.raises(SettingError, match=r"max_payload_bytes") as caught:
        read({"max_payload_bytes": value}, {})

    assert repr(value) in str(caught.value)


def test_a_broker_that_is_no_text_is_refused_without_showing_it() -> None:
    with pytest.raises(SettingError, match="broker cannot be used: Expected `str`") as caught:
        read({"broker": ["amqp://guest:secret@host"]}, {})

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["compression_edge", "compression_fog", "compression_cloud"])
def test_a_compression_rule_that_cannot_be_read_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(SettingError, match=rf"CANOA_{name.upper()}.* 'brotli:9' .*none\|\(gzip\|lz4"):
        read({}, {f"CANOA_{name.upper()}": "brotli:9"})


def test_compression_is_set_per_layer() -> None:
    settings = read({}, {"CANOA_COMPRESSION_EDGE": "gzip:10", "CANOA_COMPRESSION_CLOUD": "none", "CANOA_LAYER": "edge"})

    policy = settings.compression()

    assert policy.choose(settings.layer, 10) is Compression.GZIP
    assert policy.choose(Layer.FOG, 1024) is DEFAULT_POLICY.choose(Layer.FOG, 1024)
    assert policy.choose(Layer.CLOUD, 10**6) is None


def test_a_layer_that_there_is_not_is_refused() -> None:
    with pytest.raises(SettingError, match=r"CANOA_LAYER.* 'mars' cannot be used"):
        read({}, {"CANOA_LAYER": "mars"})


words = st.text(st.characters(codec="ascii", exclude_characters="@:/"), min_size=1)


@given(user=words, secret=st.text(min_size=8).filter(lambda text: "@" not in text), place=words)
def test_a_shown_url_never_holds_the_password(user: str, secret: str, place: str) -> None:
    shown = without_password(f"amqp://{user}:{secret}#!@{place}/vhost")

    assert f"{secret}#!" not in shown
    assert shown.endswith(f"@{place}/vhost")


def test_representations_hide_the_password() -> None:
    app = Canoa("shop", broker="amqp://guest:s3cr3t@host:5672/prod")

    for shown in (repr(app), repr(app.settings)):
        assert "s3cr3t" not in shown
        assert "guest:***@host:5672/prod" in shown


async def test_a_broker_with_a_scheme_nobody_speaks_is_refused_with_the_ones_there_are() -> None:
    app = Canoa("shop", broker="redis://guest:s3cr3t@host")

    with pytest.raises(SettingError, match=r"'redis://guest:\*\*\*@host' has a scheme nobody speaks; use amqp://"):
        app.new_broker("test")


async def test_the_broker_can_be_named_until_the_app_is_connected() -> None:
    app = Canoa("shop", broker="redis://nowhere")

    with pytest.raises(SettingError):
        await app.session()
    app.use_broker("memory://")
    async with app:
        with pytest.raises(WrongUse, match="already connected; name the broker before the first submit"):
            app.use_broker("amqp://elsewhere")


def test_no_way_to_print_settings_or_a_login_shows_the_password() -> None:
    settings = Settings(broker="amqp://shop:s3cret@broker:5672/")
    login = Login("shop", "s3cret", "/")

    assert "s3cret" not in f"{settings!r}{login!r}{pretty_repr(settings)}{pretty_repr(login)}"
