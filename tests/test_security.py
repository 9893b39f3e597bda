"""What nobody may learn, write or run through a URI, a link or a table."""

from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from biaseval.analysis.table_files import csv_file, latex_file, markdown_file
from biaseval.demo import SPEC_PATH
from biaseval.errors import InputError, without_credentials
from biaseval.store import Run
from tests.commands import call

URI = "s3://AKIAKEY:s3/cr3t@bucket/place"


@pytest.mark.parametrize("where", ["run", "model", "query", "data"])
def test_credentials_in_a_uri_are_refused_unseen(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    demo = yaml.safe_load(SPEC_PATH.read_text())
    demo["model"] = {"path": URI if where == "model" else str(SPEC_PATH.parent / "model")}
    demo["tasks"] |= {"path": URI if where == "data" else str(SPEC_PATH.parent / "task_files"), "templates": None}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(demo))
    arguments = ["sql", URI, "select 1"] if where == "query" else ["run", "spec.yaml"]
    found = call(capsys, monkeypatch, *arguments, *(["--run-dir", URI] if where == "run" else []))
    assert (found.code, "has credentials in it" in found.err) == (2, True), found.err
    kept = [file.read_text() for file in tmp_path.rglob("*") if file.is_file() and file.name != "spec.yaml"]
    assert not any("cr3t" in text for text in [found.out, found.err, *kept])


@pytest.mark.parametrize(("text", "shown"), [
    ("s3://K:ab/c@d@bucket/x", "s3://…@bucket/x"), ("s3://user@b/x", "s3://…@b/x"), ("s3://b/x@y", "s3://b/x@y"),
    ("at https://host:8443/repo@v2/x", "at https://host:8443/repo@v2/x"), ("a://k:1/2 b@c", "a://k:1/2 b@c"),
    ('{"url": "http://h:80/a","mail":"x@y"}', '{"url": "http://h:80/a","mail":"x@y"}'),
])  # fmt: skip
def test_credentials_are_taken_out_of_a_text_and_ports_stay(text: str, shown: str) -> None:
    assert without_credentials(text) == shown


def test_links_in_a_run_are_followed_neither_to_write_nor_to_sweep(tmp_path: Path) -> None:
    other, run = tmp_path / "other", Run.open(str(tmp_path / "run"))
    other.mkdir()
    (other / "x.incomplete-0").write_text("mine")
    run.write_text("spec.yaml", "")
    (tmp_path / "run" / "marts").symlink_to(other)
    with pytest.raises(InputError, match=r"marts/a.parquet: lies behind a link"):
        run.write_table("marts/a.parquet", pa.table({"a": [1]}))
    for change in (run.delete, run.set_aside):
        with pytest.raises(InputError, match=r"marts/x.incomplete-0: lies behind a link"):
            change("marts/x.incomplete-0")
    run.sweep()
    assert [file.name for file in other.iterdir()] == ["x.incomplete-0"]


def test_spreadsheets_markdown_and_latex_run_no_text_of_a_table() -> None:
    texts = ["=1+1", "@SUM(A1)", "+cmd", "-2+3", "\t=1", "-", "-1.5", "+3", "yes", None]
    lines = csv_file(pa.table({"a": texts})).decode().splitlines()
    assert lines[1:] == [f'"\'{text}"' for text in texts[:5]] + ['"-"', '"-1.5"', '"+3"', '"yes"', ""]
    assert csv_file(pa.table({"b": [-1.5]})) == b'"b"\n-1.5\n'
    names = pa.table({"a": ["a|b\n\\input{x}&%$#_~^ <b>`c` [l](u)"]})
    assert r"| a\|b \\input{x}&%$#\_~^ \<b\>\`c\` \[l\](u) |" in markdown_file(names).decode()
    assert r"a|b \textbackslash{}input\{x\}\&\%\$\#\_\textasciitilde{}\textasciicircum{}" in latex_file(names).decode()
