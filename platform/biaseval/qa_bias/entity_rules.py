"""Named entities by rules: the embedded default of ``sim_ents`` where no spaCy pipeline is given.

A text becomes tokens, each token a kind (one character: a year, a month, a capitalised word ...), and entities are
found by one regular expression over the kinds. Capitalised spans then get their label by small lists and cues. The
labels are those of spaCy's English pipelines (OntoNotes). It is a rough stand-in: numbers and dates are mostly right,
persons, organisations and places often only plausible, and unknown names are guessed by their surroundings.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from biaseval.qa_bias.text import STOP_WORDS, word_list


def _list(text: str) -> frozenset[str]:
    return frozenset(entry.strip() for line in text.strip().splitlines() for entry in line.split(",") if entry.strip())


_COUNTRIES_AND_STATES = _list("""
Afghanistan, Albania, Algeria, Andorra, Angola, Argentina, Armenia, Australia, Austria, Azerbaijan, Bahamas, Bahrain
Bangladesh, Barbados, Belarus, Belgium, Belize, Benin, Bhutan, Bolivia, Bosnia, Botswana, Brazil, Brunei, Bulgaria
Burma, Burundi, Cambodia, Cameroon, Canada, Chad, Chile, China, Colombia, Congo, Costa Rica, Croatia, Cuba, Cyprus
Czech Republic, Czechoslovakia, Denmark, Djibouti, Dominica, Dominican Republic, Ecuador, Egypt, El Salvador
Eritrea, Estonia, Ethiopia, Fiji, Finland, France, Gabon, Gambia, Germany, East Germany, West Germany, Ghana, Greece
Grenada, Guatemala, Guinea, Guyana, Haiti, Honduras, Hungary, Iceland, India, Indonesia, Iran, Iraq, Ireland
Northern Ireland, Israel, Italy, Ivory Coast, Jamaica, Japan, Jordan, Kazakhstan, Kenya, Korea, North Korea
South Korea, Kosovo, Kuwait, Kyrgyzstan, Laos, Latvia, Lebanon, Liberia, Libya, Liechtenstein, Lithuania, Luxembourg
Macedonia, Madagascar, Malawi, Malaysia, Maldives, Mali, Malta, Mauritania, Mauritius, Mexico, Moldova, Monaco
Mongolia, Montenegro, Morocco, Mozambique, Myanmar, Namibia, Nepal, Netherlands, Holland, New Zealand, Nicaragua
Niger, Nigeria, Norway, Oman, Pakistan, Palestine, Panama, Papua New Guinea, Paraguay, Peru, Philippines, Poland
Portugal, Prussia, Qatar, Romania, Russia, Rwanda, Samoa, San Marino, Saudi Arabia, Scotland, Senegal, Serbia
Sierra Leone, Singapore, Slovakia, Slovenia, Somalia, South Africa, Soviet Union, USSR, U.S.S.R., Spain, Sri Lanka
Sudan, South Sudan, Suriname, Sweden, Switzerland, Syria, Taiwan, Tajikistan, Tanzania, Thailand, Tibet, Togo, Tonga
Trinidad, Tunisia, Turkey, Turkmenistan, Uganda, Ukraine, United Arab Emirates, United Kingdom, UK, U.K.
Great Britain, Britain, England, Wales, United States, United States of America, US, U.S., USA, U.S.A., America
Uruguay, Uzbekistan, Vatican, Vatican City, Venezuela, Vietnam, Yemen, Yugoslavia, Zambia, Zimbabwe, Hong Kong
Macau, Puerto Rico, Greenland, Persia, Roman Empire, British Empire, Ottoman Empire, Holy Roman Empire
Byzantine Empire, Alabama, Alaska, Arizona, Arkansas, California, Colorado, Connecticut, Delaware, Florida, Georgia
Hawaii, Idaho, Illinois, Indiana, Iowa, Kansas, Kentucky, Louisiana, Maine, Maryland, Massachusetts, Michigan
Minnesota, Mississippi, Missouri, Montana, Nebraska, Nevada, New Hampshire, New Jersey, New Mexico, New York
North Carolina, North Dakota, Ohio, Oklahoma, Oregon, Pennsylvania, Rhode Island, South Carolina, South Dakota
Tennessee, Texas, Utah, Vermont, Virginia, Washington, West Virginia, Wisconsin, Wyoming, Ontario, Quebec, Alberta
Manitoba, British Columbia, Nova Scotia, Victoria, Queensland, New South Wales, Tasmania, South Australia
Western Australia, Bavaria, Saxony, Normandy, Brittany, Burgundy, Catalonia, Sicily, Lombardy, Tuscany, Silesia
Bohemia, Moravia, Flanders, Punjab, Bengal, Kashmir, Yorkshire, Cornwall, Kent, Essex, Sichuan, Yunnan
""")
_CITIES = _list("""
London, Paris, Berlin, Rome, Madrid, Vienna, Moscow, Beijing, Shanghai, Tokyo, Kyoto, Osaka, Seoul, Delhi, New Delhi
Mumbai, Calcutta, Kolkata, Istanbul, Constantinople, Athens, Cairo, Alexandria, Jerusalem, Baghdad, Tehran, Damascus
Amsterdam, Brussels, Antwerp, Copenhagen, Stockholm, Oslo, Helsinki, Dublin, Belfast, Edinburgh, Glasgow, Cardiff
Manchester, Liverpool, Birmingham, Leeds, Oxford, Cambridge, Bristol, Newcastle, Sheffield, Nottingham, Southampton
Lisbon, Porto, Barcelona, Seville, Valencia, Milan, Naples, Turin, Florence, Venice, Genoa, Bologna, Geneva, Zurich
Basel, Bern, Munich, Hamburg, Frankfurt, Cologne, Dresden, Leipzig, Stuttgart, Nuremberg, Wittenberg, Prague, Brno
Budapest, Warsaw, Krakow, Kraków, Gdansk, Łódź, Bucharest, Sofia, Belgrade, Zagreb, Kiev, Kyiv, Minsk, Riga, Vilnius
Saint Petersburg, St. Petersburg, Leningrad, Lyon, Marseille, Bordeaux, Toulouse, Strasbourg, Rouen, Graz, Salzburg
New York City, Manhattan, Brooklyn, Los Angeles, Chicago, Houston, Philadelphia, Phoenix, San Antonio, San Diego
Dallas, San Francisco, San Jose, Austin, Jacksonville, Fresno, Sacramento, Oakland, Santa Clara, Seattle, Portland
Denver, Las Vegas, Salt Lake City, Minneapolis, St. Louis, Kansas City, New Orleans, Atlanta, Miami, Tampa, Orlando
Charlotte, Nashville, Memphis, Louisville, Cincinnati, Cleveland, Columbus, Detroit, Milwaukee, Indianapolis
Pittsburgh, Buffalo, Boston, Baltimore, Washington D.C., Washington DC, Richmond, Honolulu, Toronto, Montreal
Ottawa, Vancouver, Winnipeg, Calgary, Edmonton, Mexico City, Havana, Rio de Janeiro, São Paulo, Sao Paulo
Buenos Aires, Santiago, Lima, Bogotá, Caracas, Sydney, Melbourne, Brisbane, Perth, Adelaide, Canberra, Auckland
Wellington, Nairobi, Lagos, Accra, Johannesburg, Cape Town, Bangkok, Jakarta, Manila, Hanoi, Saigon, Kabul, Karachi
Lahore, Islamabad, Dubai, Mecca, Medina, Riyadh, Reykjavík, Reykjavik, Carthage, Troy, Sparta, Babylon, Pompeii
Hiroshima, Nagasaki, Nanjing, Guangzhou, Wuhan
""")
_LOCATIONS = _list("""
Africa, North Africa, West Africa, East Africa, Sub-Saharan Africa, Asia, Central Asia, East Asia, Southeast Asia
South Asia, Europe, Eastern Europe, Western Europe, Central Europe, Northern Europe, North America, South America
Central America, Latin America, Antarctica, Middle East, Far East, Arctic, Antarctic, Pacific, Atlantic
Mediterranean, Caribbean, Balkans, Scandinavia, Siberia, Sahara, Amazon, Andes, Alps, Himalayas, Rockies, Pyrenees
Carpathians, Rhine, Danube, Nile, Thames, Seine, Volga, Ganges, Yangtze, Midwest, New England, Southern California
Northern California, Earth, Mars, Venus, Jupiter, Saturn, Moon, Iberia, Anatolia, Mesopotamia, Crimea, Caucasus
""")
_GROUPS = _list("""
American, Americans, African, Africans, Asian, Asians, European, Europeans, English, Englishman, British, Briton
Britons, Scottish, Scots, Welsh, Irish, French, Frenchman, German, Germans, Austrian, Swiss, Dutch, Belgian, Spanish
Spaniards, Portuguese, Italian, Italians, Greek, Greeks, Turkish, Turks, Turk, Russian, Russians, Soviet, Soviets
Polish, Poles, Czech, Slovak, Hungarian, Romanian, Bulgarian, Serbian, Serbs, Croatian, Ukrainian, Swedish, Swedes
Norwegian, Danish, Danes, Finnish, Finns, Icelandic, Chinese, Japanese, Korean, Vietnamese, Thai, Indian, Indians
Pakistani, Iranian, Persian, Persians, Iraqi, Israeli, Egyptian, Arab, Arabs, Arabic, Jew, Jews, Jewish, Christian
Christians, Muslim, Muslims, Islamic, Islam, Islamist, Hindu, Hindus, Buddhist, Buddhists, Catholic, Catholics
Roman Catholic, Protestant, Protestants, Orthodox, Lutheran, Lutherans, Calvinist, Calvinists, Methodist, Methodists
Anglican, Baptist, Puritan, Sunni, Shia, Jesuit, Jesuits, Roman, Romans, Byzantine, Ottoman, Ottomans, Norman
Normans, Viking, Vikings, Saxon, Saxons, Anglo-Saxon, Anglo-Saxons, Mongol, Mongols, Mongolian, Tibetan, Han
Huguenot, Huguenots, Frankish, Franks, Goths, Celtic, Slavic, Germanic, Latin, Hispanic, Latino, Mexican, Canadian
Cuban, Brazilian, Australian, Australians, Aboriginal, Native American, Native Americans, Inuit, Maori, Kenyan
Nigerian, Ethiopian, South African, Democrat, Democrats, Democratic, Republican, Republicans, Communist, Communists
Nazi, Nazis, Conservative, Socialist, Marxist, Liberal, Victorian, Californian, Texan, Parisian, Venetian, Bavarian
Prussian, Polynesian, Caribbean
""")
_LANGUAGES = _list("""
English, French, German, Spanish, Portuguese, Italian, Latin, Greek, Arabic, Hebrew, Russian, Polish, Chinese
Mandarin, Japanese, Korean, Dutch, Turkish, Hindi, Sanskrit, Persian, Welsh, Irish, Gaelic, Yiddish, Swahili
Old English, Tamil
""")
_ORGANISATIONS = _list("""
Congress, Parliament, Senate, House of Representatives, House of Commons, House of Lords, Supreme Court, Pentagon
White House, Kremlin, United Nations, European Union, European Commission, League of Nations, Red Cross, World Bank
Google, Microsoft, Apple, Amazon.com, Facebook, Twitter, YouTube, Netflix, Disney, BBC, CNN, ABC, NBC, CBS, ESPN
Fox, Intel, Sony, Nintendo, Toyota, Ford, Boeing, Airbus, Nokia, Samsung, Pepsi, Coca-Cola, Harvard, Yale, Princeton
MIT, Stanford, UCLA, Cambridge University, Oxford University, Federal Reserve, Communist Party, Labour, Sky, Gestapo
Luftwaffe
""")
_HOLIDAYS = _list("Christmas, Easter, Thanksgiving, Halloween, New Year, New Year's Day, Ramadan, Sabbath, Lent")
_GAZETTEER: dict[str, str] = {
    **dict.fromkeys(_HOLIDAYS, "DATE"),
    **dict.fromkeys(_ORGANISATIONS, "ORG"),
    **dict.fromkeys(_GROUPS, "NORP"),
    **dict.fromkeys(_LOCATIONS, "LOC"),
    **dict.fromkeys(_CITIES | _COUNTRIES_AND_STATES, "GPE"),
}

_FIRST_NAMES = _list("""
Aaron, Abraham, Ada, Adam, Adolf, Albert, Alexander, Alexandra, Alfred, Alice, Amy, Andrew, Angela, Ann, Anna, Anne
Anthony, Antonio, Arthur, Barack, Barbara, Benjamin, Bernard, Bill, Bob, Brian, Carl, Carlos, Caroline, Catherine
Charles, Charlotte, Chris, Christian, Christopher, Claude, Clara, Dan, Daniel, Dante, David, Diana, Donald, Dorothy
Edgar, Edmund, Edward, Edwin, Eleanor, Elizabeth, Elon, Emily, Emma, Enrico, Eric, Erik, Ernest, Eugene, Eva, Evan
Felix, Ferdinand, Fidel, Francis, Francisco, Frank, Franklin, Fred, Frederick, Friedrich, Galileo, Gary, Geoffrey
George, Gerald, Gerard, Giovanni, Giuseppe, Grace, Graham, Gustav, Hans, Harold, Harriet, Harry, Heinrich, Helen
Henri, Henry, Herbert, Herman, Howard, Hugh, Hugo, Ian, Igor, Immanuel, Isaac, Isabella, Ivan, Jack, Jacob, Jacques
James, Jan, Jane, Jason, Jean, Jeff, Jennifer, Jeremy, Jerry, Jesse, Jesus, Jim, Jimmy, Joan, Joe, Johann, Johannes
John, Johnny, Jonathan, Jordan, Jose, José, Josef, Joseph, Joshua, Josiah, Juan, Julia, Julian, Julius, Karl, Kate
Katharina, Katherine, Keith, Ken, Kenneth, Kevin, Kim, Kurt, Larry, Laura, Lawrence, Lee, Lena, Leo, Leon, Leonard
Leonardo, Leonhard, Lewis, Linda, Louis, Louise, Lucas, Ludwig, Luis, Luke, Lyndon, Malcolm, Marco, Margaret, Maria
Marie, Mark, Martin, Mary, Matt, Matthew, Maurice, Max, Michael, Michelle, Miguel, Mike, Mohammed, Muhammad, Nancy
Napoleon, Neil, Nelson, Nicholas, Nick, Niels, Nikola, Noah, Oliver, Oscar, Otto, Patricia, Patrick, Paul, Pedro
Peter, Philip, Philippe, Pierre, Plato, Rachel, Ralph, Ray, Raymond, Rebecca, Richard, Robert, Roger, Ron, Ronald
Rose, Roy, Rudolf, Russell, Ruth, Ryan, Sam, Samuel, Sarah, Scott, Sean, Sebastian, Sigmund, Simon, Sofia, Sophie
Stanley, Stephen, Steve, Steven, Stuart, Susan, Ted, Theodore, Theresa, Thomas, Tim, Timothy, Toby, Tom, Tony
Ulrich, Ulysses, Victor, Vincent, Vladimir, Walter, Warren, Wilhelm, William, Winston, Wolfgang, Yuri, Zbigniew
""")
_TITLES = _list("""
Mr, Mrs, Ms, Dr, Prof, Professor, Sir, Dame, Lord, Lady, King, Queen, Prince, Princess, Emperor, Empress, Pope
Saint, St, President, Chancellor, Senator, Governor, Mayor, General, Colonel, Major, Captain, Lieutenant, Admiral
Sergeant, Judge, Justice, Bishop, Archbishop, Cardinal, Reverend, Rev, Father, Sultan, Khan, Tsar, Duke, Duchess
Earl, Count, Baron, Rabbi, Chairman, Secretary, Minister, Prime Minister, Vice President, Coach, Gov, Gen, Sen, Rep
Col, Capt, Lt, Sgt, Hon
""")
_LAST_WORDS: dict[str, str] = {
    **dict.fromkeys(
        _list("""
