"""Prompts as chats are, to the character, what the template makes of the whole conversation."""

import re
from pathlib import Path
from typing import Any

import pytest

from biaseval.errors import InputError
from biaseval.inputs.chat import ChatFormat, chat_format, chat_notes
from biaseval.inputs.template import PromptTemplate, item_template
from biaseval.spec import ModelSpec
from biaseval.spec.data import ItemSpec
from tests.label_bias.test_own_data import reviews, spec_of, texts, write_csv
from tests.labelplans import plan_tasks
from tests.tinymodels import make_tokenizer

# In the manner of ChatML, Llama 3 (with the date, white space stripped), Mistral (no system; system before the last
# turn; sentence ends behind answers), Gemma (no system, another name for the assistant) and Qwen (a system of its own).
TEMPLATES = {
    "chatml": "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "dated": "{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content | trim %}"
    "{% set messages = messages[1:] %}{% else %}{% set s = '' %}{% endif %}"
    "<|h|>system\n\nToday is {{ strftime_now('%d %B %Y') }}\n\n{{ s }}<|eot|>"
    "{% for m in messages %}<|h|>{{ m.role }}\n\n{{ m.content | trim }}<|eot|>{% endfor %}<|h|>assistant\n\n",
    "no system": "{{ bos_token }}{% for m in messages %}"
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content | trim }}{{ eos_token }}{% endif %}"
    "{% endfor %}",
    "system last": "{{ bos_token }}{% if messages[0].role == 'system' %}{% set s = messages[0].content %}"
    "{% set turns = messages[1:] %}{% else %}{% set turns = messages %}{% endif %}{% for m in turns %}"
    "{% if m.role == 'user' %}{% if loop.last and s is defined %}[INST] {{ s }}\n\n{{ m.content }}[/INST]"
    "{% else %}[INST] {{ m.content }}[/INST]{% endif %}{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}",
    "of its own": "{% if messages[0].role != 'system' %}<s>You are a helpful assistant.\n{% endif %}"
    "{% for m in messages %}<{{ m.role[0] }}>{{ m.content }}\n{% endfor %}<a>",
}
SAMPLE = ({"review": "fine {indeed}", "shop": "a"}, "good")
ITEM = "Review: {review}\nShop: {shop}\nMood: {label}"


def _tokenizer(template: str) -> Any:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = template
    return tokenizer


def _template(instruction: str | None = None) -> PromptTemplate:
    return item_template(ITEM, ItemSpec(), instruction)


def _rendered(tokenizer: Any, turns: list[tuple[str, str]], last: str, opening: str) -> str:
    """Return what the template makes of a conversation, the system's text where it takes one."""
    users = [user for user, _ in turns] + [last]
    messages = [{"role": "system", "content": opening}] if opening else []
    if opening and "alternate" in tokenizer.chat_template:
        messages, users[0] = [], f"{opening}\n\n{users[0]}"
    for number, user in enumerate(users):
        messages.append({"role": "user", "content": user})
        if number < len(turns):
            messages.append({"role": "assistant", "content": turns[number][1]})
    text: str = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return text


def _whole(form: ChatFormat, n_turns: int, label: str = "good") -> str:
    shown = "".join(form.demonstration({"review": f"r {n}", "shop": "s"}, label) for n in range(n_turns))
    return form.head + shown + form.test({"review": "last", "shop": "s"})


@pytest.mark.parametrize("name", list(TEMPLATES))
@pytest.mark.parametrize(("system", "instruction"), [(None, None), ("Be brief.", None), ("Be brief.", "Say the mood.")])
def test_a_prompt_is_what_the_template_makes_of_a_chat(name: str, system: str | None, instruction: str | None) -> None:
    tokenizer, inner = _tokenizer(TEMPLATES[name]), _template(instruction)
    form = chat_format(inner, tokenizer, system, SAMPLE)
    opening = "\n\n".join(filter(None, (system, instruction)))
    for n_turns in (0, 1, 2, 5):
        turns = [(inner.test({"review": f"r {n}", "shop": "s"}), "good") for n in range(n_turns)]
        expected = _rendered(tokenizer, turns, inner.test({"review": "last", "shop": "s"}), opening)
        begins = tokenizer("x")["input_ids"][0] == tokenizer.bos_token_id
        assert _whole(form, n_turns) == (expected.removeprefix(tokenizer.bos_token) if begins else expected)


def test_the_tokens_have_one_beginning_of_text_and_the_date_is_in_the_text(tmp_path: Path) -> None:
    tokenizer = _tokenizer(TEMPLATES["dated"])
    form = chat_format(_template(), tokenizer, None, SAMPLE)
    ids = tokenizer(_whole(form, 2))["input_ids"]
    assert (ids[0], ids.count(tokenizer.bos_token_id)) == (tokenizer.bos_token_id, 1)
    assert re.search(r"Today is \d\d [A-Z][a-z]+ 20\d\d\n", form.head)
    write_csv(tmp_path / "reviews.csv", reviews(40))
    spec = spec_of(tmp_path, model={"chat": "auto"}, prompt={"max_tokens": 12})
    [plan] = plan_tasks(spec, _tokenizer(TEMPLATES["chatml"]))
    assert any("a chat cannot be cut; raise prompt.max_tokens" in problem for problem in plan.problems)


