"""What the site has beside the pages of docs/: the README as its first page, files of the checkout
that a page links to, and the page of the commands."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any, Final

from commands_page import commands_page
from mkdocs.structure.files import File, Files

TOP: Final = Path(__file__).resolve().parents[2]
HOME: Final = "README.md"
CHECKOUT: Final = "checkout/"
"""Where the site has files of the checkout that are outside of docs/."""
PAGES: Final = ("CHANGELOG.md", "CONTRIBUTING.md", "examples/README.md")
_LINK: Final = re.compile(r"(\]\()([^)#:\s]+)(#[^)\s]*)?(\))")


def on_files(files: Files, config: Any) -> Files:
    """Add them."""
    linked = {place for page in TOP.joinpath("docs").rglob("*.md") for place in _outside(page)}
    for name in sorted({*linked, *PAGES} - {HOME}):
        source = str(TOP / name)
        files.append(File.generated(config, CHECKOUT + name, abs_src_path=source))
    files.append(File.generated(config, HOME, abs_src_path=str(TOP / HOME)))
    files.append(File.generated(config, "commands.md", content=commands_page()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Links are those of the checkout, where the page lies elsewhere."""
    place = in_checkout(page.file.src_uri)

    def moved(link: re.Match[str]) -> str:
        target = _target(place, link[2])
        start = posixpath.dirname(page.file.src_uri)
        return f"{link[1]}{posixpath.relpath(in_site(target), start)}{link[3] or ''}{link[4]}"

    return _LINK.sub(moved, markdown)


def in_checkout(uri: str) -> str:
    """The place in the checkout of a file of the site."""
    if uri == HOME:
        return uri
    return uri.removeprefix(CHECKOUT) if uri.startswith(CHECKOUT) else f"docs/{uri}"


def in_site(place: str) -> str:
    """The other way round."""
    if place == HOME:
        return place
    return place.removeprefix("docs/") if place.startswith("docs/") else CHECKOUT + place


def _target(place: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(place), link))


def _outside(page: Path) -> set[str]:
    """Files outside of docs/ that a page links to."""
    place = page.relative_to(TOP).as_posix()
    targets = {_target(place, link[2]) for link in _LINK.finditer(page.read_text())}
    outside = {target for target in targets if not target.startswith("docs/")}
    return {target for target in outside if (TOP / target).is_file()}
