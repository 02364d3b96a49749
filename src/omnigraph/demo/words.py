"""Names, topics and sentences: texts of one topic resemble each other and no others."""

from __future__ import annotations


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST = _words(
    "Ada Alan Amina Anton Aylin Barbara Bela Bruno Chiara Chen Clara Dana Diego Edsger Elif Emil Erika Farid Fatima "
    "Felix Grace Hana Hedy Hugo Ines Ivan Jamal Jana John Jonas Karen Kenji Lea Leila Linus Lucia Maja Malik Margaret "
    "Mateo Mei Mira Nadia Niels Noor Olga Omar Paula Pavel Priya Rosa Samir Sofia Tariq Tove Uma Viktor Wanda Yara Zoe"
)
LAST = _words(
    "Adams Bauer Becker Brandt Castro Chen Costa Diaz Dubois Eriksen Fischer Fontana Garcia Gupta Haddad Hansen "
    "Hopper Ivanov Jensen Kaya Keller Khan Kim Kovac Lamarr Larsen Lehmann Lopez Lovelace Meyer Moreau Nakamura Novak "
    "Okafor Olsen Perez Popov Rossi Sato Schmid Silva Singh Sorensen Suzuki Tanaka Torres Turing Vogel Weber Yilmaz "
    "Young Zhang"
)
CITIES = _words(
    "Accra Berlin Bern Bogota Cairo Delhi Helsinki Kyoto Lagos Lima Lisbon Lyon Montreal Nairobi Oslo Porto"
)
ROLES = _words("analyst architect chemist designer developer editor engineer founder manager nurse researcher teacher")
COMPANY_FRONT = _words("Blue Bright Cedar Delta Ever First Green Harbor Iron Lumen North Open Prime Quiet River Solar")
COMPANY_BACK = _words("field forge gate lab leaf line mark mill path peak point stone stream tree wave works")
INDUSTRIES = ("software", "health", "finance", "energy", "media", "education")

# Per topic: things, what one does with them, how they are.
TOPICS: dict[str, tuple[str, str, str]] = {
    "astronomy": (
        "galaxy telescope comet nebula eclipse planet star orbit moon meteor observatory spectrum",
        "observed photographed tracked measured mapped discovered",
        "distant faint bright ancient spiral icy",
    ),
    "cooking": (
        "sauce dough soup oven recipe garlic broth pastry spice noodle stew skillet",
        "baked simmered tasted seasoned kneaded roasted",
        "spicy crispy tender sweet homemade fragrant",
    ),
    "gardening": (
        "tomato compost seedling rose soil greenhouse hedge orchard bulb trellis herb lawn",
        "planted watered pruned harvested weeded sowed",
        "blooming leafy muddy shady wild organic",
    ),
    "cycling": (
        "bicycle helmet derailleur climb saddle peloton trail wheel brake descent tyre route",
        "rode repaired climbed raced pedalled overtook",
        "steep windy gravel lightweight muddy fast",
    ),
    "databases": (
        "index transaction query snapshot table commit replica schema log checkpoint join partition",
        "committed indexed replicated queried recovered compacted",
        "durable consistent columnar versioned atomic distributed",
    ),
    "learning": (
        "model gradient embedding dataset neuron classifier benchmark prompt layer tensor label epoch",
        "trained evaluated tuned embedded predicted labelled",
        "neural sparse deep noisy supervised accurate",
    ),
    "climate": (
        "glacier emission forest drought carbon ocean turbine storm temperature coast reef policy",
        "measured reduced warmed flooded restored forecast",
        "rising renewable melting severe global tropical",
    ),
    "music": (
        "guitar chord rhythm violin concert melody drum album chorus piano song synthesizer",
        "played composed recorded rehearsed sang improvised",
        "loud acoustic melodic slow electric minor",
    ),
    "photography": (
        "lens shutter portrait tripod exposure film landscape shadow camera aperture darkroom frame",
        "framed exposed developed printed focused cropped",
        "blurry sharp monochrome golden backlit wide",
    ),
    "football": (
        "goal keeper penalty midfield derby referee striker stadium corner league tackle header",
        "scored defended passed saved tackled celebrated",
        "offside decisive late narrow unbeaten home",
    ),
    "travel": (
        "train harbour passport village hostel museum ferry border luggage mountain market bridge",
        "visited crossed booked explored boarded wandered",
        "remote crowded coastal overnight cheap medieval",
    ),
    "chess": (
        "knight opening endgame bishop gambit rook tournament blunder pawn checkmate queen tempo",
        "sacrificed defended castled promoted resigned calculated",
        "sharp passive drawn brilliant isolated forced",
    ),
}
MORE_TAGS = _words("beginners question tutorial weekend news opinion story help review showcase")
OPENERS = (
    "Today I learned something:",
    "A question for everybody here:",
    "Good news.",
    "Not what I expected.",
    "Notes from this week:",
    "Long day.",
    "Does anybody remember this?",
    "Small victory:",
)
SENTENCES = (
    "We {verb} the {adjective} {thing} before the {other} was ready.",
    "I {verb} my {thing} and nobody noticed the {adjective} {other}.",
    "The {adjective} {thing} was better than any {other} I know.",
    "Why is every {thing} so {adjective} once the {other} is gone?",
    "My {thing} needs another {other}, and it has to be {adjective}.",
    "They {verb} it twice, with the same {adjective} {thing} each time.",
    "You only understand the {thing} after you have {verb} the {other}.",
    "Some {adjective} {other} makes the whole {thing} worth it.",
)
