"""Pages in a real browser, where one is installed."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no chromium is installed (apt-get install chromium)")


def shown_by_browser(page: Path, width: int = 800) -> str:
    """Return a page as it stands after its scripts have run, in a window so many pixels wide (500 at least)."""
    done = subprocess.run(
        [
            str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={page.parent / 'browser'}",
            f"--window-size={width},900", "--virtual-time-budget=2000", "--dump-dom", page.as_uri(),
        ],
        check=True,
        capture_output=True,
        text=True,
        timeout=180,
    )  # fmt: skip
    return done.stdout


def found_by_script(source: str, script: str, folder: Path, width: int = 800) -> Any:
    """Return what a script that is put behind a page finds there.

    Args:
        source: the page; its policy, which allows no other script, is taken off.
        script: the body of a function that returns what JSON can hold.
        folder: where files may be written.
        width: of the window, in pixels.
    """
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", source)
    driver = f"""<script>
    const found = document.createElement("pre");
    const told = () => {{ {script} }};
    try {{ found.textContent = JSON.stringify(told()); }} catch (error) {{ found.textContent = error; }}
    found.id = "found";
    document.body.append(found);
    </script></body>"""
    page = folder / "driven.html"
    page.write_text(open_page.replace("</body>", driver), encoding="utf-8")
    [text] = re.findall(r'<pre id="found">(.*?)</pre>', shown_by_browser(page, width), re.S)
    return json.loads(html.unescape(text))
