"""Text, target and choices of a document, by the rules of the harness (0.4.13) and in a sandbox."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import BaseLoader, StrictUndefined, Template, TemplateError, meta
from jinja2.sandbox import SandboxedEnvironment

from biaseval.errors import InputError
from biaseval.examples.lm_eval.task import LmEvalTask


def _regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    """Return what the harness's filter does."""
    return re.sub(pattern, repl, string, count=count)


_ENVIRONMENT = SandboxedEnvironment(loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True)
_ENVIRONMENT.filters["regex_replace"] = _regex_replace


class DocError(Exception):
    """What is wrong with one document, in words that begin with the key of the task."""


def fields_of(source: str, known: Collection[str]) -> set[str]:
    """Return the fields of documents that a template, or the name of a field, takes its text from.

    Raises:
        InputError: the template is none.
    """
    if source in known:
        return {source}
    try:
        return meta.find_undeclared_variables(_ENVIRONMENT.parse(source)) & set(known)
    except TemplateError as error:
        raise InputError(f"{source!r} is no Jinja template ({error}); mend it") from error


def resolved(key: str, source: str, doc: Mapping[str, Any]) -> Any:
    """Return a field of a document where a key names one, else the text of the template.

    Raises:
        DocError: the template fails on the document.
    """
    if source in doc:
        return doc[source]
    try:
        return _template(source).render(**doc)
    except Exception as error:  # a template is a program of its author's
        raise DocError(f"{key}: the template fails ({' '.join(str(error).split())}); mend it") from error


def prompt_text(source: str, doc: Mapping[str, Any]) -> str:
    """Return the text of a document's item.

    Raises:
        DocError: it is none.
    """
    text = resolved("doc_to_text", source, doc)
    if not isinstance(text, str) or (text.isdigit() and source not in doc):
        raise DocError(
            f"doc_to_text: is {text!r}, which the harness takes for one of several inputs; labels are measured behind "
            "one text"
        )
    return text


def choices_of(task: LmEvalTask, doc: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a document's choices.

    Raises:
        DocError: they are no list of texts.
    """
    if not isinstance(task.doc_to_choice, str):
        return task.doc_to_choice
    found = resolved("doc_to_choice", task.doc_to_choice, doc)
    if isinstance(found, str) and task.doc_to_choice not in doc:
        try:
            found = ast.literal_eval(found)
        except (ValueError, SyntaxError) as error:
            raise DocError(f"doc_to_choice: {found!r} is no list of Python's; mend the template") from error
    if not isinstance(found, list) or not all(isinstance(choice, str) for choice in found):
        raise DocError(f"doc_to_choice: {found!r} is no list of texts; mend the template")
    return tuple(found)


def gold_of(task: LmEvalTask, doc: Mapping[str, Any], choices: tuple[str, ...]) -> str:
    """Return the right one of a document's choices.

    Raises:
        DocError: there is none, or several.
    """
    target: Any = task.doc_to_target
    if isinstance(target, str):
        target = resolved("doc_to_target", target, doc)
        if isinstance(target, str) and task.doc_to_target not in doc:
            target = _literal(target)
    if isinstance(target, list):
        raise DocError(f"doc_to_target: is {target!r}, several right choices; one is needed")
    if isinstance(target, int) and 0 <= target < len(choices):
        return choices[target]
    if isinstance(target, str) and target in choices:
        return target
    raise DocError(
        f"doc_to_target: {target!r} is neither one of the choices {list(choices)} nor a place among them, from 0"
    )


def _literal(target: str) -> Any:
    """Return what the harness makes of the text of a target: a number of digits, a list of brackets."""
    if target.isdigit() or (len(target) >= 2 and target[0] == "[" and target[-1] == "]"):
        try:
            return ast.literal_eval(target)
        except (SyntaxError, ValueError):
            return target
    return target


@lru_cache(maxsize=256)
def _template(source: str) -> Template:
    return _ENVIRONMENT.from_string(source)
