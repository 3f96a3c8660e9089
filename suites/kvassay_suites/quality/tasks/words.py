"""Pinned choices from short word lists, for texts that are generated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar

from kvassay.models.tiny import splitmix64

T = TypeVar("T")

COLOURS: Final = ("red", "blue", "green", "yellow", "black", "white", "brown", "orange")
DAYS: Final = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
PLACES: Final = (
    *("bakery", "library", "school", "museum", "chapel", "mill", "harbour office", "theatre"),
    *("pharmacy", "barn", "lighthouse", "town hall", "station", "cinema", "hotel", "workshop"),
    *("brewery", "bank", "clinic", "stable", "observatory", "tower", "market hall", "cottage"),
    *("laundry", "post office", "boathouse", "greenhouse", "bookshop", "gym", "cafe", "garage"),
)
NAMES: Final = (
    *("Anna", "Bruno", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas"),
    *("Klara", "Leon", "Maria", "Nils", "Olga", "Paul", "Rosa", "Simon", "Tessa", "Viktor"),
)
_WHEN: Final = (
    *("In the morning", "After lunch", "Late in the evening", "Before the storm", "That week"),
    *("On the way home", "During the break", "At the end of the month", "One quiet afternoon"),
)
_DID: Final = (
    *("repaired the old fence", "carried two baskets up the hill", "wrote a long letter home"),
    *("waited for the ferry", "fed the geese by the pond", "counted the sacks of flour"),
    *("sang an old song with friends", "looked for a lost glove", "cooked soup for the guests"),
    *("measured the depth of the well", "borrowed a ladder from a neighbour", "swept the steps"),
    *("read the news aloud", "planted a row of beans", "sharpened the kitchen knives"),
)
_THEN: Final = (
    *("and nobody complained", "while the rain went on", "although the wind was cold"),
    *("and came back tired", "because the others were away", "and thought about the summer"),
    *("before the bells rang", "with a good deal of patience", "as people there always did"),
)


class Picker:
    """A stream of pinned choices; two of the same seed choose alike, everywhere."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._drawn = 0

    def below(self, bound: int) -> int:
        """An integer from 0 to bound - 1."""
        self._drawn += 1
        bits = int(splitmix64((self._seed << 40) + self._drawn, 1)[0])
        return (bits >> 16) % bound

    def one(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self.below(len(options))]

    def some(self, options: Sequence[T], number: int) -> list[T]:
        """So many different options, in random order."""
        left = list(options)
        return [left.pop(self.below(len(left))) for _ in range(number)]

    def others(self, options: Sequence[T], but: Sequence[T], number: int = 3) -> list[T]:
        """So many different options that are none of `but`."""
        return self.some([option for option in options if option not in but], number)

    def sentence(self) -> str:
        """A sentence that answers no question of any family."""
        return f"{self.one(_WHEN)} {self.one(NAMES)} {self.one(_DID)} {self.one(_THEN)}."
