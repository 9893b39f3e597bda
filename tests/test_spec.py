from __future__ import annotations

from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.spec import LabelBiasSpec, differences, dump_spec, load_spec

MINIMAL = "kind: label_bias\nname: x\nmodel: {path: some/model}\ntasks: {path: tasks}\n"


def _write(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text)
    return path


def test_only_kind_name_model_path_and_tasks_path_are_required(tmp_path: Path) -> None:
    spec = load_spec(_write(tmp_path, MINIMAL))
    assert (spec.seed, spec.tasks.min_instances, spec.tasks.max_eval, spec.tasks.sampling) == (
        42,
        396,
        1000,
        "per_task",
    )
    assert (spec.tasks.suite, spec.tasks.include, spec.calibration, spec.model.quantization) == (None, None, [], None)
    assert (spec.prompt.n_demos, spec.prompt.demo_sets, spec.prompt.max_tokens) == ([0, 2, 4, 8, 16], 3, 2000)
    assert (spec.scoring.normalization, spec.scoring.eos) == ("mean", True)


def test_relative_paths_are_relative_to_the_spec_file_and_hub_names_stay(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    text = "kind: label_bias\nname: x\nmodel: {path: model, adapter: org/adapter}\ntasks: {path: tasks}\n"
    spec = load_spec(_write(tmp_path, text))
    assert spec.model.path == str(tmp_path / "model")
    assert spec.model.adapter == "org/adapter"
    assert spec.tasks.path == str(tmp_path / "tasks")
    assert load_spec(_write(tmp_path, MINIMAL)).model.path == "some/model"


def test_the_resolved_spec_loads_as_itself(tmp_path: Path) -> None:
    spec = load_spec(_write(tmp_path, MINIMAL))
    assert load_spec(_write(tmp_path, dump_spec(spec))) == spec


def test_overrides_are_yaml_values_of_dotted_keys(tmp_path: Path) -> None:
    spec = load_spec(_write(tmp_path, MINIMAL), ["tasks.max_eval=7", "prompt.n_demos=[0, 4]", "calibration=[cc]"])
    assert (spec.tasks.max_eval, spec.prompt.n_demos, spec.calibration) == (7, [0, 4], ["cc"])


def test_all_mistakes_come_in_one_message(tmp_path: Path) -> None:
    text = "kind: label_bias\nname: a/b\nmodel: {pth: m}\ntasks: {path: t, max_eval: '3'}\nprompt: {n_demos: [32]}\n"
    with pytest.raises(InputError) as caught:
        load_spec(_write(tmp_path, text))
    message = str(caught.value)
    for part in ("name:", "model.path: is required", "model.pth: unknown key; did you mean path?", "tasks.max_eval:"):
        assert part in message
    assert "3 demonstration sets of 32 need 96" in message
    assert str(tmp_path / "spec.yaml") in message


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("kind: nonsense\n", "kind: 'nonsense' is unknown"),
        ("name: x\n", "kind: is missing"),
        ("- a\n- b\n", "a spec is a mapping"),
        ("a: [1\n", "is not valid YAML"),
        (MINIMAL + "sed: 3\n", "sed: unknown key; did you mean seed?"),
        (MINIMAL + "lora: {r: 64}\n", "lora: adapters cannot be trained by this version"),
        (MINIMAL + "seed: -1\n", "seed:"),
        (MINIMAL + "calibration: [cc, cc]\n", "names a method twice"),
        (MINIMAL.replace("path: tasks", "path: tasks, suite: selection"), "tasks.table"),
        (MINIMAL.replace("path: tasks", "path: tasks, min_instances: 96"), "tasks.min_instances"),
    ],
)
def test_a_mistake_names_the_key_and_the_remedy(tmp_path: Path, text: str, expected: str) -> None:
    with pytest.raises(InputError) as caught:
        load_spec(_write(tmp_path, text))
    assert expected in str(caught.value)


def test_a_file_that_is_no_text_or_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_spec(tmp_path / "absent.yaml")
    (tmp_path / "spec.yaml").write_bytes(b"kind: \xff\xfe")
    with pytest.raises(InputError, match="is not UTF-8"):
        load_spec(tmp_path / "spec.yaml")


def test_yaml_cannot_make_python_objects(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not valid YAML"):
        load_spec(_write(tmp_path, "kind: !!python/object/apply:os.getcwd []\n"))


def test_execution_and_places_may_differ_and_nothing_else(tmp_path: Path) -> None:
    spec = load_spec(_write(tmp_path, MINIMAL))

    def changed(*overrides: str) -> list[str]:
        other: LabelBiasSpec = load_spec(_write(tmp_path, MINIMAL), overrides)
        return differences(dump_spec(spec), other)

    assert changed() == []
    assert changed("execution.actors=3", "tasks.path=elsewhere") == []
    assert changed("seed=1") == ["seed: the run has 42, the spec 1"]
    assert len(changed("tasks.max_eval=5", "calibration=[dc]")) == 2
    assert changed("tasks.templates=t.csv") != []
