// Checks a golden pack without Python: node check.mjs [folder]
//
// An example of how a runtime tests itself. Digests of all files; then, of each case, codes, signs,
// scales and steps out of the page bytes, the query's transforms and codes, sums, logits, softmax
// pieces, values, scores and output, each compared bit for bit. Section numbers are those of
// docs/numeric-contract.md; page layout and tiles are those of docs/page-format.md.
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = process.argv[2] ?? dirname(fileURLToPath(import.meta.url));
const manifest = JSON.parse(readFileSync(join(folder, "manifest.json"), "utf8"));
const f = Math.fround;
const TYPES = {
  float32: Float32Array, int8: Int8Array, uint8: Uint8Array, int16: Int16Array, int32: Int32Array,
  float16: Uint16Array,
};
let compared = 0;
const failures = [];

function same(what, found, expected) {
  const [a, b] = [found, expected].map((x) => new Uint8Array(x.buffer, x.byteOffset, x.byteLength));
  compared += found.length;
  if (a.length !== b.length) return failures.push(`${what}: ${a.length} bytes, not ${b.length}`);
  const at = a.findIndex((byte, i) => byte !== b[i]);
  if (at >= 0) {
    const i = Math.floor(at / found.BYTES_PER_ELEMENT);
    failures.push(`${what}: element ${i} is ${found[i]}, not ${expected[i]}`);
  }
}

function load(entry) {
  const bytes = readFileSync(join(folder, entry.file));
  const digest = createHash("sha256").update(bytes).digest("hex");
  if (digest !== entry.sha256) failures.push(`${entry.file}: its digest is not the manifest's`);
  const Type = TYPES[entry.dtype];
  return new Type(bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length));
}

// --- section 0, 4, 10 ---------------------------------------------------------------------------

const LN2 = f(Math.LN2);
const rne = (x) => f(f(x + 12582912) - 12582912);
const half = (u) => {
  const [sign, exponent, m] = [u >> 15 ? -1 : 1, (u >> 10) & 31, u & 1023];
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + m / 1024) : 2 ** -14 * (m / 1024));
};
function sum16(terms) {
  const s = new Float32Array(16);
  terms.forEach((x, i) => (s[i % 16] += x)); // a Float32Array rounds each sum
  for (const h of [8, 4, 2, 1]) for (let i = 0; i < h; i++) s[i] += s[i + h];
  return s[0];
}
const dot16 = (a, b) => sum16(a.map((x, i) => x * b[i])); // a is a Float32Array: products round
const words = new Uint32Array(1);
const asFloat = new Float32Array(words.buffer);
const floatOf = (bits) => ((words[0] = bits), asFloat[0]);
const bitsOf = (x) => ((asFloat[0] = x), words[0]);
const EX2 = [0x3f800000, 0x3f317215, 0x3e75fcde, 0x3d635ba9, 0x3c1e7544, 0x3aaddd0a].map(floatOf);
function ex2(x) {
  if (x < -64) return 0;
  const w = f(x + 12582912);
  const r = f(x - f(w - 12582912));
  let p = EX2[5];
  for (const c of EX2.slice(0, 5).reverse()) p = f(f(p * r) + c);
  return floatOf(bitsOf(p) + (bitsOf(w) << 23));
}
function hadamard(x) {
  const block = x.length & -x.length;
  for (let h = 1; h < block; h *= 2)
    for (let i = 0; i < x.length; i++)
      if (!(i & h)) [x[i], x[i + h]] = [x[i] + x[i + h], x[i] - x[i + h]];
  return x;
}
function forward(x, t) {
  const y = hadamard(x.map((v, c) => v * t.signs1[c]));
  return t.rounds === 1 ? y : hadamard(y.map((_, c) => y[t.order[c]] * t.signs2[c]));
}
function back(y, t) {
  let x = hadamard(y.slice());
  if (t.rounds === 2) {
    const scattered = new Float32Array(x.length);
    x.forEach((v, c) => (scattered[t.order[c]] = v * t.signs2[c]));
    x = hadamard(scattered);
  }
  return x.map((v, c) => v * t.signs1[c]);
}

