"""Line breaks in prompt texts that the author may not have meant, because YAML writes texts in several ways."""

import re
from collections.abc import Iterator, Mapping

from biaseval.spec.data import FormatSpec, ItemSpec
from biaseval.spec.label_bias import LabelBiasSpec
from biaseval.spec.majority_bias import MajorityBiasSpec

_WRITTEN = re.compile(r"\\n(?!abla|eq|ot|u\b|e\b|i\b)|\\r\b|\\t(?![a-z])")
"""A line break or a tab as double quotes write it, except commands of TeX."""
_USUAL = 2
"""The usual number of line breaks between two items."""


def break_cautions(spec: LabelBiasSpec | MajorityBiasSpec) -> list[str]:
    """Return one caution per text about doubtful line breaks in the prompts of a spec."""
    prompt = spec.prompt
    formats: Mapping[str, FormatSpec] = getattr(prompt, "formats", {})
    sections = {"prompt": prompt, **{f"prompt.formats.{name}": own for name, own in formats.items()}}
    texts = {
        f"{section}.{name}": text
        for section, own in sections.items()
        for name in ("item", "instruction_text")
        if (text := getattr(own, name)) is not None
    }
    system = {"model.system": spec.model.system} if spec.model.system is not None else {}
    return [
        *written_breaks({**system, **texts}),
        *(line for section, own in sections.items() for line in _too_many(section, own, prompt.separator)),
    ]


def written_breaks(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield one caution per text, by its key, that has a backslash and a letter where a line break may be meant."""
    for key, text in texts.items():
        if found := _WRITTEN.search(text):
            yield (
                f"{key}: holds {found.group()} as two characters, and prompts show them; in double quotes YAML reads a "
                "line break or tab"
            )


def _too_many(section: str, own: ItemSpec | FormatSpec, usual: str) -> Iterator[str]:
    """Yield the texts that end with line breaks although the separator after them begins with some."""
    separator = usual if own.separator is None else own.separator
    for name in ("item", "instruction_text"):
        text = getattr(own, name) or ""
        n_own = len(text) - len(text.rstrip("\n"))
        n_together = n_own + separator.count("\n")
        if n_own and n_together > _USUAL:
            yield (
                f"{section}.{name}: ends with a line break, as a text behind | does in YAML, so {n_together} line "
                "breaks follow it in prompts; write |- in place of |"
            )