Inc, Bros, Corp, Corporation, Company, Co, Ltd, LLC, Group, Holdings, Bank, Records, Studios, Pictures, Entertainment
Media, Industries, Motors, Airlines, Airways, Railways, Railway, Network, Television, Radio, News, Times, Post
Journal, Press, University, College, School, Academy, Institute, Institution, Laboratory, Laboratories, Observatory
Foundation, Society, Association, Federation, Organization, Organisation, League, Conference, Union, Club, Team
Committee, Commission, Council, Board, Agency, Authority, Bureau, Department, Ministry, Office, Service, Services
Administration, Assembly, Parliament, Congress, Senate, Court, Tribunal, Party, Movement, Church, Diocese, Army
Navy, Corps, Command, Forces, Force, Guard, Police, Brigade, Division, Regiment, Fleet, Museum, Library, Hospital
Theatre, Theater, Opera, Orchestra, Brotherhood, Order, Front, Alliance, Coalition, Cabinet, Government, Exchange
Fund, Trust, Trinity, Dynasty, Cathedral School, Panthers, Broncos, Patriots, Cowboys, Giants, Bears, Eagles, Lions
Rams, Vikings, United, Rovers
"""),
        "ORG",
    ),
    **dict.fromkeys(
        _list("""
Bridge, Stadium, Arena, Airport, Street, Road, Avenue, Boulevard, Highway, Freeway, Station, Terminal, Hall, Tower
Palace, Castle, Cathedral, Abbey, Chapel, Temple, Basilica, Building, House, Square, Plaza, Center, Centre, Gate
Wall, Fort, Park, Garden, Gardens, Zoo, Mall, Port, Harbour, Harbor, Canal, Dam, Prison, Cemetery, Monument
Memorial, Lane, Hotel
"""),
        "FAC",
    ),
    **dict.fromkeys(
        _list("""