// --- pages --------------------------------------------------------------------------------------

const up = (n, step) => Math.ceil(n / step) * step;
const bit = (bytes, at) => (bytes[at >> 3] >> (at & 7)) & 1;
function inTile(bits, code, b) {
  if (bits === 4) return 8 * (code % 32) + 4 * (code >> 5) + b;
  if (bits === 2) return 8 * (code % 16) + 2 * (code >> 4) + b;
  if (bits === 1) return code;
  return b < 2 ? inTile(2, code, b) : 128 + code; // 3 bits: two and one
}
const tileCode = (bytes, start, bits, code) =>
  Array.from({ length: bits }, (_, b) => bit(bytes, start + inTile(bits, code, b)) << b)
    .reduce((sum, x) => sum + x, 0);

function spansOf(mode, d) {
  const low = (mode & 15) >> 1;
  return mode & 1 ? [[d / 2, low], [d / 2, low + 1]] : [[d, low]];
}

/** Codes of one head, [token][channel]. */
function codesOf(bytes, spans, P, d, ofKeys) {
  const out = new Uint8Array(P * d);
  const blockBits = 16 * spans.reduce((sum, [n, bits]) => sum + n * bits, 0);
  let [start, first] = [0, 0];
  for (const [channels, bits] of spans) {
    for (let token = 0; token < P; token++) {
      for (let c = 0; c < channels; c++) {
        let [tile, code] = [c >> 2, 4 * (token % 16) + (c % 4)];
        let base = (token >> 4) * blockBits;
        if (!ofKeys) {
          const group = c >> 4;
          const tail = 16 * group + 16 > channels; // eight channels are left
          tile = (group * P) / 4 + (token >> (tail ? 3 : 2));
          code = 4 * (tail ? (c % 16) + 8 * ((token >> 2) % 2) : c % 16) + (token % 4);
          base = 0;
        }
        out[token * d + first + c] = tileCode(bytes, base + start + tile * 64 * bits, bits, code);
      }
    }
    start += (ofKeys ? 16 : P) * channels * bits;
    first += channels;
  }
  return out;
}

const halves = (b) =>
  Float32Array.from({ length: b.length / 2 }, (_, i) => half(b[2 * i] | (b[2 * i + 1] << 8)));

/** The streams of a page: of keys, then of values. */
function readPage(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [P, H, d] = [50, 52, 54].map((at) => view.getUint16(at, true));
  const [flags, modes] = [view.getUint16(6, true), [view.getUint8(60), view.getUint8(61)]];
  const [kind, pageMean] = [flags & 3, ((flags >> 2) & 3) === 2];
  const families = modes.map((mode) => ["fp16", "turbo", "qjl", "kivi"][mode >> 4]);
  const turbo = families.map((family) => family === "turbo" || family === "qjl");
  const qjl = families[0] === "qjl";
  let at = 64;
  const take = (size) => ((at = up(at, 16)), (at += size), bytes.subarray(at - size, at));
  const scales = (there) => (there ? take(H * P * (kind === 2 ? 2 : 1)) : null);
  const maxima = (there) => (there && kind !== 2 ? new Float32Array(take(4 * H).slice().buffer) : null);
  const spans = modes.map((mode, s) => (families[s] === "fp16" ? [[d, 16]] : spansOf(mode, d)));
  const each = spans.map((s) => s.reduce((sum, [n, bits]) => sum + (n * bits * P) / 8, 0));
  const streams = [0, 1].map((s) => ({ P, H, d, kind, family: families[s], packed: take(H * each[s]) }));
  const [key, value] = streams;
  const signs = qjl ? take((H * P * d) / 8) : null;
  key.stored = scales(turbo[0]);
  if (qjl) key.norms = { P, H, kind, stored: scales(true) };
  value.stored = scales(turbo[1]);
  for (const [s, size] of [[0, Math.ceil(P / 32) * d], [1, Math.ceil(d / 32) * P]])
    if (families[s] === "kivi")
      [streams[s].steps, streams[s].minima] = [0, 1].map(() => halves(take(2 * H * size)));
  key.mean = pageMean ? halves(take(2 * H * d)) : null;
  key.maxima = maxima(turbo[0]);
  if (qjl) key.norms.maxima = maxima(true);
  value.maxima = maxima(turbo[1]);
  const heads = Array.from({ length: H }, (_, h) => h);
  streams.forEach((stream, s) => {
    const part = (h) => stream.packed.subarray(h * each[s], (h + 1) * each[s]);
    stream.codes = heads.map((h) =>
      stream.family === "fp16" ? new Uint16Array(part(h).slice().buffer) : codesOf(part(h), spans[s], P, d, s === 0));
  });
  const oneBit = (P * d) / 8;
  if (qjl) key.signs = heads.map((h) => codesOf(signs.subarray(h * oneBit, (h + 1) * oneBit), [[d, 1]], P, d, true));
  return { start: view.getUint32(40, true), streams };
}

