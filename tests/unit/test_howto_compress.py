"""The page on compression tells the truth about defaults, settings and formats."""

from __future__ import annotations

import re
from pathlib import Path

from canoa.settings import Settings, read
from canoa.vocabulary import Layer
from canoa.wire.compression_policy import Compression

PAGE = (Path(__file__).parents[2] / "docs" / "howto" / "compress.md").read_text()


def test_the_defaults_are_those_of_the_page() -> None:
    told = dict(re.findall(r"\| `(compression_\w+)` \| `([\w:]+)` \|", PAGE))

    assert told == {name: getattr(Settings(), name) for name in told}
    assert len(told) == len(Layer)


def test_its_file_can_be_read(tmp_path: Path) -> None:
    (found,) = re.findall(r"```toml\n# canoa.toml\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "canoa.toml").write_text(found)

    settings = read({}, {}, folder=tmp_path)

    assert (settings.layer, settings.compression_edge) == (Layer.EDGE, "gzip:512")


def test_every_algorithm_is_in_its_table() -> None:
    assert set(re.findall(r"^\| \w+ \| `(\w+)` \| [^`\n]+ \|", PAGE, re.MULTILINE)) == set(Compression)
