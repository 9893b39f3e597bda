"""The one reader of YAML and JSON: keys that stand twice, words of YAML 1.1, and what is written is read as it was."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from biaseval.parsing import ParseError, json_value, yaml_1_1_value, yaml_flow, yaml_text, yaml_value

PACKAGE = Path(__file__).parents[1] / "platform" / "biaseval"

_TEXTS = st.text(
    st.one_of(
        st.characters(exclude_categories=()),
        st.sampled_from(
            "\x00\x7f\x85\x92\xa0\u2028\u2029\ufeff\ufffe\uffff\ud800\udfff\U0001fffe\U0010ffff"
            "\t\n\r :#-?{}[],&*!|>'\"%@`\\"
        ),
    ),
    max_size=12,
) | st.sampled_from(
    [
        *("yes", "No", "off", "y", "null", "~", "true", "1", "1e-4", "1.5", "007", "0x1F", "1_000", "12:30"),
        *("2024-01-31", "<<", "=", "- a", "a: b", "a #b", "---", "...", ".inf", "", " ", "long " * 400),
    ]
)


@pytest.mark.parametrize(("text", "value"), [
    *((word, word) for word in ("yes", "no", "on", "off", "y", "n", "Yes", "NO", "none", "None", "=")),
    *((text, text) for text in ("12:30", "2024-01-31", "1e-4", "007", "08", "1.2.3", "0o17")),
    *(("true", True), ("True", True), ("FALSE", False), ("null", None), ("~", None), ("", None)),
    *(("7", 7), ("-3", -3), ("1_000", 1000), ("0x1F", 31), ("1.0e-4", 1e-4), (".5", 0.5), ("2.", 2.0)),
])  # fmt: skip
def test_words_are_texts_but_those_of_yaml_1_2(text: str, value: object) -> None:
    found = yaml_value(text)
    assert found == value
    assert type(found) is type(value)
    # What YAML 1.1 has as a text is one here, so that what its writers leave without quotes is read as it was.
    node = yaml.compose(text)
    if node is not None and node.tag == "tag:yaml.org,2002:str":
        assert isinstance(found, str)


@pytest.mark.parametrize(("text", "message"), [
    ("a: 1\nb: 2\na: 3\n", "line 3: has the key 'a' a second time, after line 1"),
    ("a:\n  b: {c: 1, c: 2}\n", "line 2: has the key 'c' twice"),
    ("- {1: a}\n- '1': a\n  1: b\n", "line 3: has the key '1' a second time, after line 2"),
    ("a: 1\na: 2\nb: 1\n'b': 2\n", "line 2: has the key 'a' a second time, after line 1; line 4: has the key 'b'"),
    ("x: {? a : 1, a: 2}", "line 1: has the key 'a' twice"),
    ("a: &a {x: 1}\nb: &b {x: 2}\nc:\n  <<: *a\n  <<: *b", "line 5: has the key '<<' a second time, after line 4"),
    ("a: [", "is not valid YAML: while parsing"), ("a: !!bool zz", "is not valid YAML: the value after a tag"),
    ('a: !!int ""', "is not valid YAML: the value after a tag"),
    ("a: !!timestamp foo", "is not valid YAML: the value after a tag"),
    ("a: !!python/object:os.system {}", "is not valid YAML: could not determine a constructor"),
    ("a: 1\nb: don\x92t", "line 2: has the character U+0092, which YAML does not take; in double quotes write"),
    ("[" * 5000, "is not valid YAML: maximum recursion depth exceeded"),
    (f"a: [1, 0x{'f' * 5000}]", "has a number of more than 4,000 digits"),
    ("a: &a0 [x, x]\n" + "".join(f"b{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40)), "1,000,000 values"),
])  # fmt: skip
def test_what_is_wrong_with_yaml_is_said_with_its_lines(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        yaml_value(text)
    assert message in str(caught.value)
    for dated in ("2001-99-99", "2001-01-01 25:00:00"):  # as YAML 1.1, which cluster files are, has a date
        with pytest.raises(ParseError, match=r"is not valid YAML: .* must be in"):
            yaml_1_1_value(dated)


@pytest.mark.parametrize(("data", "message"), [
    ('{"a": 1, "b": {"c": 1,\n "c": 2}}', "has the key 'c' twice in an object"),
    ('[{"a": 1}, {"a": 1, "b": [1], "a": {"x": 2}}]', "line 7: has the key 'a' twice in an object"),
    ('{"a": ' * 400 + '{"b": 1, "b": 2 3}' + "}" * 400, "is not JSON (Expecting ',' delimiter)"),
    ('{"a" 1}', "line 7, column 6: is not JSON (Expecting ':' delimiter)"),
    (b'{"a":\n "\xff"}', "line 8, byte 8: is not UTF-8"), ("[" * 200_000, "is not JSON"), ("9" * 5000, "is not JSON"),
])  # fmt: skip
def test_what_is_wrong_with_json_is_said_with_its_lines(data: str | bytes, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        json_value(data, line=7)
    assert message in str(caught.value)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda own: st.lists(own) | st.dictionaries(st.text(), own),
    )
)
@settings(max_examples=100, deadline=None)
def test_json_is_what_python_reads(value: Any) -> None:
    text = json.dumps(value)
    assert json.dumps(json_value(text)) == text
    assert json.dumps(json_value(b"\xef\xbb\xbf" + text.encode())) == text


@given(
    st.recursive(
        _TEXTS | st.booleans() | st.none() | st.integers() | st.floats(allow_nan=False),
        lambda own: st.lists(own) | st.dictionaries(_TEXTS, own),
    )
)
@settings(max_examples=300, deadline=None)
def test_what_is_written_is_read_as_it_was(value: Any) -> None:
    for text in (yaml_text(value), yaml_flow(value), f"a: {yaml_flow(value)}  # a comment\n"):
        assert yaml_value(text) == ({"a": value} if text.startswith("a: ") and text.endswith("comment\n") else value)
        text.encode()
    assert "\n" not in yaml_flow(value)


def test_keys_of_yaml_1_1_are_values() -> None:
    assert yaml_1_1_value("{1: a, '1': b}") == {1: "a", "1": "b"}


def test_no_other_module_reads_yaml_or_json() -> None:
    """A reader of its own would take the last of two values of a key."""
    reads = re.compile(
        r"\byaml\.(?:safe_|full_)?load|\bimport yaml\b|\bjson\.loads?\(|JSONDecoder|object_pairs_hook|"
        r"from (?:json|yaml) import"
    )
    found = {path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py") if reads.search(path.read_text())}
    assert found == {"parsing.py"}
