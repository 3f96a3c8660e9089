"""Ordinary chat: everyday questions with short answers, after earlier chats on other subjects.

A chat of a hundred tokens lies inside the fp16 window and would measure nothing, so each
conversation opens with half of the chats of `kvassay.models.dialogues`.
"""

from __future__ import annotations

from typing import Final

from kvassay.models import dialogues

from .item import Conversation, Family, Item, with_rivals

_FIRST: Final = (
    ("How long do I boil an egg so that the yolk stays soft?",
     "About six minutes in boiling water. Cool it in cold water at once, or it goes on cooking."),
    ("My houseplant has yellow leaves. Is it too dry?",
     "Too much water is the more common reason. Let the soil dry before you water it again."),
    ("Can I wash a wool sweater in the machine?",
     "Only with the wool program and cold water. Washing it by hand is safer."),
    ("What is a good way to remember names?",
     "Repeat the name when you hear it, and connect it with something that you can picture."),
    ("Is it rude to arrive early at a dinner?",
     "Yes, a little. The hosts may not be ready, so wait until the time they gave you."),
    ("I spilled red wine on the carpet. What now?",
     "Press a dry cloth on the stain first, do not rub. Then use cold water and a little salt."),
    ("Which shoes should I take for a walk in the hills?",
     "Sturdy shoes with a good profile that cover your ankles. Wear them at home for a day first."),
    ("Why does my laptop get so warm?",
     "Dust in the fan is the usual reason. Clean it, and never put the laptop on a blanket."),
    ("How do I make coffee less bitter?",
     "Use water that is not quite boiling and grind the beans a little coarser."),
    ("My neighbor plays loud music at night. What can I do?",
     "Talk to him in a friendly way first. Many people do not know how thin their walls are."),
    ("Do I need an umbrella in April?",
     "It is better to take one. The weather in April changes several times a day."),
    ("How can I keep bread fresh for longer?",
     "Keep it in a paper bag or a wooden box, never in the refrigerator, where it dries out."),
    ("What should I bring to a picnic?",
     "Bread, cheese, fruit, something to drink and a large blanket. Do not forget a knife."),
    ("I am nervous before a talk. Any advice?",
     "Practice the first two sentences until you can say them in your sleep. The rest follows."),
    ("How often should I change my toothbrush?",
     "Every three months, or earlier if the bristles are bent."),
    ("Could you suggest a quiet hobby?",
     "Drawing is a good one. All you need is a pencil, some paper and half an hour a day."),
)  # fmt: skip

_SECOND: Final = (
    ("How do I stop onions from making me cry?",
     "Chill the onion before you cut it and use a sharp knife. Both help a lot."),
    ("Is tap water good for my fish?",
     "Not directly. Let it stand for a day, so that the chlorine can escape."),
    ("My bicycle tire loses air within a day. What is wrong?",
     "There is probably a very small hole. Hold the tube under water and look for bubbles."),
    ("Which day is best for visiting a museum?",
     "Weekday mornings are the quietest. On Sundays most museums are crowded."),
    ("What do I write on a birthday card for my aunt?",
     "Dear aunt, I wish you a happy birthday and a year full of health and good company."),
    ("Should I take the stairs or the elevator?",
     "Take the stairs if you are healthy. It is the easiest exercise of the day."),
    ("How do I get a parking ticket reduced?",
     "You can write to the office that issued it and explain what happened. Stay polite."),
    ("Are bananas better green or yellow?",
     "Yellow ones are sweeter and easier to digest. Green ones keep for longer."),
    ("When do I prune an apple tree?",
     "In late winter, on a dry day without frost, before the buds begin to swell."),
    ("My son is afraid of the dark. How can I help him?",
     "A small night light often works. Take his fear seriously and leave the door open."),
    ("What makes a good cup of tea?",
     "Fresh water, enough leaves and the right time. Black tea needs about four minutes."),
    ("Can I freeze cooked rice?",
     "Yes, that works well. Cool it quickly, freeze it in small portions and heat it with a "
     "spoon of water."),
    ("How do I learn to cook?",
     "Start with three simple dishes and make them until they need no recipe."),
    ("Why do cats purr?",
     "They mostly purr when they feel safe, but some also do it to calm themselves."),
    ("I lost my keys. Where should I look first?",
     "Look in the pockets of the clothes you wore yesterday, then in your bag."),
    ("Please suggest a name for a gray rabbit.",
     "Pebble would suit a gray rabbit. It is short, and it sounds soft."),
)  # fmt: skip

_HALF: Final = 4

FAMILY: Final = Family(
    "chat",
    "ordinary conversation",
    tuple(
        Conversation(
            tuple(turn for dialogue in before for turn in dialogue.turns),
            with_rivals([Item(question, answer) for question, answer in talk]),
        )
        for before, talk in ((dialogues()[:_HALF], _FIRST), (dialogues()[_HALF:], _SECOND))
    ),
)
