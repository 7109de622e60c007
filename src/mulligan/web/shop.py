"""WebShop as a shop: each page says what the page in words says, and each button is a click an agent can make."""

from __future__ import annotations

from mulligan.envs.webshop.env import BACK, BUY, LONGEST_QUERY, NEXT, PREVIOUS, WebShop
from mulligan.report.charts import escape
from mulligan.web.stage import button, text_box
from mulligan.web.table import Stage


def draw_shop(shop: WebShop) -> Stage:
    """The shop's present page, drawn from the very words that an agent reads."""
    title, *lines = shop.render().split("\n")
    draw_page = {"search": _search_page, "results": _results, "item": _item}.get(shop.page, _sub_page)
    wanted = f'<p class="wanted"><small>Instruction</small> {escape(shop.goal.instruction)}</p>'
    query = text_box("search the shop", "search", before="search[", after="]", longest=LONGEST_QUERY, value=shop.query)
    body = draw_page(shop, title, lines)
    actions = ("search[…]", *(f"click[{text}]" for text in shop.clickables()))
    return Stage(f'{wanted}{query}<section class="shop {escape(shop.page)}">{body}</section>', actions)


def _click(text: str, label: str = "", kind: str = "", *, pressed: bool = False) -> str:
    return button(f"click[{text}]", label or escape(text), kind, pressed=pressed)


def _ways(shop: WebShop, *texts: str) -> str:
    """The buttons that lead elsewhere, of those asked for that are on the page."""
    there = shop.clickables()
    return '<div class="row ways">' + "".join(_click(text, kind="way") for text in texts if text in there) + "</div>"


def _search_page(shop: WebShop, title: str, lines: list[str]) -> str:
    return f'<p class="hint">{len(shop.shop.products):,} products. What do you search for?</p>'


def _results(shop: WebShop, title: str, lines: list[str]) -> str:
    rows = "".join(
        f"<li>{_click(product.asin, _row(line, product.asin, product.price_tag), 'product')}</li>"
        for product, line in zip(shop.listed(), lines, strict=False)
    )
    found = f"<ol>{rows}</ol>" if rows else '<p class="hint">Nothing was found.</p>'
    return f"<h2>{escape(title)}</h2>{_ways(shop, BACK, PREVIOUS, NEXT)}{found}{_ways(shop, PREVIOUS, NEXT)}"


def _row(line: str, asin: str, price: str) -> str:
    """A line of the results in columns; the words stay those of the line."""
    name = line.removeprefix(f"{asin} ")
    shown = f'<b class="price">{escape(price)}</b>' if name.endswith(f" {price}") else ""
    if shown:
        name = name.removesuffix(f" {price}")
    return f"<code>{escape(asin)}</code><span>{escape(name)}</span>{shown}"


def _item(shop: WebShop, title: str, lines: list[str]) -> str:
    item = shop.item
    assert item is not None, "the page is about an item"
    groups = "".join(
        f'<div class="option"><h3>{escape(group)}</h3><div class="row">'
        + "".join(_click(value, kind="value", pressed=shop.chosen.get(group) == value) for value in values)
        + "</div></div>"
        for group, values in item.options.items()
    )
    more = "".join(_click(page, kind="more") for page in shop.sub_pages)
    return (
        f"{_ways(shop, BACK, PREVIOUS)}<h2>{escape(lines[0])}</h2>"
        f'<p class="facts"><b class="price">{escape(item.price_tag)}</b> <span class="rating">rating '
        f"{escape(item.rating)}</span> <code>{escape(item.asin)}</code></p>{groups}"
        f'<div class="row mores">{more}</div>{_click(BUY, kind="buy")}'
    )


def _sub_page(shop: WebShop, title: str, lines: list[str]) -> str:
    said = shop.said(shop.page).split("\n")
    points = [line.removeprefix("- ") for line in said]
    listed = all(line.startswith("- ") for line in said)
    text = (
        "<ul>" + "".join(f"<li>{escape(point)}</li>" for point in points) + "</ul>"
        if listed
        else "".join(f"<p>{escape(line)}</p>" for line in said)
    )
    return f"{_ways(shop, BACK, PREVIOUS)}<h2>{escape(title)}</h2>{text}"
