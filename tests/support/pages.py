"""Pages of HTML taken apart."""

import json
from html.parser import HTMLParser

VOID = {"meta", "br"}


class Page(HTMLParser):
    """A page taken apart: its elements, and what stands in scripts. Tags have to close as they
    opened."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.scripts, self.open, self.words = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, given):
        self.elements.append((name, dict(given)))
        if name == "script":
            self.scripts.append("")
        if name not in VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts[-1] += data
        elif not self.open or self.open[-1] != "style":
            self.words.append(data)

    @property
    def data(self):
        return json.loads(self.scripts[0])

    def of(self, name):
        return [given for found, given in self.elements if found == name]


def is_alone(found):
    """Nothing is loaded, and nothing but the page's own script runs."""
    assert len(found.scripts) == 2
    for name, given in found.elements:
        assert name not in ("link", "img", "iframe", "object", "embed", "base", "form")
        assert not [a for a in given if a.startswith("on") or a in ("src", "srcset", "action")]
        assert given.get("href", "#").startswith("#")
    (policy,) = [m["content"] for m in found.of("meta") if m.get("http-equiv")]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
