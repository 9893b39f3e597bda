import pickle
import shutil
from pathlib import Path

import pytest

from biaseval.errors import InputError
from biaseval.qa_bias.text import STOP_WORDS, load_text, words


def tokens_of(text: str) -> list[str]:
    english = load_text(None)
    return english.tokens(english.sentences(text))


def test_words_are_runs_of_letters_digits_and_underscores_with_their_case() -> None:
    assert words("Don't re-use snake_case in U.S. café 3.5 №7 cafe\u0301s") == [
        *["Don", "t", "re", "use", "snake_case", "in", "U", "S", "café", "3", "5", "7", "cafe", "s"]
    ]


def test_the_built_in_stop_list_is_the_one_of_nltk_and_each_text_says_what_it_is(shared: Path) -> None:
    trained, by_hand = load_text(str(shared / "data" / "nltk_data")), load_text(None)
    assert len(STOP_WORDS) == 179
    assert trained.stop_words == STOP_WORDS
    assert (trained.is_approximate, by_hand.is_approximate) == (False, True)
    assert trained.name != by_hand.name


def test_sentences_are_those_of_the_trained_parameters(shared: Path) -> None:
    trained, by_hand = load_text(str(shared / "data" / "nltk_data")), load_text(None)
    text = "See fig. 4 for an overview. It rained, e.g. Tuesday was wet."
    # The trained parameters do not know "e.g."; those written by hand do.
    assert trained.sentences(text) == ["See fig.", "4 for an overview.", "It rained, e.g.", "Tuesday was wet."]
    assert by_hand.sentences(text) == ["See fig. 4 for an overview.", "It rained, e.g. Tuesday was wet."]


def test_every_kind_of_trained_parameter_counts(shared: Path) -> None:
    sentences = load_text(str(shared / "data" / "nltk_data")).sentences
    assert sentences("There were 12. Who came?") == ["There were 12. Who came?"]  # a collocation: number and "who"
    assert sentences("There were 12. She came.") == ["There were 12.", "She came."]
    assert sentences("They met Messrs. Lee.") == ["They met Messrs. Lee."]  # an abbreviation
    assert sentences("He came from the U.S. The end.") == ["He came from the U.S.", "The end."]  # orthography


def test_sentences_without_data() -> None:
    for text, sentences in {
        "Dr. Smith met Mrs. Jones. They talked.": ["Dr. Smith met Mrs. Jones.", "They talked."],
        "J. S. Bach wrote it. Why? Nobody knows!": ["J. S. Bach wrote it.", "Why?", "Nobody knows!"],
        "He left at 5 p.m. The mill closed.": ["He left at 5 p.m.", "The mill closed."],
        'She said "No." Then she left.': ['She said "No."', "Then she left."],
        "It cost $3.50 in the U.S. and more elsewhere.": ["It cost $3.50 in the U.S. and more elsewhere."],
        "one line\nand another, no end": ["one line\nand another, no end"],
        "": [],
    }.items():
        assert load_text(None).sentences(text) == sentences


def test_word_tokens_split_clitics_and_keep_abbreviations_and_dashes() -> None:
    assert tokens_of("Isn't the U.S. well-known? It's 3.5%.") == [
        *["Is", "n't", "the", "U.S.", "well-known", "?", "It", "'s", "3.5", "%", "."]
    ]
    # NLTK 3.9.4 and 3.10 split here; the published values come from versions that do not.
    assert tokens_of("won 24–10, war—then") == ["won", "24–10", ",", "war—then"]


def test_missing_data_are_named_with_the_remedy(tmp_path: Path, shared: Path) -> None:
    with pytest.raises(InputError) as error:
        load_text(str(tmp_path))
    for part in ("nltk_data", "punkt_tab/english/collocations.tab", "corpora/stopwords/english"):
        assert part in str(error.value)
    assert "nltk.download('punkt_tab'" in str(error.value)
    assert "nltk.download('stopwords'" in str(error.value)

    copy = tmp_path / "copy"
    shutil.copytree(shared / "data" / "nltk_data", copy, copy_function=shutil.copyfile)
    (copy / "tokenizers" / "punkt_tab" / "english" / "sent_starters.txt").unlink()
    with pytest.raises(InputError, match=r"lacks tokenizers/punkt_tab/english/sent_starters\.txt; "):
        load_text(str(copy))


def test_data_of_another_kind_are_refused(tmp_path: Path, shared: Path) -> None:
    shutil.copytree(shared / "data" / "nltk_data", tmp_path / "copy", copy_function=shutil.copyfile)
    folder = tmp_path / "copy" / "tokenizers" / "punkt_tab" / "english"
    (folder / "ortho_context.tab").write_text("no tab\n")
    with pytest.raises(InputError, match="is not Punkt's data"):
        load_text(str(tmp_path / "copy"))
    (folder / "ortho_context.tab").write_bytes(b"\xff\t1\n")
    with pytest.raises(InputError, match="cannot be read"):
        load_text(str(tmp_path / "copy"))


def test_loading_leaves_nothing_behind_and_a_text_travels_to_a_worker(
    shared: Path, recwarn: pytest.WarningsRecorder
) -> None:
    import nltk.data

    before = list(nltk.data.path)
    english = load_text(str(shared / "data" / "nltk_data"))
    assert nltk.data.path == before
    assert not recwarn.list
    copy, text = pickle.loads(pickle.dumps(english)), 'He said "24–10." Mr. T. left.'
    assert copy.tokens(copy.sentences(text)) == english.tokens(english.sentences(text))
