"""Words and sentences of English text, as P3 counts them: NLTK's tokenizers, with its data or without.

``word_dist`` and ``ans_len`` use plain words (:func:`words`), ``sim_word`` NLTK's word tokens and ``ans_pos`` its
sentences.
"""

from __future__ import annotations

import hashlib
import re
from collections import defaultdict
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from biaseval.errors import InputError

if TYPE_CHECKING:
    from nltk.tokenize.destructive import NLTKWordTokenizer
    from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer


def word_list(text: str) -> frozenset[str]:
    """Return the words of ``text``, which white space separates."""
    return frozenset(text.split())


STOP_WORDS = word_list("""
i me my myself we our ours ourselves you you're you've you'll you'd your yours yourself yourselves he him his
himself she she's her hers herself it it's its itself they them their theirs themselves what which who whom this
that that'll these those am is are was were be been being have has had having do does did doing a an the and but if
or because as until while of at by for with about against between into through during before after above below to
from up down in out on off over under again further then once here there when where why how all any both each few
more most other some such no nor not only own same so than too very s t can will just don don't should should've now
d ll m o re ve y ain aren aren't couldn couldn't didn didn't doesn doesn't hadn hadn't hasn hasn't haven haven't isn
isn't ma mightn mightn't mustn mustn't needn needn't shan shan't shouldn shouldn't wasn wasn't weren weren't won
won't wouldn wouldn't
""")
"""NLTK's English stop list of 179 lower-case words: the list is short enough to stand here."""

_ABBREVIATIONS = word_list("""
dr mr mrs ms messrs prof rev fr hon gov sen rep reps pres gen lt col maj capt cmdr adm sgt cpl sr jr st mt ft ph.d
m.d b.a m.a m.b.a d.c u.s u.k u.n u.s.a u.s.s.r e.g i.e etc cf al vs v c ca approx nos vol vols fig figs pp p ed eds
ch chap sec inc ltd co corp bros cie dept est univ assn intl ave blvd rd jan feb mar apr jun jul aug sep sept oct
nov dec mon tue tues wed thu thurs fri a.m p.m a.d b.c b.c.e c.e ala ariz ark calif colo conn del fla ga ill ind kan
ky mich minn mo mont neb nev okla ore pa penn tenn tex va vt wash wis wyo
""")
_SENTENCE_STARTERS = word_list("""
the this that these those there it he she they we i in on at by for from with as after before when while since
during until although though however but and so if then thus also another other some many most several both each all
its his her their our one two meanwhile moreover furthermore additionally instead later today according because
despite once where what who why how
""")

_PUNKT_FOLDER = Path("tokenizers") / "punkt_tab" / "english"
_DATA_FILES = [
    *(
        _PUNKT_FOLDER / name
        for name in ("abbrev_types.txt", "collocations.tab", "ortho_context.tab", "sent_starters.txt")
    ),
    Path("corpora") / "stopwords" / "english",
]

_WORD = re.compile(r"\w+")


def words(text: str) -> list[str]:
    r"""Return the runs of ``\w`` in ``text``, in order, case kept (P3 section 3).

    The standard library's ``re``: letters, digits and underscores of any script; combining marks split words.
    """
    return _WORD.findall(text)


@dataclass(frozen=True)
class EnglishText:
    """Sentences, word tokens and stop words of English text, as NLTK gives them."""

    name: str
    """Where the sentence parameters come from, for reports."""
    version: str
    """Of NLTK, and what its data are."""
    is_approximate: bool
    """True where sentences are split without the trained parameters that P3 used."""
    stop_words: frozenset[str]
    _sentence_tokenizer: PunktSentenceTokenizer
    _word_tokenizer: NLTKWordTokenizer

    def sentences(self, text: str) -> list[str]:
        """Return what ``nltk.sent_tokenize`` does: the sentences of ``text``, in order, without white space between."""
        found: list[str] = self._sentence_tokenizer.tokenize(text)
        return found

    def tokens(self, sentences: list[str]) -> list[str]:
        """Return what ``nltk.word_tokenize`` does with a text, given that text's :meth:`sentences`."""
        return [token for sentence in sentences for token in self._word_tokenizer.tokenize(sentence)]


