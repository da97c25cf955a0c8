"""What --json prints against docs/schemas: every key has to be there, and no other."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[2] / "docs" / "schemas"


def read_schema(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def closed(schema: Any) -> Any:
    """The schema, with no keys but those that it names: what is published lets keys be added."""
    if isinstance(schema, list):
        return [closed(s) for s in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    if isinstance(inner.get("properties"), dict) and "required" in inner:
        inner["additionalProperties"] = False
    return inner


def validate(name: str, value: Any) -> None:
    """AssertionError with all that is wrong."""
    schema = closed(read_schema(name))
    Draft202012Validator.check_schema(schema)
    found = Draft202012Validator(schema).iter_errors(value)
    problems = [f"{e.json_path}: {e.message}" for e in found]
    assert not problems, problems


def keys(schema: Any, whole: Any = None, path: str = "") -> Iterator[str]:
    """The paths to all values that are no objects, as docs/cli.md spells them."""
    whole = whole or schema
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        yield from keys(whole["$defs"][name], whole, path)
    elif "oneOf" in schema:  # one, or a list of them
        yield from keys(schema["oneOf"][0], whole, path)
    elif "properties" in schema:
        for name, inner in schema["properties"].items():
            yield from keys(inner, whole, f"{path}.{name}" if path else name)
    elif isinstance(schema.get("additionalProperties"), dict):
        yield from keys(schema["additionalProperties"], whole, f"{path}.*" if path else "*")
    elif "properties" in schema.get("items", {}):
        yield from keys(schema["items"], whole, f"{path}[]" if path else "")
    else:
        yield path