const FULL = Float32Array.from({ length: 16 }, (_, m) => 2 ** (-m / 16));
/** su of every [head][token], unit of every head (section 5, item 4). */
function scalesOf({ P, H, kind, stored, maxima }) {
  if (kind === 2) return { su: halves(stored), unit: new Float32Array(H).fill(1) };
  const log = (u) => (u === 0 ? 0 : FULL[(255 - u) % 16] * 2 ** -((255 - u) >> 4));
  const su = Float32Array.from({ length: H * P }, (_, i) => (kind ? log(stored[i]) : stored[i]));
  return { su, unit: maxima.map((m) => (kind ? m : m * f(1 / 255))) };
}

/** Centroids of codes: the positive half mirrored. */
const levelsOf = (codes, books, d) =>
  Float32Array.from(codes, (code, i) => {
    const book = books[books.length === 2 && i % d >= d / 2 ? 1 : 0];
    return code < book.length ? -book[book.length - 1 - code] : book[code - book.length];
  });

/** Integers of a vector and their unit (section 7). */
function integers(z, bound) {
  const most = z.reduce((m, x) => Math.max(m, Math.abs(x)), 0);
  const times = f(bound / most);
  return [Int32Array.from(z, (x) => (most ? rne(f(x * times)) : 0)), f(most * f(1 / bound))];
}
/** Sum of count products of integers. */
const product = (count, left, right) => {
  let sum = 0;
  for (let i = 0; i < count; i++) sum += left(i) * right(i);
  return sum;
};

// --- logits of a page, and what it adds: sections 8 and 10 ----------------------------------------
// Each returns its result and the steps on the way, by their names in the manifest.

const KEYS = {
  turbo(key, g, query) {
    const { P, d } = key, { codes, unit } = query;
    const sums = Int32Array.from({ length: P }, (_, j) =>
      product(d, (c) => codes[c], (c) => key.levels[g][j * d + c]));
    const by = f(unit * key.unit[g]);
    return [Float32Array.from(sums, (I, j) => f(f(I) * key.su[g * P + j]) * by), { sums }];
  },
  qjl(key, g, query) {
    const { P, d, norms } = key;
    const [t, kept] = KEYS.turbo(key, g, query);
    const sign_sums = Int32Array.from({ length: P }, (_, j) =>
      product(d, (c) => query.codes2[c], (c) => (key.signs[g][j * d + c] ? 1 : -1)));
    const by = f(f(query.unit2 * norms.unit[g]) * query.constant);
    return [t.map((x, j) => x + f(f(f(sign_sums[j]) * norms.su[g * P + j]) * by)), { ...kept, sign_sums }];
  },
  kivi(key, g, { ql }) {
    const { P, d } = key, groups = Math.ceil(P / 32);
    const at = (stream, group) => stream.subarray((g * groups + group) * d, (g * groups + group + 1) * d);
    const query_codes = new Int16Array(groups * d), query_unit = new Float32Array(groups);
    const bias = new Float32Array(groups);
    for (let group = 0; group < groups; group++) {
      const steps = at(key.steps, group);
      const [codes, unit] = integers(ql.map((x, c) => x * steps[c]), 16256);
      query_codes.set(codes, group * d), (query_unit[group] = unit);
      bias[group] = dot16(ql, at(key.minima, group));
    }
    const sums = Int32Array.from({ length: P }, (_, j) =>
      product(d, (c) => query_codes[(j >> 5) * d + c], (c) => key.codes[g][j * d + c]));
    const t = Float32Array.from(sums, (I, j) => f(f(I) * query_unit[j >> 5]) + bias[j >> 5]);
    return [t, { sums, query_codes, query_unit, bias }];
  },
  fp16({ P, d, codes }, g, { ql }) {
    const row = (j) => Float32Array.from(codes[g].subarray(j * d, (j + 1) * d), half);
    return [Float32Array.from({ length: P }, (_, j) => dot16(ql, row(j))), {}];
  },
};

