"""The OpenAPI document as a page for people: plain HTML, no script, nothing fetched from elsewhere.

Edge machines have no way to a server with a prettier viewer, and a page that asks for a token must not run its code.
"""

from __future__ import annotations

import json
import re
from html import escape
from typing import Any, Final

_STYLE: Final = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem }
h2 { margin-top: 3rem } h3 { margin: 2rem 0 .3rem } h3 code { font-size: 1.05em }
pre, td code { background: #8882; border-radius: 4px } td code { padding: 0 .2rem }
pre { padding: .6rem .8rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% }
td { border-top: 1px solid #8884; padding: .25rem .6rem .25rem 0; vertical-align: top }
"""


def rendered(document: dict[str, Any]) -> str:
    """The whole page."""
    info = document["info"]
    body = [f"<h1>{escape(info['title'])}</h1>", _paragraphs(info["description"])]
    for tag in document["tags"]:
        body += _of_tag(document, tag)
    body += ["<h2>Shapes</h2>", *(_shape(name, schema) for name, schema in sorted(_shapes(document).items()))]
    head = f'<meta charset="utf-8"><title>{escape(info["title"])}</title><style>{_STYLE}</style>'
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>'


def _shapes(document: dict[str, Any]) -> dict[str, Any]:
    shapes: dict[str, Any] = document["components"]["schemas"]
    return shapes


def _of_tag(document: dict[str, Any], tag: dict[str, str]) -> list[str]:
    operations = [
        _operation(method, path, operation)
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
        if tag["name"] in operation["tags"]
    ]
    if not operations:
        return []
    return [f"<h2>{escape(tag['name'].capitalize())}</h2>", _paragraphs(tag["description"]), *operations]


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = [
        (f"<code>{escape(each['name'])}</code>", f"{_kind(each['schema'])}. {_text(each.get('description', ''))}")
        for each in operation.get("parameters", [])
    ]
    answers = [(f"<code>{status}</code>", _answer(each)) for status, each in operation["responses"].items()]
    return "".join(
        [
            f"<h3><code>{method.upper()} {escape(path)}</code></h3><p><b>{escape(operation['summary'])}.</b></p>",
            _paragraphs(operation.get("description", "")),
            _table(parameters),
            _request(operation),
            _table(answers),
        ]
    )


def _request(operation: dict[str, Any]) -> str:
    body = operation.get("requestBody")
    if body is None:
        return ""
    content = body["content"]["application/json"]
    shown = (
        f"<p>For example, {escape(name)}:</p><pre>{escape(_json(example['value']))}</pre>"
        for name, example in content["examples"].items()
    )
    return f"<p>Takes {_kind(content['schema'])}.</p>{''.join(shown)}"


def _answer(answer: dict[str, Any]) -> str:
    kinds = [_kind(content["schema"]) for content in answer.get("content", {}).values()]
    return f"{_text(answer['description'])}. {', '.join(kinds)}"


def _shape(name: str, schema: dict[str, Any]) -> str:
    fields = [
        (f"<code>{escape(field)}</code>", f"{_kind(each)}. {_text(each.get('description', ''))}")
        for field, each in schema.get("properties", {}).items()
    ]
    return f'<h3 id="{escape(name)}">{escape(name)}</h3>{_paragraphs(schema.get("description", ""))}{_table(fields)}'


def _kind(schema: dict[str, Any]) -> str:
    """A type in words, with links to shapes."""
    if "$ref" in schema:
        name = escape(schema["$ref"].rpartition("/")[2])
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(each) for each in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    if schema.get("type") == "array":
        return f"list of {_kind(schema['items'])}"
    return escape(" ".join(filter(None, [schema.get("type", "any"), _bounds(schema)])))


def _bounds(schema: dict[str, Any]) -> str:
    words = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<", "format": "as"}
    return ", ".join(f"{word} {schema[key]}" for key, word in words.items() if key in schema)


def _json(value: Any) -> str:
    return json.dumps(value, indent=2)


def _paragraphs(text: str) -> str:
    return "".join(f"<p>{_text(' '.join(each.split()))}</p>" for each in text.split("\n\n") if each.strip())


def _text(text: str) -> str:
    """With what stands between backticks as code."""
    return re.sub("`([^`]*)`", r"<code>\1</code>", escape(text))


def _table(rows: list[tuple[str, str]]) -> str:
    return f"<table>{''.join(f'<tr><td>{left}<td>{right}' for left, right in rows)}</table>" if rows else ""
