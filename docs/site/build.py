"""The documentation site: the guides as they are, references made from the code, and Sphinx to write pages of both.

    make docs        pages in build/docs/site, which open from disk and load nothing from elsewhere

A warning is an error: a link to a page, a heading or a file that is not there stops the build. A guide that no section
below names stands under "More".
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import references
from sphinx.cmd.build import build_main

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OUT = ROOT / "build" / "docs"
SOURCE = OUT / "source"
"""The pages before Sphinx reads them, where they stand in the repository: links between them need no change."""
SECTIONS = {
    "Start": ("tour", "view", "not-learning"),
    "Guides": (
        "own-env", "adapters", "endpoints", "journal", "writers", "opponents", "population", "transfer", "expedition",
        "scaling",
    ),
    "Reference": ("api", "command-line", "settings", "environments", "metrics"),
    "How it works": ("maths", "algo", "journal-maths", "exploration", "performance", "reliability", "design"),
    "Measured": ("results", "ablations"),
}  # fmt: skip
_LINK = re.compile(r"(?<=\]\()(?!https?:|mailto:|#)([^)#\s]+)")
_FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
_LOADED = re.compile(r"""(?:\bsrc=|<link[^>]+\bhref=)["']((?:https?:)?//[^"']+)""")
"""What a page would load from elsewhere."""
_MOST_LISTED = 200


def main() -> int:
    """Write the pages; the exit code is Sphinx's."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    shutil.copytree(ROOT / "docs", SOURCE / "docs", ignore=shutil.ignore_patterns("site", "*.py", "__pycache__"))
    for name, text in references.pages().items():
        (SOURCE / "docs" / f"{name}.md").write_text(text, encoding="utf-8")
    (SOURCE / "README.md").write_text((ROOT / "README.md").read_text(encoding="utf-8"), encoding="utf-8")
    waiting = sorted(SOURCE.rglob("*.md"))
    while waiting:
        waiting += _bring_what_it_links(waiting.pop())
    readme = SOURCE / "README.md"
    readme.rename(SOURCE / "index.md")
    with (SOURCE / "index.md").open("a", encoding="utf-8") as file:
        file.write("".join(_contents()))
    words = ["-W", "--keep-going", "-q", "-c", str(HERE), "-d", str(OUT / "doctrees"), str(SOURCE), str(OUT / "site")]
    code = build_main(words)
    if foreign := sorted(
        {link for page in (OUT / "site").rglob("*.html") for link in _LOADED.findall(page.read_text())}
    ):
        sys.stderr.write(f"pages would load from elsewhere: {', '.join(foreign)}\n")
        return 1
    if not code:
        sys.stdout.write(f"{(OUT / 'site' / 'index.html').relative_to(ROOT)}\n")
    return code


def _contents() -> Iterator[str]:
    """The contents, section by section, as Sphinx reads them."""
    pages = {path.stem for path in (SOURCE / "docs").glob("*.md")}
    named = {name for names in SECTIONS.values() for name in names}
    for title, names in {**SECTIONS, "More": sorted(pages - named)}.items():
        if present := [name for name in names if name in pages]:
            lines = "\n".join(f"docs/{name}" for name in present)
            yield f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n{lines}\n```\n"


def _bring_what_it_links(page: Path) -> list[Path]:
    """Copy what a page links to from the repository; returns the pages among it, whose links come next."""
    text, new = page.read_text(encoding="utf-8"), []

    def brought(link: re.Match[str]) -> str:
        written = link[1]
        target = (page.parent / written).resolve()
        if target == SOURCE / "README.md":
            return written.replace("README.md", "index.md")
        if (ROOT / target.relative_to(SOURCE)).is_dir():
            target, written = target / "README.md", f"{written.rstrip('/')}/README.md"
        original = ROOT / target.relative_to(SOURCE)
        is_listing = target.name == "README.md" and original.parent.is_dir()
        if not target.exists() and (original.exists() or is_listing):
            target.parent.mkdir(parents=True, exist_ok=True)
            content = original.read_bytes() if original.exists() else _listing(original.parent).encode()
            target.write_bytes(content)
            new.extend([target] if target.suffix == ".md" else [])
        return written

    pieces, end = [], 0
    for fence in _FENCE.finditer(text):  # code is no prose: what looks like a link there is none
        pieces += [_LINK.sub(brought, text[end : fence.start()]), fence[0]]
        end = fence.end()
    page.write_text("".join([*pieces, _LINK.sub(brought, text[end:])]), encoding="utf-8")
    return new


def _listing(folder: Path) -> str:
    """A page for a folder that has none of its own."""
    names = sorted(path.name + "/" * path.is_dir() for path in folder.iterdir())[:_MOST_LISTED]
    return f"# {folder.relative_to(ROOT)}\n\n" + "".join(
        f"- `{name}`\n" if name.endswith("/") else f"- [{name}]({name})\n" for name in names
    )


if __name__ == "__main__":
    raise SystemExit(main())