River, Lake, Lakes, Mountain, Mountains, Mount, Ocean, Sea, Bay, Gulf, Valley, Island, Islands, Desert, Peninsula
Coast, Forest, Rainforest, Basin, Canyon, Hills, Falls, Cape, Strait, Channel, Plateau, Plains, Creek, Reef, Delta
Hemisphere, Continent, Region, Belt
"""),
        "LOC",
    ),
    **dict.fromkeys(
        _list("City, County, State, Province, Republic, Kingdom, Empire, Township, Village, Colony"), "GPE"
    ),
    **dict.fromkeys(
        _list("""
War, Wars, Battle, Revolution, Rebellion, Uprising, Crusade, Crusades, Olympics, Games, Cup, Bowl, Championship
Championships, Festival, Conference Championship, Expedition, Massacre, Plague, Depression, Renaissance, Reformation
Enlightenment, Holocaust, Exposition, Tournament, Series, Fire, Flood, Earthquake, Famine, Coup, Summit
"""),
        "EVENT",
    ),
    **dict.fromkeys(
        _list(
            "Act, Constitution, Treaty, Amendment, Amendments, Code, Edict, Bill, Charter, Protocol, Directive, Clause"
        ),
        "LAW",
    ),
    **dict.fromkeys(_list("Bible, Quran, Testament, Gospel, Symphony, Magazine, Album"), "WORK_OF_ART"),
}
_FIRST_WORDS: dict[str, str] = {
    **dict.fromkeys(_list("Lake, Mount, Mt, Cape, River, Gulf, Bay, Strait, Isle, Isles"), "LOC"),
    **dict.fromkeys(_list("Battle, Siege, Super, Olympic, Hurricane"), "EVENT"),
    **dict.fromkeys(_list("Treaty, Edict, Article, Statute"), "LAW"),
    **dict.fromkeys(_list("Fort, Port"), "GPE"),
    **dict.fromkeys(
        _list("""