/** iw of weights, and the largest of them. */
function weighed(w) {
  const most = w.reduce((m, x) => Math.max(m, x), 0);
  const times = f(16383 / most);
  return [Int16Array.from(w, (x) => (most < 2 ** -60 ? 0 : rne(f(x * times)))), most];
}
const VALUES = {
  turbo(value, g, p, be) {
    const { P, d } = value;
    const [value_weights, most] = weighed(p.map((x, j) => x * value.su[g * P + j]));
    const value_sums = Int32Array.from({ length: d }, (_, c) =>
      product(P, (j) => value_weights[j], (j) => value.levels[g][j * d + c]));
    const by = f(f(f(most * f(1 / 16383)) * value.unit[g]) * be);
    return [Float32Array.from(value_sums, (x) => f(x) * by), { value_weights, value_sums }];
  },
  kivi(value, g, p, be) {
    const { P, d } = value, groups = Math.ceil(d / 32);
    const value_weights = new Int16Array(groups * P), value_minima = new Float32Array(groups);
    const value_sums = new Int32Array(d), value_output = new Float32Array(d);
    for (let group = 0; group < groups; group++) {
      const at = (g * groups + group) * P;
      const [iw, most] = weighed(p.map((x, j) => x * value.steps[at + j]));
      value_weights.set(iw, group * P);
      value_minima[group] = dot16(p, value.minima.subarray(at, at + P));
      for (let c = 32 * group; c < Math.min(d, 32 * group + 32); c++) {
        value_sums[c] = product(P, (j) => iw[j], (j) => value.codes[g][j * d + c]);
        value_output[c] = f(f(value_sums[c]) * f(most * f(1 / 16383))) + value_minima[group];
      }
    }
    return [value_output.map((x) => x * be), { value_weights, value_sums, value_minima, value_output }];
  },
  fp16({ P, d, codes }, g, p, be) {
    const value_output = new Float32Array(d); // which rounds each sum
    for (let j = 0; j < P; j++)
      for (let c = 0; c < d; c++) value_output[c] += f(p[j] * half(codes[g][j * d + c]));
    return [value_output.map((x) => x * be), { value_output }];
  },
};

// --- a case -------------------------------------------------------------------------------------

/** K of section 7. */
function signConstant(d, rounds) {
  const E = rounds * Math.log2(d & -d);
  const X = (Math.PI / 2 / d) * (E % 2 ? 2 : 1);
  return f(Math.sqrt(X) * 2 ** (Math.ceil(E / 2) - (3 * E + (E % 2)) / 2));
}

