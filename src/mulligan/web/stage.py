"""The world on the page: WebShop as a shop, every other environment as its text with an action box.

Buttons belong to the form ``act`` and say their action in the field ``say``. Text fields belong to the form ``ask``;
what is typed goes between its fields ``before`` and ``after``.
"""

from __future__ import annotations

from mulligan.policy.base import World
from mulligan.report.charts import escape
from mulligan.web.table import Stage

_MOST = 60
"""Buttons for legal moves."""
_LONGEST_BUTTON = 80
FOCUS = ' autofocus="autofocus"'
"""Of what is typed in, or pressed, next: every answer loads the page anew."""
_BOARD_LINES = 3


def draw(world: World, seen: str) -> Stage:
    """The page of a live world; `seen` is its observation."""
    from mulligan.envs.webshop.env import WebShop

    if isinstance(world, WebShop) and not world.compact:  # the compact view has few words and no pages
        from mulligan.web.shop import draw_shop

        return draw_shop(world)
    return _draw_text(world, seen)


def button(action: str, label: str, kind: str = "", *, pressed: bool = False) -> str:
    """A button that sends `action`; `label` is HTML."""
    pressed_now = ' aria-pressed="true"' if pressed else ""
    return (
        f'<button form="act" name="say" value="{escape(action)}" title="{escape(action)}" class="{kind}"{pressed_now}>'
        f"{label}</button>"
    )


def text_box(
    label: str, send: str, *, before: str = "", after: str = "", longest: int, value: str = "", focused: bool = False
) -> str:
    """A line to type in; what is typed is sent between `before` and `after`."""
    around = "".join(
        f'<input form="ask" type="hidden" name="{name}" value="{escape(text)}"/>'
        for name, text in (("before", before), ("after", after))
        if text
    )
    return (
        f'<div class="box">{around}<input form="ask" type="text" name="say" value="{escape(value)}" '
        f'required="required" maxlength="{longest}" autocomplete="off" aria-label="{escape(label)}" '
        f'placeholder="{escape(label)}"{FOCUS if focused else ""}/>'
        f'<button form="ask" class="go">{escape(send)}</button></div>'
    )


def _draw_text(world: World, seen: str) -> Stage:
    legal = getattr(world, "legal", None)
    replies = list(legal()) if legal is not None else []
    actions = tuple(reply.replace("<action>", "").replace("</action>", "") for reply in replies)
    short = [action for action in actions[:_MOST] if len(action) <= _LONGEST_BUTTON]
    buttons = "".join(button(action, escape(action)) for action in short)
    more = len(actions) - len(short)
    hint = f'<p class="hint">and {more} more: type them above</p>' if short and more else ""
    html = (
        f'<pre class="world{board_class(seen)}" tabindex="0">{escape(seen)}</pre>'
        f'{text_box("your action", "send", longest=2_000, focused=True)}<div class="row">{buttons}</div>{hint}'
    )
    return Stage(html, actions)


def board_class(text: str) -> str:
    """Of a text with some lines of one length under each other, which must not be broken; empty for prose."""
    lengths = [len(line) for line in text.splitlines()]
    shifted = zip(*(lengths[start:] for start in range(_BOARD_LINES)), strict=False)
    return " board" if any(min(run) == max(run) > 1 for run in shifted) else ""
