// A text to fill the context with, written for this page.

export const SAMPLE = `The lighthouse keeper wrote down the weather every evening. On the first of March the wind came
from the north and the sea was grey. On the second it turned, and two fishing boats passed close to the rocks with
their lamps already lit. On the third there was fog, so thick that the bell had to be rung by hand from noon until
midnight, forty strokes in every hour. The keeper slept badly and dreamed of ships that were not there. On the fourth
the fog lifted and left everything wet and shining. A letter came with the supply boat: the inspector would visit
within the week, to look at the lenses, the oil and the books. So the brass was polished and the stairs were swept.
`;
