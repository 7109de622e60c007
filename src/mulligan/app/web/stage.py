"""The world on the page: WebShop as a shop, every other environment as its text with an action box.

Buttons belong to the form ``act`` and give their action in the field ``say``. Text fields belong to the form ``ask``;
what is typed goes between its fields ``before`` and ``after``.
"""

from __future__ import annotations

from mulligan.envs.webshop.env import LONGEST_QUERY, WebShop
from mulligan.envs.webshop.pages import BACK, BUY, LONGEST_TITLE, NEXT, PREVIOUS, Session, cut
from mulligan.policy.base import World
from mulligan.text import escape

_MOST_BUTTONS = 60
"""Buttons for legal moves."""
_LONGEST_BUTTON = 80
FOCUS = ' autofocus="autofocus"'
"""Of what is typed in, or pressed, next: every answer loads the page anew."""
_BOARD_LINES = 3


def draw(world: World, observation: str, *, watched: bool = False) -> str:
    """The world with what can be done in it; if somebody else plays, with a button that lets them."""
    if watched:
        go_on = f'<button form="act" name="say" value="" class="go"{FOCUS}>Next move</button>'
        return f'<pre class="world{board_class(observation)}" tabindex="0">{escape(observation)}</pre><p>{go_on}</p>'
    if isinstance(world, WebShop) and not world.compact:  # the compact view has few words and no pages
        return _draw_shop(world)
    legal = getattr(world, "legal", None)
    actions = [reply.replace("<action>", "").replace("</action>", "") for reply in (legal() if legal else ())]
    short = [action for action in actions[:_MOST_BUTTONS] if len(action) <= _LONGEST_BUTTON]
    buttons = "".join(_button(action, escape(action)) for action in short)
    more = len(actions) - len(short)
    hint = f'<p class="hint">and {more} more: type them above</p>' if short and more else ""
    return (
        f'<pre class="world{board_class(observation)}" tabindex="0">{escape(observation)}</pre>'
        f'{_text_box("your action", "send", longest=2_000, focus=FOCUS)}<div class="row">{buttons}</div>{hint}'
    )


def board_class(text: str) -> str:
    """Of a text with some lines of one length under each other, which must not be broken; empty for prose."""
    lengths = [len(line) for line in text.splitlines()]
    shifted = zip(*(lengths[start:] for start in range(_BOARD_LINES)), strict=False)
    return " board" if any(min(run) == max(run) > 1 for run in shifted) else ""


def _button(action: str, label: str, kind: str = "", *, pressed: bool = False) -> str:
    """A button that sends `action`; `label` is HTML."""
    state = ' aria-pressed="true"' if pressed else ""
    return (
        f'<button form="act" name="say" value="{escape(action)}" title="{escape(action)}" class="{kind}"{state}>'
        f"{label}</button>"
    )


def _text_box(
    label: str, send: str, *, before: str = "", after: str = "", longest: int, value: str = "", focus: str = ""
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
        f'placeholder="{escape(label)}"{focus}/><button form="ask" class="go">{escape(send)}</button></div>'
    )


def _draw_shop(shop: WebShop) -> str:
    """A page says what the page in words says, and each button is a click an agent can make."""
    session = shop.session
    title = escape(shop.render().partition("\n")[0])
    if session.page == "search":
        body = f'<p class="hint">{len(shop.shop.products):,} products. What do you search for?</p>'
    elif session.page == "results":
        body = _results(session, title)
    else:
        body = _item(session) if session.page == "item" else _sub_page(session, title)
    wanted = f'<p class="wanted"><small>Instruction</small> {escape(shop.goal.instruction)}</p>'
    box = _text_box(
        "search the shop", "search", before="search[", after="]", longest=LONGEST_QUERY, value=session.query
    )
    return f'{wanted}{box}<section class="shop {escape(session.page)}">{body}</section>'


def _click(text: str, label: str = "", kind: str = "", *, pressed: bool = False) -> str:
    return _button(f"click[{text}]", label or escape(text), kind, pressed=pressed)


def _ways(session: Session, *texts: str) -> str:
    """The buttons that lead elsewhere, of those asked for that are on the page."""
    on_page = [text for text in texts if text in session.clickables()]
    return '<div class="row ways">' + "".join(_click(text, kind="way") for text in on_page) + "</div>"


def _results(session: Session, title: str) -> str:
    rows = ""
    for product in session.listed():
        name, price = escape(cut(product.title, LONGEST_TITLE)), f'<b class="price">{escape(product.price_tag)}</b>'
        label = f"<code>{escape(product.asin)}</code><span>{name}</span>{price}"
        rows += f"<li>{_click(product.asin, label, 'product')}</li>"
    products = f"<ol>{rows}</ol>" if rows else '<p class="hint">Nothing was found.</p>'
    return f"<h2>{title}</h2>{_ways(session, BACK, PREVIOUS, NEXT)}{products}{_ways(session, PREVIOUS, NEXT)}"


def _item(session: Session) -> str:
    item = session.item
    assert item is not None, "the page is about an item"
    groups = "".join(
        f'<div class="option"><h3>{escape(group)}</h3><div class="row">'
        + "".join(_click(value, kind="value", pressed=session.chosen.get(group) == value) for value in values)
        + "</div></div>"
        for group, values in item.options.items()
    )
    more = "".join(_click(page, kind="more") for page in session.sub_pages)
    return (
        f"{_ways(session, BACK, PREVIOUS)}<h2>{escape(cut(item.title, 4 * LONGEST_TITLE))}</h2>"
        f'<p class="facts"><b class="price">{escape(item.price_tag)}</b> <span class="rating">rating '
        f"{escape(item.rating)}</span> <code>{escape(item.asin)}</code></p>{groups}"
        f'<div class="row mores">{more}</div>{_click(BUY, kind="buy")}'
    )


def _sub_page(session: Session, title: str) -> str:
    lines = session.sub_page_text(session.page).split("\n")
    if all(line.startswith("- ") for line in lines):
        text = "<ul>" + "".join(f"<li>{escape(line[2:])}</li>" for line in lines) + "</ul>"
    else:
        text = "".join(f"<p>{escape(line)}</p>" for line in lines)
    return f"{_ways(session, BACK, PREVIOUS)}<h2>{title}</h2>{text}"
