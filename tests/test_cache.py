"""Models and tasks on an object store, a real S3 server on loopback: fetched once a machine, complete or not at all."""

import gzip
import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow.fs as pafs
import pytest
import torch
from peft import LoraConfig, get_peft_model

from biaseval.cache import FOLDER, file_digest, local_copy
from biaseval.errors import InputError
from biaseval.label_bias.templates import read_templates
from biaseval.models import Loading, ModelSource, describe_reader, fingerprint_model, load_model, load_tokenizer
from biaseval.qa_models import ExtractiveReader, WindowSettings
from biaseval.runs import run_spec
from biaseval.spec import ConversationsSpec, load_spec
from biaseval.store import Run
from biaseval.training.conversations import read_conversations
from tests.alike import assert_alike
from tests.buckets import s3_server
from tests.test_pipelines import digests, write_spec
from tests.test_qa_pipeline import make_bert


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of this test's copies."""
    monkeypatch.setenv(FOLDER, str(tmp_path / "cache"))
    return tmp_path / "cache"


def uploaded(folder: Path, uri: str) -> str:
    fs, root = pafs.FileSystem.from_uri(uri)
    pafs.copy_files(str(folder), root, source_filesystem=pafs.LocalFileSystem(), destination_filesystem=fs)
    return uri


def test_a_large_files_digest_is_kept_until_it_changes(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, digested = tmp_path / "model.safetensors", []
    monkeypatch.setattr("biaseval.cache._REMEMBERED_FROM_BYTES", 8)
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *arguments: digested.append(1) or digest(*arguments))
    for content, n_digested in ((b"12345678", 1), (b"12345678", 1), (b"87654321", 2), (b"small", 3), (b"small", 4)):
        if not file.exists() or file.read_bytes() != content:
            file.write_bytes(content)
            os.utime(file, ns=(0, 0))  # a copy that keeps times is another file all the same
        assert file_digest(file) == hashlib.sha256(content).hexdigest()
        assert len(digested) == n_digested
    remembered = list((cache / "digests").iterdir())
    assert len(remembered) == 2
    file.write_bytes(b"12345678")
    os.utime(file, ns=(0, 0))
    for damage in (b"", b"\xff\xfe", b"0123"):  # as a machine leaves it that lost its power
        file_digest(file)
        for each in (cache / "digests").iterdir():
            each.write_bytes(damage)
        assert file_digest(file) == hashlib.sha256(b"12345678").hexdigest()


def copies(cache: Path) -> list[Path]:
    return sorted(path for path in cache.iterdir() if path.is_dir())


def test_a_model_of_a_bucket_is_the_model(tiny_llama: Path, object_store: str, cache: Path) -> None:
    source = ModelSource(uploaded(tiny_llama, f"{object_store}/models/llama"))
    tokenizer = load_tokenizer(source)
    [light] = copies(cache)
    # Who prepares parts needs no weights.
    names = [{path.name for path in folder.iterdir()} for folder in (light, tiny_llama)]
    assert names[0] == names[1] - {"model.safetensors"}
    assert fingerprint_model(source) == fingerprint_model(ModelSource(str(tiny_llama)))
    ids = tokenizer("river stone", return_tensors="pt")["input_ids"]
    with torch.no_grad():
        found, wanted = (load_model(each)(ids).logits for each in (source, ModelSource(str(tiny_llama))))
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-6)
    assert len(copies(cache)) == 2
    load_tokenizer(source)
    assert len(copies(cache)) == 2


