"""Subjects of questions by rules: the embedded default of ``subj_pos`` where no spaCy pipeline is given.

Looks for the verb and its auxiliary, and takes the wh-phrase before ("Which team won ...?") or the noun phrase between
auxiliary and verb ("When did Lee sell ...?") as subject; its last noun before a preposition is the token that a parser
would mark ``nsubj``. Subjects of passives are none ("When was the mill built?"), as for spaCy, which marks them
``nsubjpass``. It is a rough stand-in: verbs are known by a list and by endings, and long questions are cut wrongly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from biaseval.qa_bias.text import word_list

_TOKEN = re.compile(r"(?:[^\W\d_]\.){2,}|\d+(?:[.,]\d+)+|[^\W_]+|['’]s\b|[^\w\s]")

_DO = word_list("do does did")
_BE = word_list("is are was were am 's ’s")
_HAVE = word_list("has have had")
_MODAL = word_list("can could will would shall should may might must")
_AUXILIARIES = _DO | _BE | _HAVE | _MODAL
_PREPOSITIONS = word_list("""
of in on at to for from with by as during after before between among against into onto through about over under
since until within without near behind beyond around across along toward towards upon like than via per outside
inside throughout besides including regarding according
""")
_DETERMINERS = word_list(
    "the a an this that these those his her its their our my your some any each every no another all both"
)
_SUFFIXES = word_list("jr sr ii iii iv")
_PRONOUNS = word_list("he she they we i")
_CONJUNCTIONS = word_list("and or but nor")
_RELATIVES = word_list("that who which")
_SUBORDINATORS = word_list("when while after before because if where although though since until as that")
_WH_WORDS = word_list("who whom what which whose when where why how")
_ADVERBS = word_list("""
not also usually often first originally initially typically generally still now currently once never always most
mainly primarily mostly commonly officially eventually finally later then ever actually already only even just
""")
_REGULAR = word_list("""
abandon abolish absorb accept accompany accomplish account achieve acquire act adapt add address adopt advance
advise affect agree aid aim allow announce answer appear apply appoint approach approve argue arrange arrest arrive
ask assassinate assign assist associate assume attack attempt attend attract award ban base believe belong benefit
betray blame block borrow broadcast call cancel carry categorize cause celebrate change charge choose claim classify
close coin collaborate collapse collect combine command commission commit compare compete complain complete compose
conclude condemn conduct confirm connect conquer consider consist construct consume contact contain continue
contribute control convert convince correspond cost cover crash create criticize cross damage dance date deal debate
declare decide decline decrease dedicate defeat defend define deliver demand demonstrate deny depend depict derive
describe design destroy determine develop devise die differ direct disagree disappear disband discover discuss
display dissolve distinguish divide dominate donate doubt draft earn eliminate emerge emigrate emphasize employ
enable enact encounter encourage end endorse enforce enjoy enroll ensure enter escape establish estimate evolve
examine exceed exchange exclude execute exhibit exist expand expect experience explain explore export express extend
face fail favor feature fill finish follow force form found function fund gain generate govern graduate guarantee
guide handle happen harm hate help hire hope host identify ignore imply import impose improve include incorporate
increase indicate influence inform inhabit inherit initiate inspire install intend interact introduce invade invent
invest investigate invite involve issue join judge justify kill label lack land last launch learn lie limit link
list live locate look lose maintain manage manufacture march mark marry match mean measure mention merge migrate
move murder name need negotiate note object observe occupy occur offer open operate oppose order organize originate
outlaw own participate pass perform permit persuade place plan plant play populate possess pour practice praise
precede predict prefer prepare prescribe present preserve press prevent proclaim produce prohibit promise promote
pronounce propose protect protest prove provide publish punish purchase push qualify raise range rank reach react
receive recognize recommend record recover reduce refer reflect refuse regard regulate reign reject relate release
rely remain remember remove rename render renovate repeat replace report represent request require rescue resemble
reside resign resist resolve respond restore restrict result retain retire return reveal revolt reward rule sail
save score seem select separate serve settle share shift sign simplify slow solve specialize spend spread stage
start state stay stimulate stop strengthen study succeed suffer suggest supply support surpass surrender surround
survive switch target tend test threaten title touch trace track train transfer transform translate transmit
transport travel treat trigger try turn type undergo unite use value vary view violate visit vote vow wait walk want
warn watch wish witness work worry worship yield
""")
_IRREGULAR = """
be was been; become became become; begin began begun; break broke broken; bring brought brought; build built built
buy bought bought; catch caught caught; choose chose chosen; come came come; cost cost cost; cut cut cut
deal dealt dealt; do did done; draw drew drawn; drive drove driven; eat ate eaten; fall fell fallen; feel felt felt
fight fought fought; find found found; flee fled fled; fly flew flown; get got gotten; give gave given; go went gone
grow grew grown; have had had; hear heard heard; hit hit hit; hold held held; keep kept kept; know knew known
lead led led; leave left left; let let let; lie lay lain; lose lost lost; make made made; mean meant meant
meet met met; pay paid paid; put put put; read read read; ride rode ridden; rise rose risen; run ran run
say said said; see saw seen; seek sought sought; sell sold sold; send sent sent; set set set; show showed shown
sing sang sung; sit sat sat; speak spoke spoken; spend spent spent; spread spread spread; stand stood stood
steal stole stolen; strike struck struck; swim swam swum; take took taken; teach taught taught; tell told told
think thought thought; throw threw thrown; undergo underwent undergone; understand understood understood
wear wore worn; win won won; write wrote written; bear bore born; overthrow overthrew overthrown
withdraw withdrew withdrawn; foresee foresaw foreseen; shoot shot shot; sink sank sunk; burn burnt burnt
"""


def _third_person(verb: str) -> str:
    if verb.endswith(("s", "x", "z", "ch", "sh", "o")):
        return verb + "es"
    return verb[:-1] + "ies" if verb[-1] == "y" and verb[-2] not in "aeiou" else verb + "s"


def _past(verb: str) -> str:
    if verb.endswith("e"):
        return verb + "d"
    return verb[:-1] + "ied" if verb[-1] == "y" and verb[-2] not in "aeiou" else verb + "ed"


def _irregular() -> list[tuple[str, str, str]]:
    found = []
    for entry in _IRREGULAR.strip().replace("\n", ";").split(";"):
        base, past, participle = entry.split()
        found.append((base, past, participle))
    return found


_TRIPLES = _irregular()
_BASES = _REGULAR | {base for base, _, _ in _TRIPLES}
_PARTICIPLES = frozenset(map(_past, _REGULAR)) | {participle for _, _, participle in _TRIPLES}
_FINITE = frozenset(map(_past, _REGULAR)) | {past for _, past, _ in _TRIPLES} | frozenset(map(_third_person, _BASES))
# Of the third person's forms and bases, those that are mostly nouns behind "which", "what" and "how many".
_MOSTLY_NOUNS = word_list("""
acts aims attacks awards causes changes charges claims costs covers dates deals debates demands designs ends exports
faces features forms functions funds grants groups guides hosts imports issues judges labels lands links lists marks
matches measures names needs objects offers orders places plans plants plays points presents protests purchases
ranges ranks records reports requests results returns rules runs scores shares shifts shows signs stages starts
states studies supplies supports targets tests titles tracks trains treats turns types uses values views visits
votes walks wins works lies sets stands cuts hits drives draws rides rises falls fights finds breaks
""")

_MOSTLY_PASSIVE = word_list("called known named used based made considered born seen thought")


def subjects(question: str) -> list[str]:
    """Return the texts of the question's active subjects, single tokens, in order."""
    return _Question(_TOKEN.findall(question)).subjects()