def load_text(nltk_data: str | None) -> EnglishText:
    """Return NLTK's English, with the data of a folder or with parameters written by hand.

    With ``nltk_data`` everything is as published. Without it the stop list is the same and the sentences come from the
    same algorithm (Punkt), which then knows some hundred abbreviations, common sentence starts and function words
    instead of those that it learned from newswire. On SQuAD's 10,570 validation questions, against NLTK's data:
    ``word_dist``, ``ans_len`` and ``cos_sim`` are equal for all, ``sim_word`` for 99.96 % (its published segments are
    the same) and ``ans_pos`` for 98.3 % (3,582 and 6,988 questions instead of 3,571 and 6,999).

    Args:
        nltk_data: a folder laid out like ``nltk.data.path``'s: ``tokenizers/punkt_tab/english`` and
            ``corpora/stopwords/english``. Nothing is downloaded, unpickled or looked for elsewhere.

    Raises:
        InputError: files are missing from the folder, or cannot be read.
    """
    from nltk.tokenize.punkt import PunktSentenceTokenizer

    version = f"nltk {metadata.version('nltk')}"
    if nltk_data is None:
        name, stop_words, parameters = "Punkt with parameters by hand", STOP_WORDS, _parameters_by_hand()
    else:
        folder = Path(nltk_data).expanduser()
        name, (stop_words, parameters) = "NLTK data", _read(folder)
        version += f", data {_digest(folder)}"
    sentence_tokenizer = PunktSentenceTokenizer(parameters)
    return EnglishText(name, version, nltk_data is None, stop_words, sentence_tokenizer, _word_tokenizer())


def _word_tokenizer() -> NLTKWordTokenizer:
    """Return NLTK's word tokenizer with "24–10" as one token.

    NLTK 3.9.4 and 3.10 split at dashes, 3.7 to 3.9.2 do not; the published segment sizes are those of the latter.
    """
    from nltk.tokenize.destructive import NLTKWordTokenizer

    tokenizer = NLTKWordTokenizer()
    tokenizer.PUNCTUATION = [(pattern, by) for pattern, by in tokenizer.PUNCTUATION if not pattern.search("–")]
    return tokenizer


def _read(folder: Path) -> tuple[frozenset[str], PunktParameters]:
    """Return the stop words and the sentence parameters in ``folder``.

    NLTK's own loader warns about, or refuses, folders outside its global search path: the files are read here.
    """
    from nltk.tokenize.punkt import PunktParameters

    if missing := [str(name) for name in _DATA_FILES if not (folder / name).is_file()]:
        raise InputError(
            f"text.nltk_data: {folder} lacks {', '.join(missing)}; fill it with "
            f"nltk.download('punkt_tab', download_dir=...) and nltk.download('stopwords', download_dir=...), "
            f"or leave nltk_data out for the embedded approximation"
        )
    abbreviations, collocations, contexts, starters, stop_words = (_lines(folder / name) for name in _DATA_FILES)
    parameters = PunktParameters()
    try:
        parameters.abbrev_types = set(abbreviations)
        parameters.sent_starters = set(starters)
        parameters.collocations = {_pair(line) for line in collocations}
        parameters.ortho_context = defaultdict(int, {word: int(flags) for word, flags in map(_pair, contexts)})
    except ValueError as error:
        raise InputError(
            f"text.nltk_data: {folder / _PUNKT_FOLDER} is not Punkt's data ({error}); "
            f"fetch it again with nltk.download('punkt_tab', download_dir=...)"
        ) from error
    return frozenset(stop_words), parameters


def _digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in _DATA_FILES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()


def _lines(path: Path) -> list[str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"text.nltk_data: {path} cannot be read ({error}); fetch it again with nltk.download"
        ) from error
    return [line for line in text.split("\n") if line]


def _pair(line: str) -> tuple[str, str]:
    first, second = line.split("\t")
    return first, second


def _parameters_by_hand() -> PunktParameters:
    from nltk.tokenize import punkt

    parameters = punkt.PunktParameters()
    parameters.abbrev_types = set(_ABBREVIATIONS)
    parameters.sent_starters = set(_SENTENCE_STARTERS)
    # Function words are written small inside sentences: a capital one after an abbreviation begins a sentence.
    small = punkt._ORTHO_MID_LC | punkt._ORTHO_BEG_UC
    function_words = {word for word in STOP_WORDS | _SENTENCE_STARTERS if len(word) > 1}  # one letter is an initial
    parameters.ortho_context = defaultdict(int, dict.fromkeys(function_words, small))
    return parameters
