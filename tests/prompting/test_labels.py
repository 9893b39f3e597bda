"""Labels that people, but not programs, take for the same, and quotes that belong to a file."""

import pytest

from biaseval.prompting.labels import label_cautions, same_number


@pytest.mark.parametrize(
    ("one", "other", "shown"),
    [
        ("caf\u00e9", "cafe\u0301", r"'caf\xe9' and 'cafe\u0301'"),
        ("yes", "yes\u200b", r"'yes' and 'yes\u200b'"),
        ("\ufeffyes", "yes", r"'\ufeffyes' and 'yes'"),
        ("co\u00adop", "coop", r"'co\xadop' and 'coop'"),
        ("\u2764\ufe0f", "\u2764", r"'\u2764\ufe0f' and '\u2764'"),
        ("e\u200d\u0301t\u00e9", "\u00e9t\u00e9", r"'e\u200d\u0301t\xe9' and '\xe9t\xe9'"),
        ("\uff39\uff45\uff53", "Yes", r"'\uff39\uff45\uff53' and 'Yes'"),
        ("not\u00a0good", "not good", r"'not\xa0good' and 'not good'"),
        ("Yes", "yes", "'Yes' and 'yes'"),
        ("STRASSE", "Straße", "'STRASSE' and 'Straße'"),
        ("yes", "yes ", "'yes' and 'yes '"),
        ("not  good", "not good", "'not  good' and 'not good'"),
        ("Да", "да", "'Да' and 'да'"),
        ("1", "1.0", "'1' and '1.0'"),
        ("-0.50", "-.5", ""),
        ("01", "+1.00", "'01' and '+1.00'"),
        ("１", "1.0", "'１' and '1.0'"),
        ("True", "true", "'True' and 'true'"),
        ("1", "1.", "'1' and '1.'"),
        ("1", "1e0", "'1' and '1e0'"),
        ("2E+1", "20.0", "'2E+1' and '20.0'"),
        ("1e1", "1e2", ""),
        ("1e", "1", ""),
    ],
)
def test_labels_that_look_alike_are_said_so_that_they_can_be_told_apart(one: str, other: str, shown: str) -> None:
    found = list(label_cautions([one, "something else", other]))
    expected = f"the labels {shown} look alike and count as different; if they mean the same, mend them"
    assert found == ([expected] if shown else [])


def test_labels_that_differ_are_left_alone() -> None:
    pairs = (("yes", "no"), ("1", "10"), ("1", "1.5"), ("resume", "résumé"), ("a b", "ab"), ("-1", "1"), ("C", "C++"))
    assert [list(label_cautions(labels)) for labels in (*pairs, ("", "0"))] == [[]] * 8


def test_what_else_is_odd_of_a_label_is_said() -> None:
    for label in ("\u200b", "\u2060 \ufeff", "\u3164", "\ufe0f"):
        assert list(label_cautions(["yes", label])) == [f"the label {label!a} cannot be seen; write a word for it"]
    for label in ("None", "nan", "NULL"):
        assert list(label_cautions(["yes", label, "none of these", "NA"])) == [
            f"the label {label!r} may be a missing value; where it is, leave its cells empty"
        ]
    for label in ("“x”", "„x“", "»x«", "«x»", "‘x’", "‚x‘", "‹x›", "＂x＂", "”x"):
        [caution] = label_cautions([label, "y", "’tis", "it’s"])
        assert caution.startswith(f"the quotes of {label!r} count as part of the label")
    assert list(label_cautions(['"pos"', '"neg', "'x'", "it's", "'tis", 'a "b"'])) == [
        "the quotes of '\"pos\"', '\"neg', \"'x'\" count as part of the label; where they are only the file's, take "
        "them out"
    ]
    together, other = label_cautions(["Yes", "no", "YES", "yes", "NO"])
    assert together.startswith("the labels 'Yes' and 'YES' and 'yes' look alike and count as different; if they mean")
    assert other.startswith("the labels 'no' and 'NO' look alike")


@pytest.mark.parametrize(
    ("text", "number"),
    [("1.0", "1"), (" 010 ", "10"), ("-0", "0"), ("100", "100"), ("1.50", "1.5"), ("TRUE", "true"), ("x", None)],
)  # fmt: skip
def test_ways_to_write_a_number_are_one(text: str, number: str | None) -> None:
    assert same_number(text) == number
