"""Sphinx's settings: Markdown as GitHub reads it, docstrings as the code has them, nothing loaded from elsewhere."""

from __future__ import annotations

import re
from typing import Any

project, author, copyright = "Mulligan", "", "Mulligan's authors, Apache-2.0"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
root_doc = "index"
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "Mulligan"
html_static_path = ["style"]
html_css_files = ["site.css"]
html_show_sphinx = html_show_sourcelink = html_copy_source = False
html_theme_options = {"navigation_with_keys": True, "footer_icons": []}

myst_heading_anchors = 5
myst_enable_extensions = ["html_image", "smartquotes"]
smartquotes = False
highlight_language = "text"
# Pages that no section lists, and code that is shortened with "…", are no mistakes.
suppress_warnings = ["toc.not_included", "misc.highlighting_failure", "myst.header"]

default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
python_use_unqualified_type_names = True
add_module_names = False

_PARAMETER = re.compile(r"^(\w+(?:, \w+)*|[A-Z]\w*)  +(\S.*)$")


def parameters_as_list(app: Any, what: str, name: str, given: Any, options: Any, lines: list[str]) -> None:
    """Docstrings name parameters in two columns; a page shows them as a list of terms."""
    shown: list[str] = []
    is_within = False
    for line in lines:
        if match := _PARAMETER.match(line):
            shown += [*([] if is_within else [""]), f"``{match[1]}``", f"    {match[2]}"]
            is_within = True
        elif is_within and line.startswith("  "):
            shown.append(f"    {line.strip()}")
        else:
            shown += [*([""] if is_within and line else []), line]
            is_within = False
    lines[:] = shown


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", parameters_as_list)
