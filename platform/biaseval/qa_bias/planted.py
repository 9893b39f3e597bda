"""Generated questions with a planted shortcut of known strength, which the measure of bias has to find.

A context has four sentences of one form, and each of them names two people::

    Later Mara painted lamps that were sold by Nadia Holm.

The question asks for one of the eight: *Who was the painter of lamps?* Two things stand in two sentences each, and four
deeds happen to both, so that only thing and deed together identify the person. Two draws, independent of the text,
place the answer: its sentence, and before or after the thing. A shortcut changes one draw and leaves the other::

    ans_pos     the answer stands in the first sentence; threshold 0
    word_dist   the answer stands before the thing, 2 or 3 words from it; threshold 3. Otherwise it stands after it, 4
                or 5 words away, and somebody else is nearer

A shortcut tempts only where the question leaves doubt. So there are words for a deed that are used loosely
(`RELIABILITY`): at times they ask after the other person of the answer's sentence, or after who has the answer's place
in the other sentence with the thing. The answers to such questions are, by their words, wrong; no reader gets them all.
"""

import hashlib
import json
import random
from dataclasses import astuple
from typing import Literal, get_args

from biaseval.errors import InputError
from biaseval.qa_bias.data import Question, QuestionSet

Shortcut = Literal["ans_pos", "word_dist"]

SHORTCUTS: tuple[Shortcut, ...] = get_args(Shortcut)

N_SENTENCES = 4

RELIABILITY = (1.0, 0.8, 0.6, 0.4)
"""How often a word means its deed; one for each column of `DEEDS`."""
SHARES = (0.64, 0.12, 0.12, 0.12)
"""How often the words of a column of `DEEDS` are asked with."""

DEEDS = {
    "bought": ("buyer", "purchaser", "customer", "shopper"),
    "carried": ("carrier", "bearer", "porter", "courier"),
    "cleaned": ("cleaner", "washer", "polisher", "scrubber"),
    "found": ("finder", "discoverer", "spotter", "explorer"),
    "guarded": ("guard", "keeper", "warden", "watchman"),
    "painted": ("painter", "artist", "decorator", "colourist"),
    "repaired": ("repairer", "mender", "restorer", "mechanic"),
    "sold": ("seller", "vendor", "merchant", "trader"),
}
"""Verbs of contexts, and the words that questions have for who did it."""
OPENERS = ("Later", "Once", "Then", "Today", "Again", "Finally")
THINGS = (
    "baskets", "bells", "benches", "boats", "bottles", "boxes", "bowls", "brushes", "candles", "chairs",
    "clocks", "coats", "cups", "doors", "drums", "engines", "fences", "flags", "gloves", "hammers",
    "harps", "kettles", "kites", "ladders", "lamps", "maps", "masks", "mirrors", "nets", "ovens",
    "pianos", "plates", "ropes", "saddles", "shelves", "shoes", "tables", "tents", "vases", "wagons",
)  # fmt: skip
FIRST_NAMES = (
    "Agnes", "Albin", "Beata", "Bruno", "Celia", "Cyril", "Dario", "Delia", "Edgar", "Elsa",
    "Fabio", "Flora", "Gerda", "Gustav", "Hanno", "Hedda", "Igor", "Irma", "Jonas", "Judit",
    "Karim", "Kirsten", "Leopold", "Livia", "Mara", "Mirko", "Nadia", "Nestor", "Olaf", "Oriane",
    "Pablo", "Petra", "Quentin", "Rosa", "Rufus", "Selma", "Silvio", "Tamar", "Tobias", "Ulrich",
    "Ursula", "Valentin", "Vesna", "Wanda", "Wilbur", "Xenia", "Yusuf", "Zita",
)  # fmt: skip
LAST_NAMES = (
    "Adler", "Bartos", "Brandt", "Castell", "Dvorak", "Ekberg", "Fabian", "Ferrari", "Gruber", "Holm",
    "Horvat", "Ivanov", "Jensen", "Kessler", "Kovac", "Lindt", "Lorenz", "Moretti", "Novak", "Okafor",
    "Pereira", "Quist", "Ricci", "Santos", "Schmid", "Tanaka", "Urban", "Varga", "Weber", "Zeman",
)  # fmt: skip


