"""The published suites, and P1's rule for the selection of tasks (section 3.1 and App. A.2)."""

from collections.abc import Mapping, Sequence

from biaseval.records import read_columns

# fmt: off
REIF2024 = (
    50, 56, 65, 66, 69, 70, 73, 83, 92, 104, 106, 108, 109, 115, 116, 133, 156, 190, 195, 196, 197, 198,
    199, 200, 201, 202, 204, 209, 211, 212, 213, 214, 220, 221, 224, 226, 227, 228, 229, 230, 231, 232, 233,
    241, 242, 248, 268, 274, 276, 279, 280, 284, 285, 286, 290, 291, 296, 297, 298, 309, 310, 316, 317, 318,
    319, 320, 322, 323, 325, 326, 327, 328, 329, 333, 335, 337, 340, 341, 346, 349, 350, 351, 353, 355, 356,
    357, 359, 361, 362, 363, 375, 379, 382, 383, 384, 386, 387, 391, 392, 397, 398, 399, 400, 420, 421, 456,
    457, 458, 462, 472, 475, 476, 477, 478, 493, 494, 495, 496, 498, 502, 503, 508, 512, 517, 520, 521, 564,
    566, 573, 575, 577, 579, 580, 585, 586, 587, 588, 590, 607, 608, 609, 616, 621, 623, 629, 630, 632, 633,
    638, 673, 679, 681, 682, 683, 738, 744, 746, 767, 827, 828, 834, 843, 844, 846, 848, 875, 879, 880, 881,
    888, 889, 902, 903, 904, 905, 909, 923, 925, 929, 935, 936, 937, 1135, 1162, 1163, 1164, 1186, 1187,
    1196, 1197, 1198, 1199, 1200, 1201, 1202, 1203, 1204, 1205, 1206, 1207, 1208, 1209, 1210, 1211, 1212,
    1213, 1214, 1215, 1216, 1283, 1284, 1289, 1308, 1309, 1310, 1311, 1312, 1313, 1328, 1336, 1338, 1344,
    1346, 1347, 1354, 1361, 1384, 1391, 1393, 1408, 1418, 1429, 1431, 1434, 1439, 1442, 1488, 1495, 1500,
    1501, 1502, 1503, 1505, 1516, 1517, 1529, 1531, 1533, 1534, 1535, 1536, 1541, 1548, 1554, 1559, 1560,
    1583, 1584, 1587, 1589, 1592, 1593, 1599, 1604, 1612, 1615, 1623, 1624, 1630, 1640, 1645, 1661, 1712,
    1720, 1721, 1722, 1723, 1724, 1725,
)
"""The numbers of P1's 279 tasks."""

# fmt: on

SEMANTICALLY_EQUIVALENT = frozenset({
    "task073_commonsenseqa_answer_generation",
    "task104_semeval_2019_task10_closed_vocabulary_mathematical_answer_generation",
    "task156_codah_classification_adversarial", "task213_rocstories_correct_ending_classification",
    "task214_rocstories_incorrect_ending_classification", "task221_rocstories_two_choice_classification",
    "task228_arc_answer_generation_easy", "task229_arc_answer_generation_hard",
    "task230_iirc_passage_classification", "task231_iirc_link_classification",
    "task268_casehold_legal_answer_generation", "task296_storycloze_correct_end_classification",
    "task297_storycloze_incorrect_end_classification", "task309_race_answer_generation",
    "task310_race_classification", "task580_socialiqa_answer_generation",
    "task1135_xcsr_en_commonsense_mc_classification", "task1431_head_qa_answer_generation",
})  # fmt: skip
"""The 18 multi-choice and sentence-completion tasks of P1 section 6 (inferred: P1 prints only the count).

The set has whole names, because numbers may belong to other tasks.
"""

MAX_LABELS = 49
MAX_MEAN_OUTPUTS = 2.0
EXCLUDED = frozenset(
    {
        "task007_mctaco_answer_generation_transient_stationary", "task089_swap_words_verification",
        "task218_rocstories_swap_order_answer_generation", "task302_record_classification",
        "task342_winomt_classification_profession_pro", "task343_winomt_classification_profession_anti",
        "task563_discofuse_answer_generation", "task646_answer_generation",
        "task1359_numer_sense_answer_generation",
    },
)  # fmt: skip
"""The tasks that P1's code drops by name, besides those whose name has ``incorrect_answer``."""


def read_task_table(path: str) -> list[dict[str, str]]:
    """Return the rows of the table of tasks (Name, Summary, Category, Domain, Input Language, Output Language).

    Raises:
        InputError: the file cannot be read or lacks a column.
    """
    rows = read_columns(path, ("Name", "Summary", "Category", "Input Language", "Output Language"))
    return [{column: text.strip() for column, text in row.items()} for row in rows]


def is_candidate(row: Mapping[str, str]) -> bool:
    """Return whether the table describes a classification task: step 1 of P1's rule."""
    category, summary = row["Category"].lower(), row["Summary"].lower()
    return (
        any(word in row["Name"] for word in ("classification", "detection", "answer_generation"))
        or any(word in category for word in ("classification", "detection"))
        or any(word in summary for word in ("classification", "classify", "detect"))
    )


def is_english(row: Mapping[str, str]) -> bool:
    """Return whether both languages are exactly English: step 2."""
    return row["Input Language"] == row["Output Language"] == "English"


def select_by_table(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """Return the names left after steps 1 to 3 (`EXCLUDED`), in the table's order; step 4 needs the task files."""
    names = [row["Name"] for row in rows if is_candidate(row) and is_english(row)]
    return [name for name in names if name not in EXCLUDED and "incorrect_answer" not in name]
