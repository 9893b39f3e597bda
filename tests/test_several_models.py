"""Specs of several models: what they stand for, their runs in one folder, and the papers' specs, which have them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from biaseval.errors import InputError
from biaseval.spec import load_spec, load_specs
from tests.bench.causaltypes import small_config
from tests.commands import Command
from tests.conftest import ROOT
from tests.majority_bias.datafiles import boolq_rows, write_jsonl
from tests.taskfiles import write_task
from tests.test_pipelines import digests, write_spec
from tests.tinymodels import make_llama, make_tokenizer
from tests.training.test_conversations import message

pytestmark = pytest.mark.slow

TWO = [{"name": "a", "path": "a", "family": "llama"}, {"name": "b", "path": "b", "set": {"prompt.n_demos": [0]}}]
PAPERS = sorted((ROOT / "jobs" / "specs" / "papers").glob("p[12]-*.yaml"))


def _written(folder: Path, kind: str = "label_bias", **changes: Any) -> Path:
    content = {"kind": kind, "name": "all", "models": TWO, "prompt": {"n_demos": [0, 2]}, **changes}
    content |= {"tasks": {"path": "tasks"}} if kind == "label_bias" else {}
    path = folder / "spec.yaml"
    path.write_text(yaml.safe_dump({key: value for key, value in content.items() if value is not None}))
    return path


def test_each_model_has_the_spec_that_it_would_have_alone(tmp_path: Path) -> None:
    path = _written(tmp_path)
    alone = tmp_path / "alone.yaml"
    for name, model, n_demos in (("a", {"path": "a", "family": "llama"}, [0, 2]), ("b", {"path": "b"}, [0])):
        content = {"name": name, "model": model, "prompt": {"n_demos": n_demos}, "tasks": {"path": "tasks"}}
        alone.write_text(yaml.safe_dump({"kind": "label_bias", **content}))
        for run_dir, folder in ((None, "runs/all"), ("s3://bucket/x/", "s3://bucket/x")):
            assert load_specs(path, (), run_dir)[f"{folder}/{name}"] == load_spec(alone)
    assert load_specs(alone) == {"runs/b": load_spec(alone)}


def test_a_majority_bias_run_keeps_the_name_of_its_data(tmp_path: Path) -> None:
    data = {"data": {"train": "x.jsonl"}, "proportions": "binary_11"}
    prompt = {"preset": "boolq", "n_demos": 4}
    path = _written(tmp_path, "majority_bias", prompt=prompt, models=[{"name": "a", "path": "a"}], **data)
    assert [(uri, own.name) for uri, own in load_specs(path).items()] == [("runs/all/a", "all")]


def test_changes_on_the_command_line_are_of_one_model_or_of_all_and_choose(tmp_path: Path) -> None:
    path = _written(tmp_path)

    def found(*changes: str) -> dict[str, Any]:
        specs = load_specs(path, changes, "x")
        return {uri: (own.model.path, own.model.dtype, own.prompt.n_demos) for uri, own in specs.items()}  # type: ignore[union-attr]

    changes = ["models.b.path=hub/c", "model.dtype=bfloat16", "prompt.n_demos=[4]"]
    assert found(*changes) == {"x/a": ("a", "bfloat16", [4]), "x/b": ("hub/c", "bfloat16", [4])}
    assert found("models=[b]", "models.b.path=hub/c") == {"x/b": ("hub/c", "float32", [0])}
    readers = load_specs(
        ROOT / "jobs" / "specs" / "papers" / "p3-finetuning.yaml", ["train.bases.bert-base.path=hub/c"]
    )
    [study] = readers.values()
    assert [base.path for base in study.train.bases if base.name == "bert-base"] == ["hub/c"]  # type: ignore[union-attr]
    for wrong, said in (("models=[c]", "'c'"), ("models.c.path=x", "models is a list"), ("models=[]", "at least 1")):
        with pytest.raises(InputError, match=said):
            found(wrong)


@pytest.mark.parametrize(("changes", "said"), [
    ({"model": {"path": "x"}}, "has model and models; keep one of the two"),
    ({"models": []}, "models: list should have at least 1 item after validation"),
    ({"models": [TWO[0], TWO[0]]}, r"models \['a', 'a'\] names one twice"),
    ({"models": [{"name": "a/b", "path": "x"}]}, r"models.0.name: string should match pattern"),
    ({"models": [{"name": "..", "path": "x"}]}, r"models.0.name: string should match pattern"),
    ({"models": [{"path": "x"}]}, "models.0.name: is required and missing"),
    ({"models": [TWO[0], {"name": "b", "pth": "x"}]}, "models.1.pth: unknown key; did you mean path?"),
    ({"models": "a"}, "models: input should be a valid list, found 'a'"),
    ({"name": None}, "name: is required and missing"),
    ({"models": [{**TWO[0], "set": {"prompt.n_demo": 1}}]}, "a: prompt.n_demo: unknown key; did you mean n_demos?"),
    ({"models": [{**TWO[0], "set": {"name.x": 1}}]}, "name is 'a' and not a section"),
    ({"kind": "qa_bias", "models": [TWO[0]]}, "models.0.family: unknown key"),
])  # fmt: skip
def test_what_is_wrong_comes_in_one_message(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        load_specs(_written(tmp_path, **changes))


def test_one_command_makes_the_runs_and_their_page_and_goes_on_with_what_is_missing(
    tmp_path: Path, tiny_llama: Path, command: Command, here: None
) -> None:
    other = make_llama(tmp_path / "other", seed=1)
    weights = (other / "model.safetensors").rename(tmp_path / "weights")
    models = [{"name": "first", "path": str(tiny_llama)}, {"name": "second", "path": str(other)}]
    path = write_spec(tmp_path, tiny_llama)
    spec = {**yaml.safe_load(path.read_text()), "models": models, "calibration": []}
    del spec["model"]
    path.write_text(yaml.safe_dump(spec))
    folder = tmp_path / "runs"
    ask = ("run", str(path), "--run-dir", str(folder))

    planned = command("plan", str(path), "--run-dir", str(folder))
    [all_flops] = re.findall(r"all 2 models\nFLOPs +(\S+)", planned.out)
    each = [own["plan"]["flops"] for own in json.loads(command("plan", str(path), "--json").out)["models"]]
    assert float(all_flops) == pytest.approx(sum(each), rel=0.01)
    assert planned.out.count("\nprompts ") == planned.out.count(f"{folder}/second\n") == 1

    refused = command(*ask)
    assert (refused.code, folder.exists()) == (2, False)
    assert refused.err.count("model directory without weights") == 1
    weights.rename(other / "model.safetensors")
    foreign = folder / "first" / "notes.txt"
    foreign.parent.mkdir(parents=True)
    foreign.touch()
    failed = command(*ask)
    assert (failed.code, failed.err.count("first: is not empty and not a run directory")) == (1, 1)
    assert f"error: {folder}/first: failed" in failed.err
    foreign.unlink()

    alone = tmp_path / "alone.yaml"
    own = {key: value for key, value in spec.items() if key != "models"}
    alone.write_text(yaml.safe_dump({**own, "name": "first", "model": {"path": str(tiny_llama)}}))
    assert command("run", str(alone), "--run-dir", str(folder / "first")).code == 0
    before = digests(folder)

    made = command(*ask)
    assert (made.code, made.out.split()) == (0, [f"{folder}/{name}" for name in ("first", "second", "report.html")])
    assert [f"{name} is complete" in made.err for name in ("first", "second")] == [True, True]
    page = (folder / "report.html").read_text()
    assert {name: digest for name, digest in digests(folder).items() if name != "report.html"} == before
    assert all(name in page for name in ("first", "second"))

    rows = json.loads(command("sql", str(folder), "from label_bias_by_model", "--format", "json").out)
    assert {(row["run"], row["model"]) for row in rows} == {("first", "first"), ("second", "second")}
    assert command("status", str(folder)).out.count("report  complete") == 2


@pytest.fixture(scope="module")
def stand_ins(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a configuration and tokenizer of each type of the papers' models, and with data."""
    folder = tmp_path_factory.mktemp("kit")
    for name in ("llama", "mistral", "falcon", "mpt"):
        window = {"max_seq_len": 4096} if name == "mpt" else {"max_position_embeddings": 4096}
        small_config(name, **window).save_pretrained(folder / name)
        make_tokenizer().save_pretrained(folder / name)
    write_task(folder / "tasks")
    template = "First: {INPUT} Second: {INPUT}"
    (folder / "templates.csv").write_text(f"task,template\ntask9500_made_classification,{template}\n")
    write_jsonl(folder / "boolq.jsonl", boolq_rows("x", 80, 80))
    sentences = [f"{row['question']} or not" for row in boolq_rows("x", 120, 120)]
    pairs = [{"premise": one, "hypothesis": one[::-1], "label": number % 2} for number, one in enumerate(sentences)]
    tweets = [{"tweet": one, "label": number % 3} for number, one in enumerate(sentences)]
    for name, rows in (("rte", pairs), ("covid5g", tweets)):
        write_jsonl(folder / f"{name}.jsonl", rows)
    asked = [message(str(n), None, f"why {n}", message_tree_id=str(n)) for n in range(60)]
    answers = [message(f"{n}a", str(n), f"so {n}", rank=0, message_tree_id=str(n)) for n in range(60)]
    write_jsonl(folder / "trees.jsonl", [*asked, *answers])
    return folder


