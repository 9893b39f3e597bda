"""What tests read of a study, of its page and of its sentences."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any

from biaseval.report.qa import render_qa_page
from biaseval.report.qa_findings import QaFindings, read_qa_findings
from biaseval.report.qa_training_data import QaTraining, read_qa_training
from biaseval.report.qa_training_words import found
from biaseval.store import Run
from tests.pages import Page


def trained(run: Run, findings: QaFindings) -> QaTraining:
    read = read_qa_training(run, findings)
    assert read is not None
    return read


def page_of(run: Run) -> str:
    """Return the report without figures."""
    own = read_qa_findings(run)
    return render_qa_page(own, [], read_qa_training(run, own))


def lines(source: str, caption: str) -> list[str]:
    """Return the text of a table's rows below its head."""
    [found] = [one for one in re.findall(r"<table.*?</table>", source, re.S) if re.search(caption, one)]
    return [Page(row).text.strip() for row in re.findall(r"<tr>.*?</tr>", found.split("</thead>")[1], re.S)]


def changed(training: QaTraining, model: str, heuristic: str, **columns: Any) -> QaTraining:
    """Return it with other values in a row of ``qa_debiasing``."""
    place = (model, "squad", heuristic)
    row = training.debiasing[place] | columns
    return dataclasses.replace(training, debiasing=training.debiasing | {place: row})


def told(findings: QaFindings, training: QaTraining) -> list[str]:
    return found(findings, training, training.blocks[0], "squad")


def of_method(sentences: Sequence[str], start: str) -> str:
    [sentence] = [sentence for sentence in sentences if sentence.startswith(start)]
    return sentence
