"""Fetch published data into a folder, where there is a network; a second call continues what the first began.

python jobs/fetch_data.py squad boolq --out data
"""

import argparse
import http.client
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import source  # noqa: F401
from biaseval.progress import say
from biaseval.runs.published_data import PUBLISHED


def fetch(url: str, path: Path, size: int | None = None) -> None:
    """Write the file at an address, of ``size`` bytes if that is known; ``path`` with ``.part`` has its beginning.

    Raises SystemExit: there is no answer, a web page, or another number of bytes.
    """
    part = path.with_name(f"{path.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    start = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            if "html" in answer.headers.get("Content-Type", ""):
                raise SystemExit(f"error: {url}: is a web page, not a file; fetch the file by hand")
            start = start if answer.status == 206 else 0  # else the server sends the file from its start
            total = size or start + int(answer.headers.get("Content-Length", 0))
            with part.open("ab" if start else "wb") as file:
                while block := answer.read(1 << 20):
                    file.write(block)
    except (OSError, http.client.HTTPException) as error:
        raise SystemExit(f"error: {url}: {error}; run the same command again, or delete {part} before") from error
    if (n_there := part.stat().st_size) != (total or n_there):
        more = "run the same command again to go on" if n_there < total else f"delete {part}, the file is another"
        raise SystemExit(f"error: {url}: {n_there:,} of {total:,} bytes came; {more}")
    part.rename(path)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, entry in PUBLISHED.items() if "files" in entry]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--out", type=Path, default=Path("data"), help="The folder to write into.")
    parser.add_argument("--base", help="A mirror that has the same paths, in place of each server: http://HOST:PORT.")
    asked = parser.parse_args()
    for file in (file for name in asked.names for file in PUBLISHED[name]["files"]):
        path, url = asked.out / file["path"], file["url"]
        if not path.exists():
            fetch(asked.base + urlsplit(url).path if asked.base else url, path, file.get("size"))
        say(f"{path}: is there")