University, Department, Bank, Church, Board, Academy, College, Museum, Council, Ministry, Institute, Court, Order
House, Bureau, Association, Society, Federation, Union, Office, School, League, Secretary
"""),
        "ORG",
    ),
    **dict.fromkeys(_list("Republic, Kingdom, Duchy, County, City, State, Province, District, Commonwealth"), "GPE"),
}

_SMALL_NUMBERS = word_list("""
one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen
nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred thousand million billion trillion dozen
hundreds thousands millions billions dozens half
""")
_ORDINALS = word_list("""
first second third fourth fifth sixth seventh eighth ninth tenth eleventh twelfth thirteenth fourteenth fifteenth
sixteenth seventeenth eighteenth nineteenth twentieth thirtieth hundredth
""")
_UNITS = word_list("""
km kilometre kilometres kilometer kilometers mile miles mi metre metres meter meters m cm mm nm centimetre
centimetres centimeter centimeters feet foot ft inch inches yard yards yd acre acres hectare hectares ha kg kilogram
kilograms g gram grams mg tonne tonnes ton tons lb lbs pound-force ounce ounces litre litres liter liters gallon
gallons barrels mph knots kn kw kwh mw gw watt watts megawatts volt volts hz mhz ghz degrees psi bar pa kpa bytes gb
mb tb ppm
""")
# The kinds of tokens, one character each:
#   numbers        d 1 to 31 · y year of four digits · n another number · w in words · o ordinal · s "1990s" · H "5:30"
#   time           m month · a weekday · t "days" · c "century" · h "hours" · S season · k "BC" · x "p.m." · Y "today"
#   around them    A "early" · R "last" · u unit · q "square" · $ and e currency · % and r "percent", "per" (cent)
#   names          C capitalised · I initials · B "of" may follow ("University") · l "van" · O "of" · T "the"
#   the rest       - , . ' " & themselves · z anything else
_KINDS: dict[str, str] = {
    **dict.fromkeys(_SMALL_NUMBERS, "w"),
    **dict.fromkeys(_ORDINALS, "o"),
    **dict.fromkeys(_UNITS, "u"),
    **dict.fromkeys(["square", "sq", "cubic"], "q"),
    **dict.fromkeys(
        word_list("dollar dollars euro euros pound pounds cents cent yen franc francs rupees marks usd eur"), "e"
    ),
    **dict.fromkeys(["percent", "percentage"], "%"),
    "per": "r",
    **dict.fromkeys(word_list("day days week weeks month months year years decade decades"), "t"),
    **dict.fromkeys(["century", "centuries"], "c"),
    **dict.fromkeys(word_list("hour hours minute minutes seconds"), "h"),
    **dict.fromkeys(word_list("morning afternoon evening night midnight noon"), "h"),
    **dict.fromkeys(word_list("spring summer autumn fall winter"), "S"),
    **dict.fromkeys(word_list("early late mid middle"), "A"),
    **dict.fromkeys(word_list("last next this previous past following"), "R"),
    **dict.fromkeys(word_list("today yesterday tomorrow annual annually daily weekly monthly yearly"), "Y"),
    "of": "O",
    "the": "T",
    **dict.fromkeys(word_list("de von van der den la le du del della di da bin ibn al el"), "l"),
    **dict.fromkeys(["am", "pm"], "x"),
}
_CASED_KINDS: dict[str, str] = {
    **dict.fromkeys(
        word_list("January February March April May June July August September October November December"), "m"
    ),
    **dict.fromkeys(word_list("Jan Feb Aug Sept Sep Oct Nov Dec"), "m"),
    **dict.fromkeys(word_list("Monday Tuesday Wednesday Thursday Friday Saturday Sunday"), "a"),
    **dict.fromkeys(["BC", "BCE", "AD", "CE"], "k"),
    **dict.fromkeys(_FIRST_WORDS.keys() - {"Super", "Olympic", "Hurricane"}, "B"),
}
_MARKS: dict[str, str] = {
    **dict.fromkeys("-–—‐‑", "-"),
    **dict.fromkeys("$€£¥₹", "$"),
    **dict.fromkeys(".?!", "."),
    **dict.fromkeys('"“”', '"'),
    ",": ",",
    "%": "%",
    "&": "&",
}

_TOKEN = re.compile(
    r"""
      \d{1,2}:\d\d(?::\d\d)?            # a time of day
    | \d+(?:[.,]\d+)*(?:st|nd|rd|th|s)?\b
    | \d+(?:[.,]\d+)*
    | [ap]\.m\.?
    | (?:[^\W\d_]\.){2,}                # U.S.
    | [^\W\d_]\.(?=\s+[^\W\d_])         # an initial
    | (?:Mr|Mrs|Ms|Dr|Prof|St|Jr|Sr|Gen|Gov|Sen|Rev|Lt|Col|Capt|Inc|Ltd|Co|Corp|Mt)\.
    | ['’]s\b
    | [^\W_]+(?:['’](?!s\b)[^\W_]+)*
    | [^\w\s]
    """,
    re.VERBOSE,
)

_NUMBER = "(?:[dyn](?:-[dyn])?w*|w(?:-?w)*)"
_NAME = "[CBI]"
_ENTITY = re.compile(
    f"""
      (?P<WORK_OF_ART>"(?=T?{_NAME})[^".]{{0,7}}[CBIdyn]")
    | (?P<MONEY>\\$[dyn]w*(?:-\\$?[dyn]w*)?|{_NUMBER}e)
    | (?P<PERCENT>{_NUMBER}(?:-?%|re))
    | (?P<DATE>
          (?:a,?)?m[do](?!%|u|e)(?:-[do])?(?:,?[yn])? | (?:a,?)?T?[do](?:-[do])?O?m(?:,?[yn])? | mO?,?y | m
        | a | T?A?-?s | T?A?-?o(?:-?[ol])?-?ck? | [dyn](?:-[dyn])?k | k[dyn] | T?A?SO?y | y-[dny](?![u%e])
        | T?R[tc] | {_NUMBER}-?[tc] | A-?y | y(?![u%ew]) | Y )
    | (?P<TIME>Hx? | [dn]x | {_NUMBER}-?h | T?h)
    | (?P<QUANTITY>{_NUMBER}-?q?u)
    | (?P<ORDINAL>o)
    | (?P<CARDINAL>{_NUMBER}(?:-{_NUMBER})?)
    | (?P<NAME>(?:BOT?)?{_NAME}(?:(?:BOT?|-|l+|&|'(?={_NAME}))?{_NAME})*)
    """,
    re.VERBOSE,
)

_PLACE_PREPOSITIONS = word_list("in at from near throughout across outside around into toward towards within")
_SMALL_WORDS = STOP_WORDS - {"will", "don", "ma"}
_SMALL_AT_START = word_list("""
although though however but since whereas thus also another many several much one two three four five six seven
eight nine ten first second third later today according despite meanwhile moreover furthermore additionally instead
therefore often sometimes usually still even like unlike among within without throughout around upon under following
along every either neither none nothing something someone everyone people yet never always indeed perhaps would
could may might must shall us whose whether early late recent recently modern new old both most
""")
_ROMAN_NUMERAL = re.compile(r"[IVXLCDM]+")


@dataclass(frozen=True)
class _Span:
    """A capitalised span: its words, and the words around it, lower-case."""

    words: tuple[str, ...]
    before: str
    after: str
    following: str
    is_comma_after: bool


def entity_labels(text: str) -> list[str]:
    """Return the labels of the entities in ``text``, in order, in spaCy's scheme (``PERSON``, ``DATE`` ...)."""
    tokens = _TOKEN.findall(text)
    kinds = _kinds(tokens)
    found: list[str | _Span] = []
    for match in _ENTITY.finditer(kinds):
        label = match.lastgroup or ""
        start, end = match.span()
        if label == "NAME":
            found += _spans(tokens, start, end)
        elif label != "DATE" or not _is_a_verb_or_name(tokens, start, end):
            found.append(label)
    surnames = frozenset(
        entry.words[-1]
        for entry in found
        if isinstance(entry, _Span) and len(entry.words) > 1 and _label(entry, frozenset()) == "PERSON"
    )
    # What is guessed from the words around a name may differ from place to place: the most frequent guess holds.
    labels_of: dict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for entry in found:
        if isinstance(entry, _Span):
            labels_of[entry.words][_label(entry, surnames)] += 1
    chosen = {words: labels.most_common(1)[0][0] for words, labels in labels_of.items()}
    labels = (entry if isinstance(entry, str) else chosen[entry.words] for entry in found)
    return [label for label in labels if label]


def _kinds(tokens: Sequence[str]) -> str:
    """Return one character per token; capitalised words at the start of a sentence may count as small ones."""
    is_sentence = len(tokens) >= 5
    small_words = {token for token in tokens if token.islower()} if is_sentence else set()
    kinds: list[str] = []
    before = "."
    for token in tokens:
        kind = _kind(token)
        lower = token.lower()
        if kind in "CB" and _is_small(token, lower, before, small_words):
            kind = _KINDS.get(lower, "z")
        kinds.append(kind)
        before = kind if kind != '"' else before
    return "".join(kinds)


def _is_small(token: str, lower: str, before: str, small_words: set[str]) -> bool:
    """Return whether a capitalised word is no part of a name."""
    if lower in _SMALL_WORDS:
        return not token.isupper()
    # At the start of a sentence a capital tells nothing where the word is also written small.
    return before == "." and bool(small_words) and (lower in small_words or lower.endswith(("ed", "ing", "ly")))


def _kind(token: str) -> str:
    first = token[0]
    if first.isdigit():
        return _number_kind(token)
    if token in _CASED_KINDS:
        return _CASED_KINDS[token]
    if first.isupper():
        if token.endswith("."):
            return "I" if len(token) == 2 or "." in token[:-1] else "C"
        return "C" if len(token) > 1 else "z"
    if not first.isalnum():
        return _MARKS.get(first, "'" if first in "'’" else "z")
    if token.startswith(("a.m", "p.m")):
        return "x"
    return _KINDS.get(token, "z")


def _number_kind(token: str) -> str:
    if ":" in token:
        return "H"
    if token[-1] == "s":
        return "s"
    if token[-1].isalpha():
        return "o"
    if token.isdigit():
        value = int(token)
        if len(token) == 4 and 1000 <= value <= 2100:
            return "y"
        if 1 <= value <= 31:
            return "d"
    return "n"


def _is_a_verb_or_name(tokens: Sequence[str], start: int, end: int) -> bool:
    """Return whether a lone "May" or "March" is likely no month."""
    return (
        end - start == 1
        and tokens[start] in {"May", "March", "August"}
        and (start == 0 or tokens[start - 1].lower() not in {"in", "since", "until", "by", "of", "and", "to", "from"})
        and len(tokens) > 1
    )


def _spans(tokens: Sequence[str], start: int, end: int) -> Iterator[_Span]:
    """Return the names in a capitalised stretch, which may be two."""
    begin = start
    for position in range(start + 1, end - 1):
        is_owner = tokens[position] in {"'s", "’s"} and not (position + 2 == end and tokens[end - 1] in _LAST_WORDS)
        # "Soviet President Gorbachev" is a people and a person; "American Football Conference" is one name.
        is_group = position == begin + 1 and tokens[begin] in _GROUPS and tokens[position].rstrip(".") in _TITLES
        if is_owner or is_group:
            yield _span(tokens, begin, position)
            begin = position + is_owner
    yield _span(tokens, begin, end)


def _span(tokens: Sequence[str], start: int, end: int) -> _Span:
    after = tokens[end].lower() if end < len(tokens) else ""
    return _Span(
        words=tuple(tokens[start:end]),
        before=tokens[start - 1].lower() if start else "",
        after=after,
        following=tokens[end + 1] if end + 1 < len(tokens) else "",
        is_comma_after=after == ",",
    )


def _label(span: _Span, surnames: frozenset[str]) -> str:
    """Return the label of a capitalised span, or "" where it is likely no entity."""
    words = span.words
    first, last = words[0].rstrip("."), words[-1].rstrip(".")
    phrase = " ".join(words).replace(" - ", "-")
    if phrase in _LANGUAGES and (span.after.startswith("language") or span.before in {"speak", "speaks", "spoken"}):
        return "LANGUAGE"
    if phrase in _GAZETTEER:
        return _GAZETTEER[phrase]
    numbered = words[-2] if len(words) > 2 and _ROMAN_NUMERAL.fullmatch(last) else last
    if len(words) > 1 and numbered in _LAST_WORDS:
        return _LAST_WORDS[numbered]  # World War II
    if first in _TITLES:
        return "PERSON" if len(words) > 1 else ""
    if len(words) > 1 and first in _FIRST_WORDS:
        return _FIRST_WORDS[first]
    if first in _FIRST_NAMES:
        return "PERSON"
    return _single(span, first, surnames) if len(words) == 1 else _several(span, first, last)


def _single(span: _Span, word: str, surnames: frozenset[str]) -> str:
    if word in surnames:
        return "PERSON"
    if any(character.isdigit() for character in word) or word.lower() in _SMALL_AT_START:
        return ""
    if word.isupper() and len(word) > 1:
        return "" if _ROMAN_NUMERAL.fullmatch(word) else "ORG"
    if word in _LAST_WORDS or word in _FIRST_WORDS:
        return "ORG" if span.before == "the" and _LAST_WORDS.get(word) == "ORG" else ""
    if word.endswith(("ian", "ians", "ese", "ish", "ists", "ism", "anity")):
        return "NORP"
    if span.before == "the":
        return "NORP" if word.endswith("s") else "ORG"
    if (span.before in _PLACE_PREPOSITIONS and span.after != "'s") or (
        span.is_comma_after and _GAZETTEER.get(span.following) == "GPE"
    ):
        return "GPE"
    return "PERSON"


def _several(span: _Span, first: str, last: str) -> str:
    if "&" in span.words:
        return "ORG"
    if any(_kind(word) == "I" and len(word) == 2 for word in span.words[:-1]) or last in {
        "Jr",
        "Sr",
        "II",
        "III",
        "IV",
    }:
        return "PERSON"
    if span.is_comma_after and _GAZETTEER.get(span.following) == "GPE":
        return "GPE"
    is_place_first = _GAZETTEER.get(first) in {"GPE", "LOC", "NORP"}
    if span.before == "the" or is_place_first or last.isupper() or (last.endswith("s") and len(last) > 6):
        return "ORG"
    if span.before in _PLACE_PREPOSITIONS and len(span.words) == 2:
        return "GPE"
    return "PERSON" if len(span.words) <= 3 else "ORG"
