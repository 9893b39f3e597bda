"""The examples of a majority-bias run."""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biaseval.errors import InputError, Problems
from biaseval.inputs.files import Example, ExampleFile, Wanted
from biaseval.majority_bias.prompts import item_fields, preset_of
from biaseval.prompting.labels import label_cautions
from biaseval.spec import MajorityBiasSpec

_TEST_SHARE = 0.2
_USES = ("split", "max_test", "dc", "lora")


@dataclass(frozen=True)
class Dataset:
    """The examples of a majority-bias run."""

    train: tuple[Example, ...]
    """Possible demonstrations; none of them is in the test file."""
    test: tuple[Example, ...]
    """The rows that the model predicts."""
    labels: tuple[str, ...]
    definition: str | None
    """The definition in the Super-NI task file with the demonstrations."""
    sha256: dict[str, str]
    """The hashes of the files' bytes, by key of the spec."""
    notes: list[str]
    """Notes for readers of the results."""

    def available(self) -> dict[str, int]:
        """Return the number of possible demonstrations of each label."""
        counts = dict.fromkeys(self.labels, 0)
        for example in self.train:
            counts[example.label] += 1
        return counts


def read_dataset(spec: MajorityBiasSpec) -> Dataset:
    """Return the examples of a spec's files.

    Two examples are the same if they share their id, or the text of all prompt fields. Training examples that are also
    in the test file are dropped and counted in the notes. So a demonstration never shows the answer of a test row, and
    the test rows stay those of the file. A row without ``id`` gets an id from the file's role and ``idx`` or ``index``,
    else from the role and the row number from 0 (``train-17``). These numbers restart in each file and do not identify
    duplicates.

    Raises:
        InputError: a file cannot be read, or has mistakes; the message lists those of both files with line and key.
    """
    data = spec.data
    fields = item_fields(spec.prompt)
    problems = Problems()
    with problems.noted():
        if data.test == data.train:
            raise InputError(
                f"data.test: is data.train ({data.train}); name another file, or leave it out: a fifth of data.train "
                "is drawn"
            )
    if data.test is not None and data.test_rows is not None:
        problems.found.append("data.test_rows: does not go with data.test, which has the test rows; take one out")
    for name in data.fields:
        if name not in fields:
            problems.found.append(f"data.fields.{name}: the prompt has no such field; it has {', '.join(fields)}")
    problems.refuse()
    preset = preset_of(spec.prompt)
    known = {field: (field, *preset.file_fields.get(field, ())) for field in fields}
    mapping = preset.labels if data.labels is None else data.labels
    wanted = Wanted(data=data, fields=known, labels=mapping, seed=spec.seed)
    uris = {"train": data.train, "test": data.test}
    files = {role: ExampleFile(uri, role, wanted) for role, uri in uris.items() if uri is not None}
    problems.found += [problem for file in files.values() for problem in file.shown_problems()]
    problems.refuse()
    train, test = files["train"], files.get("test")
    if test is None:
        n_test = data.test_rows or max(1, round(_TEST_SHARE * len(train.examples)))
        if data.test_rows and n_test > (most := len(train.examples) - spec.prompt.n_demos):
            leaves = f"{n_test:,} of {len(train.examples):,} rows leave fewer than prompt.n_demos {spec.prompt.n_demos}"
            raise InputError(f"data.test_rows: {leaves} for demonstrations; lower it to at most {max(most, 0):,}")
        train_rows, test_rows = _split(train.examples, n_test, spec.seed)
        notes = [f"data.test: not given; {len(test_rows)} of {len(train.examples)} examples were drawn from data.train"]
    else:
        train_rows, test_rows, notes = train.examples, test.examples, []
    notes = [*(note for file in files.values() for note in file.notes), *notes]
    ids, texts = ({example.id for example in test_rows}, {tuple(example.fields.values()) for example in test_rows})
    kept = [own for own in train_rows if own.id not in ids and tuple(own.fields.values()) not in texts]
    if len(kept) < len(train_rows):
        notes.append(
            f"data.train: {len(train_rows) - len(kept)} of {len(train_rows)} examples stand among the test rows too "
            "(same id or same text) and are no demonstrations"
        )
    labels = tuple(dict.fromkeys(mapping.values())) or tuple(
        sorted({example.label for file in files.values() for example in file.examples})
    )
    if len(labels) < 2:
        raise InputError(f"{data.train}: every example has the label {labels[0]!r}; two are needed")
    notes += label_cautions(labels)
    return Dataset(
        train=tuple(kept),
        test=tuple(_drawn(test_rows, data.max_test, spec.seed)),
        labels=labels,
        definition=train.definition,
        sha256={file.key: file.sha256 for file in files.values()},
        notes=notes,
    )


def stream(seed: int, use: str, number: int = 0) -> np.random.Generator:
    """Return the generator of one use of randomness, independent of other uses and of demonstrations.

    ``use`` names the drawn items (for calibration inputs the method), and ``number`` the draw among those of this use.
    """
    # NumPy treats [a, b, c] and [a, b, c, 0] as the same seed: the last number is never 0 here.
    place = 1 + (_USES.index(use) if use in _USES else len(_USES) + zlib.crc32(use.encode()))
    return np.random.default_rng([number, seed, 0, place])


def _split(examples: Sequence[Example], n_test: int, seed: int) -> tuple[list[Example], list[Example]]:
    chosen = set(stream(seed, "split").permutation(len(examples))[:n_test].tolist())
    train = [example for index, example in enumerate(examples) if index not in chosen]
    return train, [example for index, example in enumerate(examples) if index in chosen]


def _drawn(examples: Sequence[Example], max_test: int | None, seed: int) -> list[Example]:
    """Return at most ``max_test`` of the examples, in the order of the file."""
    if max_test is None or len(examples) <= max_test:
        return list(examples)
    chosen = stream(seed, "max_test").choice(len(examples), max_test, replace=False)
    return [examples[index] for index in sorted(chosen.tolist())]
