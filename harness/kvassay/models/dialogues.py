"""Eight short chats on everyday subjects, written for this project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

SYSTEM = "You are a helpful assistant. Answer clearly and briefly."


@dataclass(frozen=True)
class Turn:
    """One message. role: who speaks."""

    role: Literal["user", "assistant"]
    content: str


@dataclass(frozen=True)
class Dialogue:
    """A chat. turns: user and assistant by turns, the user first, the assistant last."""

    subject: str
    turns: tuple[Turn, ...]


def _chat(subject: str, *contents: str) -> Dialogue:
    return Dialogue(
        subject,
        tuple(
            Turn("assistant" if number % 2 else "user", content)
            for number, content in enumerate(contents)
        ),
    )


DIALOGUES: tuple[Dialogue, ...] = (
    _chat(
        "bread",
        "My bread comes out of the oven flat and heavy. What am I doing wrong?",
        "The dough probably did not rise enough before baking. Check that your yeast is fresh, "
        "keep the bowl in a warm place, and wait until the dough has doubled in size. Then shape "
        "it gently and let it rest again for about forty minutes.",
        "How can I tell that the second rest is over?",
        "Press the dough lightly with a finger. If the dent fills back slowly and not completely, "
        "it is ready for the oven. If it springs back at once, give it ten more minutes.",
    ),
    _chat(
        "tomatoes",
        "When should I plant tomatoes on a balcony that faces east?",
        "Put them outside after the last frost, when the nights stay above ten degrees. An east "
        "balcony gets sun in the morning, so choose a small cherry variety and place the pots "
        "where nothing shades them before noon.",
    ),
    _chat(
        "bicycle",
        "The chain of my bicycle squeaks after every ride in the rain.",
        "Rain washes the oil away. Wipe the chain with a dry cloth, put one drop of oil on each "
        "link, turn the pedals backwards for a minute, and wipe off what is left on the outside.",
        "Is cooking oil good enough for that?",
        "No. Cooking oil becomes sticky and collects dirt. A small bottle of chain oil from a "
        "bicycle shop is cheap and will last you several years.",
    ),
    _chat(
        "train",
        "I have 25 minutes between two trains in a city I do not know. Is that enough?",
        "Usually yes, if both trains leave from the same station. Look up the platform numbers "
        "before you arrive, sit near the front of the first train, and have a later connection "
        "in mind in case you are delayed.",
    ),
    _chat(
        "sleep",
        "I wake up at four every morning and cannot fall asleep again. Any simple advice?",
        "Do not look at the clock, and keep the room dark and cool. If you are still awake after "
        "twenty minutes, get up, read a few pages of a quiet book in dim light, and go back to "
        "bed when you feel tired.",
        "Would a nap in the afternoon help?",
        "A short one can, if it ends before three o'clock and lasts no longer than twenty "
        "minutes. A long or late nap makes the next night worse.",
    ),
    _chat(
        "budget",
        "I earn 2400 a month and spend all of it. How do I begin to save?",
        "Start by writing down every expense for one month. Then move a small fixed sum, say 120, "
        "to a savings account on the day you are paid. That is five percent of your income, and "
        "you will learn to live on the rest.",
    ),
    _chat(
        "moon",
        "My daughter asks why the moon follows our car. What do I tell her?",
        "Tell her that the moon is so far away that it looks the same from every place on your "
        "road. The trees are near, so they rush past the window, but the moon hardly seems to "
        "move at all.",
        "She wants to know how far that is.",
        "It is about 384,000 kilometers. If you could drive there without stopping, day and "
        "night, it would take more than five months.",
    ),
    _chat(
        "letter",
        "Please write two sentences to my neighbor, who watered my plants for a week.",
        "Thank you so much for looking after my plants while I was away; they look better now "
        "than when I left. I brought you a jar of honey from the mountains and hope you enjoy it.",
    ),
)
