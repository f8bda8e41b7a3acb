"""What a page is made of, as a parser sees it."""

from collections import Counter
from html.parser import HTMLParser

VOID = {"meta", "br", "img", "input", "hr", "link"}


class Page(HTMLParser):
    """Raises AssertionError where tags do not close in order."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: Counter[str] = Counter()
        self.attributes: list[tuple[str, str, str]] = []
        self.text: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag, tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(" ".join(self.text).split())


def require_alone(page: Page) -> None:
    """It needs no other file and runs nothing."""
    assert not page.tags.keys() & {"script", "link", "img", "iframe", "object", "embed", "base", "form", "use", "image"}
    for tag, name, value in page.attributes:
        assert not name.startswith("on"), (tag, name)
        assert name not in ("src", "href", "xlink:href", "srcset", "action"), (tag, name, value)
        assert "url(" not in value


def require_readable(page: Page) -> None:
    """By a screen reader: pictures have titles, tables captions and heads with a scope."""
    assert page.tags["svg"] <= page.tags["title"] - 1
    assert page.tags["svg"] == sum(name == "aria-label" for tag, name, _ in page.attributes if tag == "svg")
    assert page.tags["table"] == page.tags["caption"] == page.tags["thead"]
    assert page.tags["th"] == sum(tag == "th" and name == "scope" for tag, name, _ in page.attributes)
    assert ("html", "lang", "en") in page.attributes
