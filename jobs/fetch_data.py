"""Fetch published data into a folder, where there is a network; a second call continues what the first began.

python jobs/fetch_data.py squad boolq --out data
"""

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import source  # noqa: F401
from biaseval.errors import BiasevalError
from biaseval.progress import say
from biaseval.runs.published_data import PUBLISHED


def fetch(url: str, path: Path, size: int | None = None) -> None:
    """Write the file at an address to ``path``, after whatever ``path`` with ``.part`` already has.

    Raises:
        BiasevalError: there is no answer or a web page, or the file is not as long as the server or ``size`` says.
    """
    part = path.with_name(f"{path.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    n_there = part.stat().st_size if part.exists() else 0
    request = urllib.request.Request(url, headers={"Range": f"bytes={n_there}-"} if n_there else {})
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            if "html" in answer.headers.get("Content-Type", ""):
                raise BiasevalError(f"{url}: is a web page, not a file; look for the new address, and fetch it by hand")
            n_there = n_there if answer.status == 206 else 0  # the server may send the file from its start
            length = answer.headers.get("Content-Length")
            total = n_there + int(length) if length else size
            with part.open("ab" if n_there else "wb") as file:
                while block := answer.read(1 << 20):
                    file.write(block)
    except urllib.error.HTTPError as error:
        if error.code != 416:  # the part is whole already, or longer
            raise BiasevalError(f"{url}: the server answers {error.code} ({error.reason})") from error
        total = size if size is not None else n_there
    except OSError as error:
        raise BiasevalError(f"{url}: {error}; run the same command again to go on") from error
    n_there = part.stat().st_size
    if total is not None and n_there < total:
        raise BiasevalError(f"{url}: {n_there:,} of {total:,} bytes came; run the same command again to go on")
    if n_there > (total or n_there) or n_there != (size or n_there):
        part.unlink()
        raise BiasevalError(f"{url}: has {n_there:,} bytes, not {size or total:,}; it changed, so nothing is kept")
    part.rename(path)


def main() -> None:
    """Fetch the files of the named data that are not there yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [name for name, entry in PUBLISHED.items() if "files" in entry]
    parser.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--out", type=Path, default=Path("data"), help="The folder to write into.")
    parser.add_argument("--base", help="A mirror that has the same paths, in place of each server: http://HOST:PORT.")
    asked = parser.parse_args()
    failed = []
    for entry in (PUBLISHED[name] for name in asked.names):
        say(f"{entry['name']}: {entry['source']}; licence: {entry['licence']}")
        for file in entry["files"]:
            path = asked.out / file["path"]
            url = file["url"] if asked.base is None else asked.base + urlsplit(file["url"]).path
            try:
                if not path.exists():
                    fetch(url, path, file.get("size"))
                say(f"{path}: is there")
            except BiasevalError as error:
                failed.append(error)
                say(f"error: {error}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
