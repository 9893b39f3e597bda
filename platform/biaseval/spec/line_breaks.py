"""Line breaks in prompt texts that the author may not have meant, because YAML writes texts in several ways."""

import re
from collections.abc import Iterator, Mapping

from biaseval.spec.data import FormatSpec, layout_texts
from biaseval.spec.label_bias import LabelBiasSpec
from biaseval.spec.majority_bias import MajorityBiasSpec

_WRITTEN = re.compile(r"\\n(?!abla|eq|ot|u\b|e\b|i\b)|\\r\b|\\t(?![a-z])")
"""A line break or a tab as double quotes write it, except commands of TeX."""
_USUAL = 2
"""The usual number of line breaks between two items."""


def break_cautions(spec: LabelBiasSpec | MajorityBiasSpec) -> list[str]:
    """Return one caution per text about doubtful line breaks in the prompts of a spec."""
    formats: Mapping[str, FormatSpec] = getattr(spec.prompt, "formats", {})
    texts = layout_texts(spec.prompt, formats)
    system = {"model.system": spec.model.system} if spec.model.system is not None else {}
    separators = {f"prompt.formats.{name}": own.separator for name, own in formats.items()}
    return [*written_breaks({**system, **texts}), *_too_many(texts, separators, spec.prompt.separator)]


def written_breaks(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield one caution per text, by its key, that has a backslash and a letter where a line break may be meant."""
    for key, text in texts.items():
        if found := _WRITTEN.search(text):
            yield (
                f"{key}: holds {found.group()} as two characters, and prompts show them; in double quotes YAML reads a "
                "line break or tab"
            )


def _too_many(texts: Mapping[str, str], separators: Mapping[str, str | None], usual: str) -> Iterator[str]:
    """Yield the texts that end with line breaks although the separator after them begins with some."""
    for key, text in texts.items():
        n_own = len(text) - len(text.rstrip("\n"))
        n_together = n_own + (separators.get(key.rpartition(".")[0]) or usual).count("\n")
        if n_own and n_together > _USUAL:
            yield (
                f"{key}: ends with a line break, as a text after | does in YAML, so {n_together} line breaks follow "
                "it in prompts; write |- in place of |"
            )