def test_readers_and_adapters_are_found_there(tmp_path: Path, tiny_llama: Path, object_store: str, cache: Path) -> None:
    bert = make_bert(tmp_path / "bert")
    source = ModelSource(uploaded(bert, f"{object_store}/models/bert"))
    assert describe_reader(source, "extractive") == describe_reader(ModelSource(str(bert)), "extractive")
    windows = WindowSettings(max_tokens=128, stride=32)
    ExtractiveReader.load(source, Loading("float32", "cpu"), windows)
    base = load_model(ModelSource(str(tiny_llama)))
    get_peft_model(base, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    adapter = uploaded(tmp_path / "adapter", f"{object_store}/models/adapter")
    adapted = load_model(ModelSource(str(tiny_llama), adapter=adapter))
    assert any("lora" in name for name, _ in adapted.named_parameters())


def test_who_asks_at_once_fetches_once(
    tiny_llama: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (tmp_path / "log").open("w") as log, s3_server(log=log) as variables:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        uri = uploaded(tiny_llama, "s3://bias/llama")
        with ThreadPoolExecutor(4) as pool:
            found = set(pool.map(local_copy, [uri] * 4))
    assert [*map(digests, found)] == [digests(tiny_llama)]
    assert (tmp_path / "log").read_text().count("GET /bias/llama/model.safetensors") == 1


def test_what_changes_is_another_copy_and_a_half_one_none(tmp_path: Path, object_store: str, cache: Path) -> None:
    (tmp_path / "model" / "more").mkdir(parents=True)
    (tmp_path / "model" / "a.json").write_text("1")
    (tmp_path / "model" / "more" / "b.json").write_text("2")
    uri = uploaded(tmp_path / "model", f"{object_store}/changing")
    first = local_copy(uri)
    assert digests(first) == digests(tmp_path / "model")
    (tmp_path / "model" / "a.json").write_text("three")
    uploaded(tmp_path / "model", uri)
    # As a process leaves it that is killed while it fetches.
    second = local_copy(uri)
    second.rename(second.with_name(f"{second.name}.incomplete"))
    (second.with_name(f"{second.name}.incomplete") / "half").touch()
    assert local_copy(uri) == second != first
    assert digests(second) == digests(tmp_path / "model")
    assert (first / "a.json").read_text() == "1"


def test_templates_and_conversations_of_a_bucket_are_read_and_what_is_not_there_said(
    tmp_path: Path, object_store: str, cache: Path
) -> None:
    (tmp_path / "files").mkdir()
    (tmp_path / "files" / "templates.csv").write_text("task,template\na,Text: {INPUT}\n")
    chat = {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Good day"}]}
    (tmp_path / "files" / "chats.jsonl.gz").write_bytes(gzip.compress(json.dumps(chat).encode()))
    uri = uploaded(tmp_path / "files", f"{object_store}/files")
    assert read_templates(f"{uri}/templates.csv") == {"a": "Text: {INPUT}"}
    places = (uri, tmp_path / "files")
    found, local = (read_conversations(ConversationsSpec(path=f"{place}/chats.jsonl.gz")) for place in places)
    assert found == local
    assert len(found.kept) == 1
    absent = ConversationsSpec(path=f"{uri}/none.jsonl")
    for read, message in (
        (lambda: read_conversations(absent), r"data.path: s3://bias/files/none.jsonl: cannot be read"),
        (
            lambda: load_tokenizer(ModelSource(f"{object_store}/nothing/here")),
            "nothing/here: nothing is there; correct",
        ),
        (lambda: fingerprint_model(ModelSource("s4://bias/model")), "s4://bias/model: cannot be read: s4:// is not"),
    ):
        with pytest.raises(InputError, match=message):
            read()
    assert not cache.exists()


@pytest.mark.slow
def test_a_run_of_a_bucket_is_the_run_of_the_same_files_on_a_disk(
    tmp_path: Path, tiny_llama: Path, object_store: str, cache: Path, here: None
) -> None:
    spec = write_spec(tmp_path, tiny_llama, calibration=["cc"], prompt={"n_demos": [0]})
    model = uploaded(tiny_llama, f"{object_store}/run/model")
    tasks = uploaded(tmp_path / "tasks", f"{object_store}/run/tasks")
    away = load_spec(spec, [f"model.path={model}", f"tasks.path={tasks}"])
    run_spec(away, str(tmp_path / "away"), page=False)
    run_spec(load_spec(spec), str(tmp_path / "run"), page=False)
    found, wanted = (Run.open(str(tmp_path / name)).read_table("label_scores") for name in ("away", "run"))
    assert_alike(found, wanted)
    before = digests(tmp_path / "away" / "label_scores")
    run_spec(load_spec(spec), str(tmp_path / "away"), page=False)  # it is the same run, wherever its files lie
    assert digests(tmp_path / "away" / "label_scores") == before