function check(name, { spec, tokens, arrays }) {
  const a = Object.fromEntries(Object.entries(arrays).map(([key, entry]) => [key, load(entry)]));
  const { head_dim: d, query_heads: Q, kv_heads: H, page_tokens: P } = spec;
  const is = (what, found) => same(`${name} ${what}`, found, a[what]);
  const tables = (s) => a[`${s}.signs1`] && {
    signs1: a[`${s}.signs1`], order: a[`${s}.order`], signs2: a[`${s}.signs2`], rounds: spec.rounds,
    read: a[`${s}.gain`]?.[1],
    books: [0, 1].map((i) => a[`${s}.centroids${i}`]).filter(Boolean),
  };
  const turn = { key: tables("key"), value: tables("value"), sign: tables("sign") };
  const kv = (h) => Math.floor((h * H) / Q);
  const row = (x, i, n = d) => x.subarray(i * n, (i + 1) * n);
  const attended = (token) => token < spec.sinks || !spec.span || token >= tokens - spec.span;

  // Section 7: the query.
  const factor = f(1.4426950408889634 * f(spec.softmax_scale));
  const ql = a.query.map((x) => (Math.abs(f(x * factor)) < 2 ** -64 ? 0 : x * factor));
  is("query.scaled", ql);
  const queries = Array.from({ length: Q }, (_, h) => ({ ql: row(ql, h) }));
  if (turn.key) {
    const z = new Float32Array(Q * d), z2 = new Float32Array(Q * d);
    queries.forEach((query, h) => {
      z.set(forward(query.ql.slice(), turn.key), h * d);
      [query.codes, query.unit] = integers(row(z, h), 127);
      query.unit = f(query.unit * turn.key.read);
      if (!turn.sign) return;
      z2.set(forward(row(z, h).slice(), turn.sign), h * d);
      [query.codes2, query.unit2] = integers(row(z2, h), 127);
      query.constant = signConstant(d, spec.rounds);
    });
    const all = (field) => queries.flatMap((query) => [...query[field]]);
    is("query.transformed", z), is("query.codes", Int8Array.from(all("codes")));
    is("query.unit", Float32Array.from(queries, (query) => query.unit));
    if (turn.sign) {
      is("query.projected", z2), is("query.projected_codes", Int8Array.from(all("codes2")));
      is("query.projected_unit", Float32Array.from(queries, (query) => query.unit2));
      is("query.constant", Float32Array.of(queries[0].constant));
    }
  }

  // Section 10: tokens held as fp16.
  const scores = new Float32Array(Q * tokens).fill(-Infinity);
  const top = a["recent.maximum"], l0 = new Float32Array(Q), R = new Float32Array(Q * d);
  const recent = a["recent.logits"] ? a["recent.logits"].length / Q : 0;
  for (let h = 0; h < Q && recent; h++) {
    const p = row(a["recent.logits"], h, recent).map((t) => ex2(f(t - top[h])));
    same(`${name} recent.weights`, p, row(a["recent.weights"], h, recent));
    l0[h] = sum16(p);
    a["recent.tokens"].forEach((token, i) => {
      scores[h * tokens + token] = row(a["recent.logits"], h, recent)[i] * LN2;
    });
  }
  if (recent) is("recent.sum", l0), R.set(a["recent.output"]);

  // Sections 5, 8 and 10: pages, chunk by chunk.
  const count = a.pages.length / arrays.pages.shape[1];
  const fresh = () => ({ M: top && top.slice(), l: new Float32Array(Q), acc: new Float32Array(Q * d) });
  const chunks = [];
  const found = {};
  for (let page = 0; page < count; page++) onePage(page);
  for (const [what, list] of Object.entries(found))
    is(`pages.${what}`, new a[`pages.${what}`].constructor(list.flatMap((x) => [...x])));

  function onePage(page) {
    const { start, streams } = readPage(row(a.pages, page, arrays.pages.shape[1]));
    if (page === 0 || ((start - spec.sinks) / P) % 16 === 0) chunks.push(fresh());
    const chunk = chunks.at(-1);
    const [key, value] = streams.map((s, i) => {
      const stream = ["key", "value"][i];
      const has = (what, x) => same(`${name} ${stream}.${what}`, x, row(a[`${stream}.${what}`], page, x.length));
      const all = (parts) => new parts[0].constructor(parts.flatMap((x) => [...x]));
      has("codes", all(s.codes));
      if (s.family === "fp16") return s;
      if (s.family === "kivi") {
        for (const what of ["steps", "minima"])
          same(`${name} ${stream}.${what}`, s[what], Float32Array.from(row(a[`${stream}.${what}`], page, s[what].length), half));
        return s;
      }
      if (s.signs) {
        Object.assign(s.norms, scalesOf(s.norms));
        has("signs", all(s.signs)), has("norm_read", s.norms.su), has("norm_unit", s.norms.unit);
      }
      const scales = scalesOf(s);
      has("scale_read", scales.su), has("scale_unit", scales.unit);
      return { ...s, ...scales, levels: s.codes.map((c) => levelsOf(c, turn[stream].books, d)) };
    });
    const mean = key.mean ?? Float32Array.from(row(a["key.mean"], page, H * d), half);
    chunk.M ??= new Float32Array(Q).fill(-Infinity);
    for (let h = 0; h < Q; h++) {
      const g = kv(h);
      const [plain, steps] = KEYS[key.family](key, g, queries[h]);
      const extra = spec.key_centre === "none" ? null : dot16(row(ql, h), row(mean, g));
      const t = extra === null ? plain : plain.map((x) => x + extra);
      const seen = (j) => attended(start + j);
      t.forEach((x, j) => { if (seen(j)) scores[h * tokens + start + j] = x * LN2; });
      const mp = t.reduce((m, x, j) => (seen(j) ? Math.max(m, x) : m), -Infinity);
      const p = t.map((x, j) => (seen(j) ? ex2(f(x - mp)) : 0));
      if (chunk.M[h] === -Infinity) chunk.M[h] = mp;
      const joint = Math.max(chunk.M[h], mp);
      const [al, be] = [ex2(f(chunk.M[h] - joint)), ex2(f(mp - joint))];
      const [x, more] = VALUES[value.family](value, g, p, be);
      const acc = row(chunk.acc, h), ps = sum16(p);
      if (!(f(mp - chunk.M[h]) < -40)) {
        chunk.l[h] = f(f(chunk.l[h] * al) + f(ps * be));
        acc.forEach((old, c) => (acc[c] = f(f(old * al) + x[c])));
        chunk.M[h] = joint;
      }
      Object.entries({ ...steps, ...more, logits: t, maximum: [mp], weights: p, sum: [ps],
        running_maximum: [chunk.M[h]], running_sum: [chunk.l[h]], running_output: acc.slice() })
        .forEach(([what, y]) => (found[what] ??= []).push(y));
    }
  }

  // The fold, the way back and the division.
  const total = fresh();
  for (const chunk of chunks) {
    total.M ??= chunk.M.slice();
    for (let h = 0; h < Q; h++) {
      const joint = Math.max(total.M[h], chunk.M[h]);
      const [al, be] = [ex2(f(total.M[h] - joint)), ex2(f(chunk.M[h] - joint))];
      total.l[h] = f(f(total.l[h] * al) + f(chunk.l[h] * be));
      const [acc, more] = [row(total.acc, h), row(chunk.acc, h)];
      acc.forEach((x, c) => (acc[c] = f(f(x * al) + f(more[c] * be))));
      total.M[h] = joint;
    }
  }
  is("total.sum", total.l), is("total.output", total.acc);
  const out = new Float32Array(Q * d);
  is("scores", scores);
  const valueMean = Float32Array.from(a["value.mean"].subarray(0, H * d), half);
  for (let h = 0; h < Q; h++) {
    const fade = recent ? ex2(f(top[h] - total.M[h])) : 1;
    const sum = f(total.l[h] + f(l0[h] * fade));
    const sums = row(total.acc, h);
    const channels = turn.value ? back(sums, turn.value).map((x) => x * turn.value.read) : sums;
    channels.forEach((x, c) => {
      let o = x;
      if (spec.value_centre !== "none") o = f(o + f(total.l[h] * valueMean[kv(h) * d + c]));
      out[h * d + c] = f(f(o + f(R[h * d + c] * fade)) / sum) + 0;
    });
  }
  is("output", out);
}

for (const [name, entry] of Object.entries(manifest.cases)) check(name, entry);
for (const failure of failures.slice(0, 20)) console.error(failure);
console.log(`golden pack ${manifest.pack}: ${Object.keys(manifest.cases).length} cases, ${compared} numbers, ${failures.length} differences`);
process.exit(failures.length || !compared ? 1 : 0);