def planted_questions(name: str, *, shortcut: str, strength: float, n_questions: int, seed: int) -> QuestionSet:
    """Return generated questions, in a share of which a shortcut is planted.

    At strength 0 a quarter of the answers is in each sentence, and half are near the thing. Questions are drawn from
    the seed and the name: fewer are the first of more, and strengths differ only in where answers are.

    Args:
        name: of the set.
        shortcut: one of `SHORTCUTS`.
        strength: from 0 to 1, how many questions are drawn to follow the shortcut. Of the others a quarter
            (``ans_pos``) or half (``word_dist``) do so by chance.
        n_questions: at least 1.
        seed: any integer.

    Returns:
        Questions ``planted-00001`` and so on, each with one answer of one word or two, which stands once in its
        context. The digest is that of their fields as JSON, a line each.

    Raises:
        InputError: another shortcut, or a strength or a number of questions that cannot be.
    """
    if shortcut not in SHORTCUTS:
        raise InputError(f"shortcut {shortcut!r}: cannot be planted; use one of {', '.join(SHORTCUTS)}")
    if not 0 <= strength <= 1:
        raise InputError(f"strength {strength}: is no share; give a number from 0 to 1")
    if n_questions < 1:
        raise InputError(f"n_questions {n_questions}: too few; give 1 or more")
    draw = random.Random(f"{seed} {name}")
    questions = [_question(draw, f"planted-{row + 1:05}", shortcut, strength) for row in range(n_questions)]
    lines = "".join(json.dumps(astuple(question)) + "\n" for question in questions)
    note = f"{name}: {n_questions:,} generated questions with {shortcut} planted at strength {strength:g}, seed {seed}"
    return QuestionSet(name, questions, [note], hashlib.sha256(lines.encode()).hexdigest())


def _question(draw: random.Random, example_id: str, shortcut: str, strength: float) -> Question:
    things = draw.sample(THINGS, 2) * 2
    draw.shuffle(things)
    verbs = draw.sample(list(DEEDS), N_SENTENCES)
    deeds = {thing: draw.sample(verbs, len(verbs)) for thing in sorted(set(things))}
    sentences = [(thing, deeds[thing].pop(), deeds[thing].pop()) for thing in things]
    names = [_name(draw, first) for first in draw.sample(FIRST_NAMES, 2 * N_SENTENCES)]
    people = list(zip(names[::2], names[1::2], strict=True))
    context = " ".join(
        f"{draw.choice(OPENERS)} {near} {near_verb} {thing} that were {far_verb} by {far}."
        for (near, far), (thing, near_verb, far_verb) in zip(people, sentences, strict=True)
    )
    sentence, place = draw.randrange(N_SENTENCES), draw.randrange(2)
    if draw.random() < strength:
        sentence, place = (0, place) if shortcut == "ans_pos" else (sentence, 0)
    thing = things[sentence]
    [other] = [number for number, own in enumerate(things) if own == thing and number != sentence]
    [column] = draw.choices(range(len(SHARES)), SHARES)
    is_other_person = draw.random() < 0.5
    if draw.random() < RELIABILITY[column]:
        verb = sentences[sentence][1 + place]
    else:
        verb = sentences[sentence][2 - place] if is_other_person else sentences[other][1 + place]
    answer = people[sentence][place]
    return Question(
        example_id=example_id,
        title="",
        question=f"Who was the {DEEDS[verb][column]} of {thing}?",
        context=context,
        answers=(answer,),
        answer_starts=(context.index(answer),),
    )


def _name(draw: random.Random, first: str) -> str:
    last = draw.choice(LAST_NAMES)
    return f"{first} {last}" if draw.random() < 0.5 else first