def test_where_scores_are_not_what_the_template_writes_it_is_said() -> None:
    def cautions(template: str) -> tuple[str, ...]:
        return chat_format(_template(), _tokenizer(template), None, SAMPLE).cautions

    assert cautions(TEMPLATES["no system"]) == ()
    closed = "{% for m in messages %}{{ m.content }}{{ '[/I]' if m.role == 'user' else eos_token }}{% endfor %}"
    [no_space] = cautions(closed)
    assert no_space.startswith("the chat template writes no white space before an answer")
    [other_end] = cautions(TEMPLATES["chatml"])
    assert other_end.startswith("the chat template ends an answer with '<|im_end|>")
    assert "scoring.eos: false" in other_end


@pytest.mark.parametrize(("template", "problem"), [
    ("{% for m in messages %}{{ loop.index }}: {{ m.content }}\n{% endfor %}", "writes turns by their places"),
    ("{% for m in messages %}{{ m.content | upper }}\n{% endfor %}", "changes the text of turns"),
    ("{{ messages[-1].content }}", "changes the text of turns"),
    ("{{ raise_exception('not today') }}", "fails (not today)"),
    ("{% for m in messages %}{{ m.content | replace('{', '(') }}|{% endfor %}", "changes the text of turns"),
    *(
        ("{% for m in messages %}{{ m.content | CHANGED }}|{% endfor %}".replace("CHANGED", changed), shown)
        for changed, shown in {
            "replace('  ', ' ')": "changes the text of turns, as of 'two  spaces",
            "replace('\n\n\n', '\n\n')": "as of 'lines",
            "e": "as of '<b>bold</b>", "replace('</s>', '')": "as of 'tags </s>",
            "replace('<|im_start|>', '')": "as of 'tags </s>",
            "replace('{{', '{')": "as of '{{ braces",
            "replace('ö', 'oe')": "as of 'Größe", "replace('…', '...')": "as of 'Größe",
            "truncate(500)": "as of 'a long text", "replace('UPPER', 'upper')": "as of 'UPPER",
        }.items()
    ),
])  # fmt: skip
def test_a_template_that_is_not_alike_for_all_turns_is_refused(template: str, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)) as caught:
        chat_format(_template(), _tokenizer(template), None, SAMPLE)
    assert "model.chat: off" in str(caught.value)


def test_a_run_of_label_bias_plans_chats(tmp_path: Path) -> None:
    write_csv(tmp_path / "reviews.csv", reviews(40))
    prompt, model = {"item": ITEM, "instruction_text": "Say the mood."}, {"chat": "auto", "system": "Be brief."}
    spec = spec_of(tmp_path, data={"fields": {}}, prompt=prompt, model=model, calibration=["cc", "dc", "looc"])
    [plan] = plan_tasks(spec, _tokenizer(TEMPLATES["chatml"]))
    assert plan.problems == []
    contexts = {row["context_id"]: row for row in plan.contexts.to_pylist()}
    by_id = {f"train-{number}": row for number, row in enumerate(reviews(40))}
    expected = "<|im_start|>system\nBe brief.\n\nSay the mood.<|im_end|>\n"
    for row in [by_id[name] for name in contexts["reviews/k2.s1/all"]["demo_ids"]]:
        user = f"Review: {row['review']}\nShop: {row['shop']}\nMood:"
        expected += f"<|im_start|>user\n{user}<|im_end|>\n<|im_start|>assistant\n{row['mood']}<|im_end|>\n"
    whole = texts(plan, "main")["reviews/k2.s1/main/0"]
    assert whole.startswith(expected + "<|im_start|>user\nReview: ")
    assert whole.endswith("Mood:<|im_end|>\n<|im_start|>assistant\n")
    # Calibration inputs are made the same way, and leave-one-out contexts lack one exchange.
    cc = texts(plan, "cc")["reviews/k2.s1/cc/0"]
    assert cc.startswith(expected)
    assert "user\nReview: N/A\nShop: N/A\nMood:" in cc
    assert texts(plan, "looc")["reviews/k2.s1/looc/0"].count("<|im_start|>assistant") == 2


def test_a_chat_template_that_is_there_and_unused_is_said() -> None:
    with_template, without = _tokenizer(TEMPLATES["chatml"]), make_tokenizer()
    assert "model.chat: auto makes prompts the turns of a chat" in chat_notes(ModelSpec(path="m"), with_template)[0]
    assert chat_notes(ModelSpec(path="m"), without) == []
    assert chat_notes(ModelSpec(path="m", chat="auto"), with_template) == []
    with pytest.raises(ValueError, match=r"is part of a chat, and there is none; set model.chat: auto"):
        ModelSpec(path="m", system="Be brief.")
