// Parity: what this engine writes, computes and reads, against the golden bytes, to the last bit.

const bytesOf = (floats) => new Uint8Array(floats.buffer, floats.byteOffset, floats.byteLength);

/** Bytes that differ, bytes compared, the first place. */
class Comparison {
  mismatches = 0;
  comparisons = 0;
  first = "";

  add(what, found, expected) {
    this.comparisons += expected.length;
    let wrong = Math.abs(found.length - expected.length);
    for (let i = 0; i < Math.min(found.length, expected.length); i++) {
      if (found[i] === expected[i]) continue;
      this.first ||= `${what}, byte ${i}: ${found[i]}, expected ${expected[i]}`;
      wrong++;
    }
    if (wrong) this.first ||= `${what}: ${found.length} bytes, expected ${expected.length}`;
    this.mismatches += wrong;
  }
}

function compare(cache, golden) {
  const result = new Comparison();
  result.add("dump", cache.dump(), golden.dump);
  const at = { scores: 0, outputs: 0 };
  for (const [layer, { q }] of golden.layers.entries()) {
    const last = q.subarray(q.length - golden.spec.query_heads * golden.spec.head_dim);
    for (const [what, floats] of [["scores", cache.scores(layer, last)], ["outputs", cache.attend(layer, q)]]) {
      const found = bytesOf(floats);
      result.add(`${what} of layer ${layer}`, found, golden[what].subarray(at[what], at[what] + found.length));
      at[what] += found.length;
    }
  }
  return result;
}

function written(library, golden) {
  const cache = library.prepare(golden.spec);
  try {
    golden.layers.forEach(({ keys, values }, layer) => cache.append(layer, keys, values));
    return compare(cache, golden);
  } finally {
    cache.close();
  }
}

function read(library, golden) {
  const cache = library.restore(golden.spec, golden.dump);
  try {
    return compare(cache, golden);
  } finally {
    cache.close();
  }
}

/** Two records for one golden cache: made here, and restored from the golden dump. */
export function parity(library, golden) {
  return [["parity.mismatches", written], ["parity.cross_read", read]].map(([check, run]) => {
    const { mismatches, comparisons, first } = run(library, golden);
    return { check, subject: golden.name, variant: library.variant, value: mismatches, comparisons, first };
  });
}
