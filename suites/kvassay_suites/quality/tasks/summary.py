"""Summarization: short reports are read, then each is asked for in a few words."""

from __future__ import annotations

from typing import Final

from .item import Conversation, Family, Item, reading, with_rivals

#: Place of the report, the report, its summary after "It is about".
_FIRST: Final = (
    ("Alder", "Rain fell for nine days, the river left its bed and water stood in forty cellars. "
     "Boats brought bread to the upper streets.", "a flood that filled the cellars"),
    ("Birch", "The old bridge has been closed since spring. Engineers found rust in two beams, and "
     "repairs will take until October.", "repairs of an old bridge"),
    ("Cedar", "A brown bear walked through the gardens at dawn, ate from three hives and went back "
     "into the woods before anybody was awake.", "bears that come for honey"),
    ("Dover", "Bakers complain that flour costs a third more than last year. Some now sell smaller "
     "loaves at the same price.", "flour that became more expensive"),
    ("Elm", "The children of the school planted two hundred young trees behind the gym. Each class "
     "will water its own row.", "children who plant trees"),
    ("Forest", "The night train to the coast returns after eleven years. It has sleeping cars, and "
     "tickets are sold from Monday on.", "the return of the night train"),
    ("Grove", "Thieves took eleven bicycles from the yard of the station. The police ask owners to "
     "write down the numbers on their frames.", "stolen bicycles at the station"),
    ("Hill", "A painter of eighty shows her work for the first time. Nearly all pictures are of "
     "the harbor in winter.", "an exhibition of an old painter"),
    ("Inlet", "Fishermen caught so few herring that most boats stay in port. They say the sea has "
     "become too warm.", "fishermen without fish"),
    ("Jasper", "The hospital opens a new ward with twenty beds. Nurses from three countries have "
     "been hired for it.", "more beds in the hospital"),
    ("Kiln", "A fire destroyed the roof of the pottery. Nobody was hurt, since the workers were at "
     "lunch in the garden.", "damage by fire at a pottery"),
    ("Lake", "The council wants a quiet zone around the lake. Motor boats would then be allowed "
     "only on Saturdays.", "limits for motor boats"),
    ("Mill", "A choir of farmers won the prize of the region. They practice in a barn, because it "
     "has the best sound.", "singing farmers who won a prize"),
    ("North", "Snow came in May this year and broke the blossoms of the cherry trees. There will "
     "be little fruit.", "late snow and lost cherries"),
    ("Oak", "The library lends tools as well as books now: drills, saws and a sewing machine, for "
     "a week each.", "tools that the library lends"),
)  # fmt: skip

_SECOND: Final = (
    ("Pine", "A shop that sells only repaired radios has opened in the old post office. Its owner "
     "learned the trade from his grandfather.", "old radios that are repaired"),
    ("Quarry", "Swimmers crossed the bay in the dark, each with a lamp on the back. The youngest "
     "was fifteen.", "swimming across the bay at night"),
    ("Ridge", "The wind tore down the mast on the hill, and the valley had no telephone for two "
     "days.", "a storm that cut the telephone"),
    ("Shore", "Volunteers collected two tons of plastic from the beach on a single Sunday. Most of "
     "it came from fishing nets.", "cleaning the beach"),
    ("Terrace", "Wine growers pick their grapes three weeks earlier than their parents did. The "
     "harvest is small but sweet.", "an early harvest of grapes"),
    ("Upland", "Wolves have killed nine sheep since March. Shepherds ask for money to buy dogs and "
     "fences.", "wolves and sheep"),
    ("Vale", "The town will light its streets with half as many lamps, to save power and to let "
     "people see the stars.", "fewer street lamps"),
    ("Willow", "A teacher collected old games from her village and made a book of them. It has "
     "forty games that need no toy.", "games without toys"),
    ("Yard", "The market moves from Friday to Thursday, since the trucks of the dairy come a day "
     "earlier.", "the market on another day"),
    ("Zenith", "Students built a small rocket out of paper tubes. It rose to three hundred meters "
     "and came down in a lake.", "rockets made by students"),
    ("Arbor", "Doctors warn of ticks in the city park. Long trousers and a look at the legs "
     "afterwards are the best protection.", "ticks in the park"),
    ("Bluff", "An old lighthouse becomes a small hotel with two rooms. Guests must climb ninety "
     "steps.", "rooms in a lighthouse"),
    ("Creek", "Two schools share one orchestra from now on, because neither had enough violins.",
     "music shared by two schools"),
    ("Delta", "The ferry was late on forty days of the year. The company now pays back the fare "
     "after half an hour.", "delays of the ferry"),
    ("East", "A baker's daughter won the chess title at the age of twelve. She trained with her "
     "uncle every evening.", "chess and a very young winner"),
)  # fmt: skip


def _conversation(reports: tuple[tuple[str, str, str], ...]) -> Conversation:
    text = "\n".join(f"Report from {place}: {report}" for place, report, _ in reports)
    items = [
        Item(
            question=f"Sum up the report from {place} in a few words.",
            lead="It is about",
            reference=f" {summary}.",
        )
        for place, _, summary in reports
    ]
    return Conversation(reading(text), with_rivals(items))


FAMILY: Final = Family(
    "summary",
    "saying in a few words what a text is about",
    (_conversation(_FIRST), _conversation(_SECOND)),
)