def _data(spec: dict[str, Any], folder: Path) -> list[str]:
    """Return the changes that put data of a folder in the place of the papers'."""
    if "tasks" in spec:
        small = [f"tasks.path={folder}/tasks", f"tasks.templates={folder}/templates.csv", "tasks.max_eval=5"]
        return [*small, "tasks.suite=null"]
    if spec["kind"] == "instruct":
        return [f"data.path={folder}/trees.jsonl"]
    if spec["name"] == "boolq":
        return [f"data.train={folder}/boolq.jsonl", "data.max_test=6"]
    return [f"data.train={folder}/{spec['name']}.jsonl", "data.test_rows=6"]


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_a_spec_of_the_papers_can_be_planned_with_stand_ins(path: Path, stand_ins: Path, command: Command) -> None:
    spec = yaml.safe_load(path.read_text())
    types = {"open_llama": "llama", "Llama": "llama", "Mistral": "mistral", "falcon": "falcon", "mpt": "mpt"}
    changes = _data(spec, stand_ins)
    for model in spec["models"]:
        [own] = [name for key, name in types.items() if key in model["path"]]
        changes.append(f"models.{model['name']}.path={stand_ins / own}")
    planned = command("plan", str(path), *(word for change in changes for word in ("--set", change)), "--json")
    assert planned.code == 0, planned.err
    found = json.loads(planned.out)["models"]
    assert len(found) == len(spec["models"])
    by_name = {model["name"]: own for model, own in zip(spec["models"], found, strict=True)}
    if path.stem in ("p1-suite", "p1-equivalent"):
        contexts = {"falcon-40b": 1 + 2 * 2, "mistral-7b": 1 + 4 * 3}  # of sets at each number of demonstrations
        # Each context scores 5 rows, 32 of BiasScore, 3 of CC and 20 of DC, and leaves out each demonstration once.
        loo = {"falcon-40b": 2 * (8 + 16), "mistral-7b": 3 * (2 + 4 + 8 + 16)}
        assert {name: by_name[name]["plan"]["n_prompts"] for name in contexts} == {
            name: number * (5 + 32 + 3 + 20) + loo[name] for name, number in contexts.items()
        }
    elif spec["kind"] == "majority_bias":
        n_settings = {"binary_11": 11, "ternary_15": 15}[spec["proportions"]]
        assert {own["plan"]["n_prompts"] for own in found} == {n_settings * 5 * 2 * 6}
    else:
        assert all(own["training"]["flops"] > 0 for own in found)


@pytest.mark.parametrize("path", PAPERS, ids=lambda path: path.stem)
def test_without_its_data_and_models_a_spec_says_where_each_is_had(path: Path, command: Command) -> None:
    refused = command("plan", str(path))
    assert (refused.code, refused.out) == (2, "")
    text = path.read_text()
    models = {model["path"] for model in yaml.safe_load(text)["models"]}
    said = dict(re.findall(r"^# (\S+[/.]\S*): (.+)$", text, re.MULTILINE))
    lines = refused.err.splitlines()[1:]
    for missing in (*models, *(one for one in said if not one.endswith("/") and not one.startswith("runs/"))):
        [line] = [one for one in lines if f"/{missing}: " in one or one.startswith(f"  - {missing}: ")]
        assert said.get(missing, "Hugging Face hub") in line
    assert len(lines) == len(models) + len(_files(yaml.safe_load(text)))


def _files(spec: dict[str, Any]) -> list[str]:
    section = spec.get("tasks", spec.get("data"))
    return [section[key] for key in ("path", "templates", "train", "test") if key in section]
