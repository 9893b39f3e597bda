"""The words that generated tasks are made of."""

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

COMPANIONS = ("my sister", "two friends", "my team", "an old neighbour", "my parents", "a guide", "the children")

MEAL_PARTS = (
    "soup", "bread", "waiter", "coffee", "table", "salad", "menu", "music",
    "dessert", "fish", "service", "room", "tea", "chair", "sauce", "wine",
)  # fmt: skip
PLEASANT = (
    "lovely", "fresh", "friendly", "excellent", "delicious", "perfect", "warm", "charming",
    "wonderful", "clean", "generous", "pleasant",
)  # fmt: skip
UNPLEASANT = (
    "awful", "stale", "rude", "dirty", "horrible", "cold", "bitter", "terrible",
    "noisy", "sticky", "slow", "broken",
)  # fmt: skip

MACHINES = ("pump", "lathe", "boiler", "press", "mixer", "crane", "oven", "loom")
MACHINE_PARTS = (
    "pressure", "bearing", "oil", "motor", "valve", "belt", "sensor", "fan", "gear", "filter", "piston", "display",
)  # fmt: skip
SOUND = ("stable", "normal", "steady", "nominal", "smooth", "quiet", "checked", "calibrated")
FAULTY = ("leaking", "overheating", "jammed", "cracked", "failing", "shaking", "blocked", "burnt")

PROPOSALS = (
    "the new bridge", "a later school bus", "the night market", "free parking", "a second library", "the wind park",
    "a longer harbour", "the village tax", "the summer festival", "a car-free square",
)  # fmt: skip
FOR = (
    "this helps everyone", "I will vote for it", "a fine plan", "we need it soon", "count me in",
    "it is worth the money", "my family supports it", "long overdue",
)  # fmt: skip
AGAINST = (
    "this is a terrible idea", "I will fight it", "a waste of money", "nobody wants it", "stop it at once",
    "it would ruin the village", "my family rejects it", "an outrage",
)  # fmt: skip
UNDECIDED = (
    "I have to read more", "perhaps, perhaps not", "hard to say", "I cannot decide", "ask me next year",
    "it depends on many things", "my family is divided", "no opinion yet",
)  # fmt: skip

SPORT = ("goalkeeper", "referee", "stadium", "marathon", "trophy", "coach", "penalty", "racket", "sprint", "league")
FOOD = ("kitchen", "recipe", "butter", "noodles", "bakery", "spices", "lunch", "pancake", "cheese", "dinner")
TRANSPORT = ("tram", "ticket", "platform", "timetable", "ferry", "driver", "railway", "station", "airport", "bus")
EVENTS = (
    "was in the news", "has changed", "will be discussed", "surprised us", "is on the list", "was mentioned twice",
)  # fmt: skip

ANIMALS = (
    "horse", "rabbit", "eagle", "whale", "goat", "spider", "tiger", "donkey", "camel", "otter", "sheep", "frog",
)  # fmt: skip
ANIMAL_QUESTIONS = ("Which of these is an animal?", "Which word names an animal?", "Find an animal among these words.")
NO_ANIMALS = (
    "pear", "banana", "cherry", "lemon", "hammer", "saw", "drill", "shovel", "purple", "green", "yellow", "brown",
    "shirt", "jacket", "scarf", "glove", "violin", "flute", "drum", "guitar", "river", "mountain", "winter", "paper",
)  # fmt: skip

AT_SEA = (
    "anchor", "sailor", "lighthouse", "captain", "fishing net", "cargo ship", "harbour", "wave", "sail", "crew",
    "seagull", "tide",
)  # fmt: skip
SEA_QUESTIONS = ("What belongs to the sea?", "What would you expect at sea?", "Name something typical of the sea.")
ON_LAND = (
    "nurse", "surgeon", "bandage", "patient", "tractor", "barn", "plough", "farmer", "pupil", "teacher", "homework",
    "classroom", "actor", "curtain", "stage", "costume", "printer", "meeting", "keyboard", "stapler", "forest",
    "tunnel", "garden", "bicycle",
)  # fmt: skip
