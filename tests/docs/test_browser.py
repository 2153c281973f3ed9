"""The site in a browser, on a phone and on a desktop, light and dark.

Nothing is wider than the window, what is wider than the page can be scrolled to, images are there, the search finds, no
script fails.
"""

import functools
import html
import http.server
import json
import re
import shutil
import subprocess
import threading

import pytest

from .test_site import SITE

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="there is no browser: apt-get install chromium")

# A page that opens the others in frames, one after the other, and writes what it finds into itself.
HARNESS = """<!DOCTYPE html><meta charset="utf-8"><body><script>
const pages = PAGES, widths = [390, 1280], themes = ["light", "dark"], found = {pages: [], search: 0};
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
function open(url, width) {
  return new Promise((done) => {
    const frame = document.createElement("iframe");
    frame.style = `width: ${width}px; height: 900px; border: 0`;
    frame.onload = () => done(frame);
    frame.src = url;
    document.body.append(frame);
  });
}
function look(page, width, theme, view) {
  const root = view.document.documentElement;
  const all = (selector) => [...view.document.querySelectorAll(selector)];
  const is_wide = (element) => element.scrollWidth > element.clientWidth + 1;
  const scrolls = (element) => ["auto", "scroll"].includes(view.getComputedStyle(element).overflowX);
  const name = (element) => element.textContent.trim().slice(0, 40);
  const tables = all("article table"), box = (table) => table.closest(".table-wrapper") || table;
  return {
    page, width, theme,
    overflow: Math.max(root.scrollWidth - root.clientWidth, view.document.body.scrollWidth - root.clientWidth),
    broken: all("article img").filter((image) => image.naturalWidth === 0).map((image) => image.src),
    wide_tables: tables.filter((table) => is_wide(box(table))).map(name),
    wide_sentences: tables.filter((table) => table.matches(".stacked") && is_wide(box(table))).map(name),
    clipped: [...tables.map(box), ...all("article pre")].filter(
      (element) => is_wide(element) && !scrolls(element)).map(name),
    background: view.getComputedStyle(view.document.body).backgroundColor,
  };
}
(async () => {
  for (const theme of themes) {
    localStorage.setItem("theme", theme);
    for (const width of widths) {
      for (const page of pages) {
        const frame = await open(page, width);
        found.pages.push(look(page, width, theme, frame.contentWindow));
        frame.remove();
      }
    }
  }
  const frame = await open("search.html?q=shadowed", 1280);
  for (let i = 0; i < 100 && !frame.contentDocument.querySelector("#search-results li"); i++) await wait(100);
  found.search = frame.contentDocument.querySelectorAll("#search-results li").length;
  const result = document.createElement("pre");
  result.id = "found";
  result.textContent = JSON.stringify(found);
  document.body.replaceChildren(result);
})();
</script>"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """Serves the site, and the harness beside it."""

    harness = b""

    def do_GET(self):
        if self.path != "/harness.html":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.harness)
        return None

    def log_message(self, *arguments):
        pass


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the harness found, and what the browser's console says."""
    assert (SITE / "index.html").exists(), "there is no built site: make docs"
    pages = sorted(str(path.relative_to(SITE)) for path in SITE.rglob("*.html") if "_modules" not in path.parts)
    Quiet.harness = HARNESS.replace("PAGES", json.dumps(pages)).encode()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        command = [
            *(BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *("--enable-logging=stderr", f"--user-data-dir={tmp_path_factory.mktemp('profile')}"),
            *("--virtual-time-budget=600000", "--dump-dom", f"http://127.0.0.1:{server.server_port}/harness.html"),
        ]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        server.shutdown()
    document = re.search(r'<pre id="found">(.*?)</pre>', result.stdout, re.DOTALL)
    assert document, result.stdout[-2000:] + result.stderr[-2000:]
    console = [line for line in result.stderr.splitlines() if "CONSOLE" in line]
    found = json.loads(html.unescape(document[1]))
    assert len(found["pages"]) == 4 * len(pages)
    return {**found, "console": console}


def of_each(seen, what):
    """Page, width, theme and value, where there is one."""
    return [(one["page"], one["width"], one["theme"], one[what]) for one in seen["pages"] if one[what]]


def test_no_page_is_wider_than_the_window(seen):
    assert [found for found in of_each(seen, "overflow") if found[-1] > 0] == []


def test_every_image_is_shown(seen):
    assert of_each(seen, "broken") == []


def test_wide_tables_and_code_can_be_scrolled(seen):
    assert of_each(seen, "clipped") == []
    assert of_each(seen, "wide_tables"), "no table is wider than a phone: nothing was looked at"


def test_tables_with_sentences_fit_on_a_phone(seen):
    assert [found for found in of_each(seen, "wide_sentences") if found[1] == 390] == []


def test_the_table_of_what_is_tested_fits_on_a_desktop(seen):
    wide = of_each(seen, "wide_tables")
    assert [found for found in wide if found[:2] == ("coverage.html", 1280)] == []
    assert [found for found in wide if found[:2] == ("coverage.html", 390)]


def test_light_and_dark_differ(seen):
    colours = {one["theme"]: one["background"] for one in seen["pages"] if one["page"] == "index.html"}
    assert colours["light"] != colours["dark"]


def test_the_search_finds_a_page(seen):
    assert seen["search"] > 0


def test_the_console_has_no_errors(seen):
    assert seen["console"] == []
