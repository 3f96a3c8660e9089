// The golden caches: their inputs from the pinned generator, and the bytes that every exact backend must give.

const MASK = (1n << 64n) - 1n;

/** SplitMix64 (Steele, Lea and Flood 2014) as multiples of 2^-10 between -2 and 2. */
export function pinned(seed, count) {
  let state = BigInt(seed);
  return Float32Array.from({ length: count }, () => {
    state = (state + 0x9e3779b97f4a7c15n) & MASK;
    let z = ((state ^ (state >> 30n)) * 0xbf58476d1ce4e5b9n) & MASK;
    z = ((z ^ (z >> 27n)) * 0x94d049bb133111ebn) & MASK;
    z ^= z >> 31n;
    return (Number((z >> 40n) % 4001n) - 2000) / 1024;
  });
}

/** Rows whose first three tokens are zero, e1 and [100, .01, .01, ...]. */
function rows(seed, tokens, heads, dim) {
  const made = pinned(seed, tokens * heads * dim);
  made.fill(0, 0, 2 * heads * dim);
  made.fill(0.01, 2 * heads * dim, 3 * heads * dim);
  for (let head = 0; head < heads; head++) {
    made[(heads + head) * dim] = 1;
    made[(2 * heads + head) * dim] = 100;
  }
  return made;
}

/** Keys, values and queries of a layer; `number` is the place of the case in the index. */
export function inputs({ spec, tokens, queries }, number, layer) {
  const stream = 10 * number + layer;
  return {
    keys: rows(1000 + stream, tokens, spec.kv_heads, spec.head_dim),
    values: rows(2000 + stream, tokens, spec.kv_heads, spec.head_dim),
    q: pinned(3000 + stream, queries * spec.query_heads * spec.head_dim),
  };
}

/** All cases with their inputs and bytes. */
export async function readGolden(base) {
  const bytes = async (name) => {
    const answer = await fetch(new URL(`golden/${name}`, base));
    if (!answer.ok) throw new Error(`golden/${name} cannot be read: ${answer.status} ${answer.statusText}`);
    return new Uint8Array(await answer.arrayBuffer());
  };
  const index = JSON.parse(new TextDecoder().decode(await bytes("index.json")));
  return Promise.all(
    index.map(async (item, number) => {
      const [dump, scores, outputs] = await Promise.all(
        ["dump", "scores", "outputs"].map((suffix) => bytes(`${item.name}.${suffix}`)),
      );
      const layers = Array.from({ length: item.spec.layers }, (_, layer) => inputs(item, number, layer));
      return { ...item, layers, dump, scores, outputs };
    }),
  );
}
