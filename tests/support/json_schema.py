# SPDX-FileCopyrightText: The vescomm authors
# SPDX-License-Identifier: Apache-2.0
"""A validator for the part of JSON Schema that our schemas use."""


def violations(value, schema, root, path="it"):
    """Violations of `schema` in `value`, one sentence each."""
    if "$ref" in schema:
        schema = root["definitions"][schema["$ref"].rsplit("/", 1)[1]]
    if "anyOf" in schema:
        found = [list(violations(value, each, root, path)) for each in schema["anyOf"]]
        return min(found, key=len)
    kinds = {
        "object": dict,
        "array": list,
        "string": str,
        "integer": int,
        "number": (int, float),
        "boolean": bool,
        "null": type(None),
    }
    problems = []
    kind = schema.get("type")
    if kind and (
        not isinstance(value, kinds[kind]) or kind != "boolean" and isinstance(value, bool)
    ):
        return [f"{path} is {value!r:.40}, not a {kind}"]
    if "const" in schema and value != schema["const"]:
        problems.append(f"{path} is {value!r}")
    if "enum" in schema and value not in schema["enum"]:
        problems.append(f"{path} is {value!r}")
    if "minimum" in schema and value < schema["minimum"]:
        problems.append(f"{path} is {value!r}")
    for key in schema.get("required", []):
        if key not in value:
            problems.append(f"{path}.{key} is missing")
    for key, each in schema.get("properties", {}).items():
        if key in value:
            problems += violations(value[key], each, root, f"{path}.{key}")
    if "items" in schema:
        for i, item in enumerate(value):
            problems += violations(item, schema["items"], root, f"{path}[{i}]")
    return problems
