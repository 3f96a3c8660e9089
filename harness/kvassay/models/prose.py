"""A story and an essay, written for this project: prose that no model has seen."""

from __future__ import annotations

from typing import Final

STORY: Final = """\
The ferry left Orsay Point at ten past six, four minutes late, because the mate could not find the
key to the ramp. Nobody minded. There were nine passengers that morning, and seven of them were
going across only to come back again: it was the last day of the old boat, and people had wanted
to be on it.

Maren Tolliver was not one of the seven. She sat on the starboard bench with a wooden case on her
knees, and she kept both hands on it although the water was flat. The case held a clock. It had
been her grandfather's, and before that it had belonged to the harbour, which had paid for it in
1911 and forgotten it in 1953. Her grandfather had found it in the cellar of the customs house
under a heap of wet rope. He had dried it beside the stove for one whole winter, and in spring it
ran.

"Is it true that it loses a minute a month?" asked the boy opposite. He was perhaps eleven. He
wore a yellow coat that had been bought for someone larger.

"It gains one," said Maren. "Losing would be easier. You can push a slow clock."

The boy thought about this. "You could stop it for a minute. Once a month."

"My grandfather did. On the first Sunday, before breakfast. He stopped it, and he stood beside it
with his watch, and he let it go again. He said it was the only minute of the month that belonged
to him."

The mate came by with the tickets. He was a broad man called Pell who had worked on the ferry for
thirty years and who had never, as far as anyone knew, set foot on the far shore except to tie up.
He looked at the case, and then at Maren.

"So they are having it back," he said.

"They are having it on loan. For the opening."

"And who is going to stop it, on Sundays?"

Maren had not thought of that. She looked at the case as if the answer might be written on the
lid. The new ferry house had a hall of glass with a wall meant for a clock; the letter from the
council had said so, in two paragraphs, with a drawing. It had not said anything about Sundays.

"I suppose somebody has to be shown," she said.

Pell punched her ticket, though it had been punched already. Then he sat down beside the boy,
which he never did, and for a while the three of them watched the wake. The engine had a knock in
it, every fourth beat, like a man walking with a stone in his shoe. Half way across, where the
channel is marked by two green posts, the old boat passed the new one. The new one was white and
made no sound at all. It was out on its trials with nobody aboard but an engineer and a dog, and
the dog barked at them until it was too far away to hear.

"It has no knock," said the boy.

"Give it time," said Pell.

When they reached the other side the seven passengers stayed where they were, and Maren stood up
with her case. The tide was low and the ramp was steep. Pell took one end without asking. They
carried the clock between them up to the road, slowly, keeping it level, and the boy walked in
front and told people to make way, although there were no people. At the top Pell put down his end
and did not let go of the handle.

"I have Sundays," he said. "From now on, I mean. The new one does not run on Sundays before noon,
and they do not want a mate in any case. They want a host." He said the word as one might say the
name of somebody else's dog.

"You would have to be exact," said Maren.

"I was four minutes late this morning for the first time in nine years. I have been thinking about
it since."

So she told him. She told him where the lever was, and that one had to hold it and not merely push
it, and that the pendulum should be caught on the left and not on the right because of a repair
that her grandfather had made with a piece of a spoon. She told him to use a watch that he
trusted, and never to look at the hands of the clock itself while he waited, since it made the
minute longer. Pell repeated everything. The boy repeated it too, half a sentence behind, moving
his lips.

Down at the landing the old boat sounded its horn, which meant that it had waited for the mate as
long as it could. Pell did not turn round. He took the handle again, and Maren took hers, and they
went on up the hill towards the hall of glass, where a man on a ladder was drilling a hole that
would turn out to be a hand's breadth too high.
"""

ESSAY: Final = """\
Salt looks like the simplest thing in a kitchen, and for most of history it was one of the most
carefully managed. A person needs a few grams of it a day. A farm needs far more, because before
cold storage the only way to carry meat, fish, butter or cabbage through a winter was to draw the
water out of it, and salt does that better than smoke or sun. Whoever controlled a source of salt
therefore controlled how long a region could eat.

There are three ways to obtain it. The first is to wait: sea water is led into shallow ponds, the
sun and the wind take the water away, and the crystals are raked together at the end of summer.
This costs little, but it works only where summers are dry. The second is to mine it, where an
ancient sea has left a bed of rock salt underground; the Alps and the Carpathians have been mined
in this way for at least three thousand years. The third is to boil brine from a spring over a
fire. That works in any weather and anywhere near a spring, and it consumes forests. A town in
northern Germany that boiled brine for eight centuries is said to have turned the wooded land
around it into heath, although historians now think that grazing did as much of the damage as the
saltworks.

The choice between these methods was a question of fuel against time. A pound of salt from a pond
takes about two months and no wood. A pound of boiled salt takes a few hours and several pounds of
wood. When wood became expensive, boilers learned to let the brine trickle down tall walls of
blackthorn twigs first: the wind dried it on its way, lime and gypsum settled on the thorns, and
the brine that arrived at the bottom was four or five times as strong as the one that had been
pumped to the top. Such walls still stand in a few spa towns, where people sit beside them because
the air is said to be good for the lungs. They were never built for that. They were built to save
fuel, and they are among the earliest large machines whose whole purpose was efficiency.

Because everybody needed salt and few could make it, it was easy to tax. China had a state
monopoly more than two thousand years ago, with arguments recorded on both sides: one party held
that the income kept the frontier safe, the other that a government should not compete with its
people. Venice bought salt from all over the Mediterranean and paid its captains a bonus for
carrying it as ballast, which made its other trade cheaper. In France the tax differed so much
between provinces that a household on one side of a river might pay twenty times as much as its
neighbour on the other. Thousands of people were arrested every year for carrying salt across a
bridge. The tax was abolished in the revolution, came back sixteen years later, and was finally
removed in 1945.

None of this left much trace in the salt itself, which is the same everywhere: sodium and chlorine
in equal numbers, arranged in a cube. What differs is what comes with it. Magnesium makes it
bitter and damp. Iron turns it pink or grey. Crystals that form slowly at the surface of a pond
are hollow and flat, and they melt quickly on the tongue, so that a smaller amount tastes
stronger. Crystals from a vacuum pan are small solid cubes, which pour well and measure well. A
cook who replaces one with the other by the spoonful can be wrong by a factor of two, although by
weight there is no difference.

In the nineteenth century two inventions ended the importance of salt for food. Canning kept meat
and vegetables without it, and cold stores kept them fresh. In the same decades chemistry found
new uses for it. Soda ash, chlorine and caustic soda are all made from salt, and glass, paper,
soap and clean water depend on them. Today less than a tenth of the salt that is produced is
eaten. The largest part becomes chlorine, and a good deal is scattered on roads, where it lowers
the freezing point of water by a few degrees and ruins bridges. A substance that once had to be
guarded in towers is now given away by the lorry load whenever it snows, and the main concern of
the towns that receive it is how to get rid of it in spring.

It would be wrong to conclude that the old value was an illusion. Salt was dear because preserving
food was hard, and it became cheap when preserving food became easy, not when salt became
plentiful; there was always plenty in the sea. Prices of this kind measure a difficulty rather
than a thing. When the difficulty is solved in some other way, the thing is suddenly worth what it
costs to shovel. Ice went the same way, and so, a little later, did the pineapple.
"""
