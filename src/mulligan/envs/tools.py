"""Tools that an environment offers: how a call becomes the reply that `step` gets, and back.

The one rule: a call of the tool ``open`` with ``{"row": 1}`` is the reply ``<action>open {"row": 1}</action>``. Models
whose server or chat template knows tools call them; people, programs and all other models write that reply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from mulligan.envs.base import action_text
from mulligan.errors import Fault
from mulligan.text import storable
from mulligan.types import Tool, ToolCall

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TYPES: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}


class BadCall(Exception):
    """Calls that are not one call of an offered tool; the message is for the agent."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(message)
        self.fault = fault


def tools_of(env: Any) -> tuple[Tool, ...]:
    """What an environment offers; none where it has no ``tools()``. Raises `TypeError` where they cannot be sent."""
    tools = tuple(env.tools()) if hasattr(env, "tools") else ()
    names = [tool.name for tool in tools if isinstance(tool, Tool)]
    if len(names) < len(tools) or not all(isinstance(name, str) for name in names):
        raise TypeError("tools() must return a list of mulligan.Tool, each with a name")
    if len(set(names)) < len(names):
        raise TypeError(f"tools() gave two tools one name: {names}")
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise TypeError(f"the name of a tool must be up to 64 letters, digits, _ and - (got {tool.name!r})")
        if not isinstance(tool.description, str) or not _is_schema(tool.parameters):
            raise TypeError(f"{tool.name}: description must be text, parameters a JSON schema of type object")
    return tools


def _is_schema(parameters: object) -> bool:
    """Whether these are parameters that can be sent, and read by `_arguments`."""
    try:
        schema = json.loads(json.dumps(parameters, allow_nan=False))
        properties, required = schema.get("properties", {}), schema.get("required", [])
        fields = [(wanted.get("type", ""), wanted.get("enum", [])) for wanted in properties.values()]
    except (TypeError, ValueError, AttributeError, RecursionError):
        return False
    readable = all(isinstance(kind, str | list) and isinstance(values, list) for kind, values in fields)
    return schema.get("type") == "object" and isinstance(required, list) and readable


def tool_call(reply: str, tools: Sequence[Tool]) -> tuple[str, dict[str, Any]] | None:
    """The tool that a reply calls, and its arguments; None where it is not one call that fits."""
    name, _, arguments = (action_text(reply) or "").partition(" ")
    try:
        return name, _arguments(ToolCall("", name, arguments), tools)
    except BadCall:
        return None


def action_of(calls: Sequence[ToolCall], tools: Sequence[Tool]) -> str:
    """The reply that `step` gets for the calls of a model; raises `BadCall` where they are not one that fits."""
    if len(calls) > 1:
        raise BadCall(Fault.SEVERAL_CALLS, f"Call one tool at a time; you called {len(calls)}.")
    arguments = _arguments(calls[0], tools)
    try:
        text = storable(json.dumps(arguments, ensure_ascii=False))
    except RecursionError:
        raise BadCall(Fault.BAD_ARGUMENTS, f"The arguments of {calls[0].name} are nested too deep.") from None
    text = text.replace("<", r"\u003c").replace(">", r"\u003e")  # between the tags there must be no others
    return f"<action>{calls[0].name} {text}</action>"


def _arguments(call: ToolCall, tools: Sequence[Tool]) -> dict[str, Any]:
    """The arguments of a call, checked against the names and plain types of the tool's schema."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if not call.name:
        raise BadCall(Fault.BAD_ARGUMENTS, "A call must be JSON with a name and arguments.")
    if tool is None:
        names = ", ".join(tool.name for tool in tools)
        raise BadCall(Fault.UNKNOWN_TOOL, f"There is no tool {call.name[:64]!r}; there are {names}.")
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise BadCall(Fault.BAD_ARGUMENTS, f"The arguments of {tool.name} must be a JSON object.")
    for name in tool.parameters.get("required", ()):
        if name not in arguments:
            raise BadCall(Fault.BAD_ARGUMENTS, f"{tool.name} needs the argument {name!r}.")
    properties = tool.parameters.get("properties", {})
    for name, value in arguments.items():
        if name in properties and not _fits(value, properties[name]):
            schema = json.dumps(properties[name])
            raise BadCall(Fault.BAD_ARGUMENTS, f"The argument {name!r} of {tool.name} must fit {schema}.")
    return arguments


def _fits(value: object, schema: Mapping[str, Any]) -> bool:
    """Whether a value has the type, and is among the values, that its schema names; nothing else is checked."""
    wanted = schema.get("type", list(_TYPES))
    names = [wanted] if isinstance(wanted, str) else wanted
    types = [each for name in names for each in _TYPES.get(str(name), (object,))]
    is_of_type = bool in types if isinstance(value, bool) else isinstance(value, tuple(types))
    return (is_of_type or object in types) and value in schema.get("enum", [value])
