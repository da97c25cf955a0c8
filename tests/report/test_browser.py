"""The page in a real browser, where there is one: its script runs without an error, and clicks mark
the same step everywhere."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

from tilewright.report.facts import gather
from tilewright.report.page import page

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, NAMES)), None)
WORDS = "no Chromium here: `apt-get install chromium` brings it"

TRIAL = """
<script>
const told = {errors: []};
window.addEventListener("error", (event) => told.errors.push(event.message));
</script>
"""
CLICKS = """
<script>
const send = (e, kind, more) => e.dispatchEvent(new MouseEvent(kind, {bubbles: true, ...more}));
const click = (q) => send(document.querySelector(q), "click");
const rows = () => [...document.querySelectorAll("#steps tbody tr")].map((r) => r.dataset.item);
told.first = document.querySelector("#details").textContent;
told.order = rows();
click("g[data-item='PIECE']");
told.marked = [...document.querySelectorAll(".marked")].map((e) => e.tagName.toLowerCase());
told.details = document.querySelector("#details").textContent;
click("[data-zoom=marked]");
told.zoomed = view;
click("[data-zoom='0']");
told.all = view;
click("#steps th:nth-child(4) button");
told.by_time = rows();
const c = document.querySelector("#timeline");
told.canvas = [c.width, c.height];
const box = c.getBoundingClientRect();
const from = items.get("PIECE");
const x = box.left + place(from.begin + from.ns / 2);
send(c, "mousemove", {clientX: x, clientY: box.top + tops[from.row] + 8});
told.tip = tip.hidden ? "" : tip.textContent;
told.wide = document.documentElement.scrollWidth;
told.ink = new Set(c.getContext("2d").getImageData(0, 0, c.width, c.height).data).size;
document.body.dataset.told = JSON.stringify(told);
</script>
"""


@pytest.mark.skipif(BROWSER is None, reason=WORDS)
def test_a_browser_shows_it(profile, limits, tmp_path):
    report = gather(profile, limits)
    piece = max((i for i in report.items if i.kind == "piece"), key=lambda i: i.span.nanoseconds)
    clicks = CLICKS.replace("PIECE", piece.id)
    text = page(report).replace("<head>", f"<head>{TRIAL}").replace("</body>", f"{clicks}</body>")
    (tmp_path / "page.html").write_text(text, encoding="utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--window-size=1280,1000"]
    command += [f"--user-data-dir={tmp_path / 'user'}", "--virtual-time-budget=3000", "--dump-dom"]
    command.append((tmp_path / "page.html").as_uri())
    found = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    told_text = re.search(r'<body data-told="([^"]*)"', found.stdout)
    assert told_text, found.stderr[-2000:]
    told = json.loads(unescape(told_text[1]))
    assert told["errors"] == []
    assert told["first"].startswith("What takes longest")
    assert sorted(told["marked"]) == ["circle", "g", "tr"]
    assert piece.title in told["details"]
    assert f"{piece.cycles:,}, by the chip" in told["details"]
    assert told["zoomed"][0] <= piece.span.begin
    assert told["zoomed"][1] >= piece.span.end
    assert told["zoomed"][1] - told["zoomed"][0] < told["all"][1]
    assert told["order"] == [i.id for i in report.items]
    times = {i.id: i.span.nanoseconds for i in report.items}
    assert told["by_time"] == sorted(told["order"], key=lambda n: -times[n])
    assert piece.title in told["tip"]
    assert told["wide"] <= 1280
    assert told["ink"] > 10