class _Question:
    """The tokens of a question, and what stands where."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self._tokens = tokens
        self._small = [token.lower() for token in tokens]

    def subjects(self) -> list[str]:
        main = self._main_subject()
        found = set() if main is None else {main}
        return [self._tokens[position] for position in sorted(found | self._further_subjects())]

    def _main_subject(self) -> int | None:
        """Return the position of the main clause's active subject."""
        small, n_tokens = self._small, len(self._small)
        wh = next((place for place, token in enumerate(small) if token in _WH_WORDS), None)
        if wh is None or (small[0] not in _PREPOSITIONS and any(self._is_finite(place) for place in range(1, wh))):
            return self._subject_of_statement()
        verb = self._first_verb(wh)
        if verb >= n_tokens:
            return None
        head = self._head(wh + 1, verb) if verb > wh + 1 else wh
        if small[wh] in {"when", "where", "why", "whom"} or (small[wh] == "how" and head == wh):
            head = None
        if small[verb] not in _AUXILIARIES:
            return head
        after = self._skip_adverbs(verb + 1)
        if small[verb] in _DO:
            return self._subject_before_base(after)
        if self._is_participle(after) or self._is_ing(after) or small[after : after + 1] in (["be"], ["been"]):
            return None if self._is_passive(verb) else head
        if small[verb] in _MODAL:
            if after < n_tokens and small[after] in _BASES and self._tokens[after].islower():
                return head
            return self._subject_before_base(after)
        if small[verb] in _HAVE:
            return self._subject_before_participle(after)
        if self._is_adjective(after):
            return head
        return self._subject_before_participle(after) if after < n_tokens else head

    def _first_verb(self, wh: int) -> int:
        """Return where the verb stands behind the wh-phrase: an auxiliary, or a finite verb as in "Who sold"."""
        small = self._small
        for place in range(wh + 1, len(small)):
            if small[place] in _AUXILIARIES and not (small[place] in {"'s", "’s"} and place > wh + 1):
                return place
            is_first = place == wh + 1
            if not self._tokens[place].islower() or small[place] in _PREPOSITIONS | _DETERMINERS:
                continue
            if small[wh] == "who" and is_first and small[place] not in _ADVERBS:
                return place
            is_noun = small[place] in _MOSTLY_NOUNS and (is_first or not self._begins_object(place + 1))
            is_past = not is_first and self._is_participle(place) and self._begins_object(place + 1)
            if is_past or (
                small[place] in _FINITE and not is_noun and not (is_first and small[wh] in {"how", "whose"})
            ):
                return place
            if small[place] in _BASES and not is_first and self._is_plural(place - 1) and small[wh] in {"how", "what"}:
                return place
        return len(small)

    def _begins_object(self, place: int) -> bool:
        """Return whether what stands there more likely follows a verb than a noun."""
        if place >= len(self._small):
            return False
        token = self._small[place]
        return token in _DETERMINERS | _PREPOSITIONS - {"of"} or self._tokens[place][0].isupper()

    def _head(self, start: int, end: int) -> int | None:
        """Return the last noun of the noun phrase that begins at ``start``."""
        head = None
        for place in range(start, end):
            token = self._small[place]
            if token in _PREPOSITIONS | _CONJUNCTIONS | _RELATIVES or not (token[0].isalnum() or token[0] in "-'’\""):
                if head is not None:
                    break
                continue
            if (
                token[0].isalnum()
                and token not in _DETERMINERS | _ADVERBS | _SUFFIXES
                and not (token.endswith("ly") and head is not None)
            ):
                head = place
        return head

    def _subject_before_base(self, start: int) -> int | None:
        """Return the head of the noun phrase at ``start`` that an infinitive follows, as in "did Lee sell"."""
        tokens, small, n_tokens = self._tokens, self._small, len(self._small)
        if start >= n_tokens:
            return None
        if small[start] in _PRONOUNS | {"it", "you"}:
            return start
        for place in range(start + 1, n_tokens):
            before = small[place - 1]
            if tokens[place].islower() and small[place] in _BASES | {"be", "have"} and before not in _DETERMINERS:
                is_passive = small[place] == "be" and self._is_participle(place + 1)
                return None if is_passive else self._head(start, place)
        stop = next(
            (
                place
                for place in range(start + 1, n_tokens)
                if small[place] in _PREPOSITIONS | _DETERMINERS or not small[place][0].isalnum()
            ),
            n_tokens,
        )
        return self._head(start, stop - 1 if stop - start > 1 else stop)

    def _subject_before_participle(self, start: int) -> int | None:
        """Return the head of the noun phrase behind "is" or "has"; None before a passive, as in "was it built"."""
        small, n_tokens = self._small, len(self._small)
        if start < n_tokens and small[start] == "there":
            return None
        head = start if small[start : start + 1] and small[start] in _PRONOUNS | {"it"} else None
        for place in range(start + 1, n_tokens):
            if not self._tokens[place].islower() or small[place - 1] in _DETERMINERS:
                continue
            if small[place] in _RELATIVES | _WH_WORDS:
                return head if head is not None else self._head(start, place)
            if self._is_participle(place):
                is_perfect = small[start - 1] in _HAVE and small[place] != "been"
                return self._head(start, place) if is_perfect or self._is_reduced_relative(start, place) else None
            if self._is_ing(place):
                return self._head(start, place)
        return head if head is not None else self._head(start, n_tokens)

    def _is_reduced_relative(self, start: int, participle: int) -> bool:
        """Return whether a participle belongs to the noun before it, as in "What is the name given to mills"."""
        small = self._small
        return (
            start >= 2
            and small[start - 2] in {"what", "who"}
            and small[participle] not in _MOSTLY_PASSIVE
            and participle + 2 < len(small)
            and small[participle + 1] in _PREPOSITIONS
            and small[participle + 2][0].isalnum()
        )

    def _subject_of_statement(self) -> int | None:
        """Return the subject before the first verb, as in "The Broncos won how often?"."""
        for place in range(1, len(self._small)):
            if self._small[place] in _AUXILIARIES or (self._tokens[place].islower() and self._small[place] in _FINITE):
                is_none = self._is_passive(place) or self._small[place - 1] == "there"
                return None if is_none else self._head(0, place)
        return None

    def _further_subjects(self) -> set[int]:
        """Return the subjects of relative and subordinate clauses."""
        small, found = self._small, set()
        for place in range(1, len(small) - 1):
            if small[place] in _PRONOUNS and small[place] != "i":
                found.add(place)
            elif small[place] in _RELATIVES and small[place - 1] not in _PREPOSITIONS and place > 2:
                follower = self._skip_adverbs(place + 1)
                if self._is_finite(follower) and not self._is_passive(follower):
                    found.add(place)
            elif small[place] in _SUBORDINATORS and place > 1 and not self._is_ing(place + 1):
                verb = next(
                    (later for later in range(place + 2, min(place + 7, len(small))) if self._is_finite(later)), 0
                )
                if verb and not self._is_passive(verb):
                    head = self._head(place + 1, verb)
                    found |= set() if head is None else {head}
        return found

    def _skip_adverbs(self, place: int) -> int:
        while place < len(self._small) and (self._small[place] in _ADVERBS or self._small[place].endswith("ly")):
            place += 1
        return place

    def _is_plural(self, place: int) -> bool:
        return self._small[place].endswith("s") or self._small[place] in {"people", "children", "men", "women"}

    def _is_participle(self, place: int) -> bool:
        if place >= len(self._small) or not self._tokens[place].islower():
            return False
        token = self._small[place]
        return token in _PARTICIPLES or (token.endswith("ed") and len(token) > 4)

    def _is_adjective(self, place: int) -> bool:
        """Return whether an adjective and a preposition stand there, as in "What is responsible for"."""
        is_followed = place + 1 < len(self._small) and self._small[place + 1] in _PREPOSITIONS - {"of"}
        return is_followed and self._small[place].endswith(
            ("ble", "ful", "ous", "ive", "ent", "ant", "ar", "ary", "ic")
        )

    def _is_ing(self, place: int) -> bool:
        token = self._small[place] if place < len(self._small) else ""
        return token.endswith("ing") and len(token) > 4

    def _is_finite(self, place: int) -> bool:
        if place >= len(self._small) or not self._tokens[place].islower():
            return False
        token = self._small[place]
        return token in _AUXILIARIES - {"'s", "’s"} or (token in _FINITE and token not in _MOSTLY_NOUNS)

    def _is_passive(self, verb: int) -> bool:
        """Return whether the verb group that begins at ``verb`` is a form of "be" and a participle."""
        small = self._small
        after = self._skip_adverbs(verb + 1)
        if small[verb] in _HAVE | _MODAL and small[after : after + 1] == ["have"]:
            after = self._skip_adverbs(after + 1)
        if small[verb] in _HAVE | _MODAL and small[after : after + 1] in (["been"], ["be"]):
            return self._is_participle(self._skip_adverbs(after + 1))
        return small[verb] in _BE and self._is_participle(after)
