// Checks a golden pack without Python: node check.mjs [folder]
//
// An example of how a runtime tests itself. Digests of all files; then, of each case, codes and
// scales out of the page bytes, the query's transform and codes, sums, logits, softmax pieces,
// values, and output, each compared bit for bit. Section numbers are those of
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

/** The streams of a page of turbo keys and values. */
function readPage(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const [P, H, d] = [50, 52, 54].map((at) => view.getUint16(at, true));
  const [flags, modes] = [view.getUint16(6, true), [view.getUint8(60), view.getUint8(61)]];
  const [kind, pageMean] = [flags & 3, ((flags >> 2) & 3) === 2];
  let at = 64;
  const take = (size) => ((at = up(at, 16)), (at += size), bytes.subarray(at - size, at));
  const spans = modes.map((mode) => spansOf(mode, d));
  const each = spans.map((s) => s.reduce((sum, [n, bits]) => sum + (n * bits * P) / 8, 0));
  const packed = each.map((size) => take(H * size));
  const stored = [0, 1].map(() => take(H * P * (kind === 2 ? 2 : 1)));
  const halves = (b) => Float32Array.from({ length: b.length / 2 }, (_, i) => half(b[2 * i] | (b[2 * i + 1] << 8)));
  const mean = pageMean ? halves(take(2 * H * d)) : new Float32Array(H * d);
  const maxima = [0, 1].map(() =>
    kind === 2 ? null : new Float32Array(take(4 * H).slice().buffer));
  return [0, 1].map((s) => ({
    P, H, d, kind, mean, stored: stored[s], maxima: maxima[s], halves,
    codes: Array.from({ length: H }, (_, h) =>
      codesOf(packed[s].subarray(h * each[s], (h + 1) * each[s]), spans[s], P, d, s === 0)),
  }));
}

const FULL = Float32Array.from({ length: 16 }, (_, m) => 2 ** (-m / 16));
/** su of every [head][token], unit of every head (section 5, item 4). */
function scalesOf({ P, H, kind, stored, maxima, halves }) {
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

// --- a case -------------------------------------------------------------------------------------

function check(name, { spec, arrays }) {
  const a = Object.fromEntries(Object.entries(arrays).map(([key, entry]) => [key, load(entry)]));
  const { head_dim: d, query_heads: Q, kv_heads: H, page_tokens: P } = spec;
  const is = (what, found) => same(`${name} ${what}`, found, a[what]);
  const turn = Object.fromEntries(["key", "value"].map((s) => [s, {
    signs1: a[`${s}.signs1`], order: a[`${s}.order`], signs2: a[`${s}.signs2`], rounds: spec.rounds,
    read: a[`${s}.gain`][1],
    books: [0, 1].map((i) => a[`${s}.centroids${i}`]).filter(Boolean),
  }]));
  const kv = (h) => Math.floor((h * H) / Q);
  const row = (x, i, n = d) => x.subarray(i * n, (i + 1) * n);

  // Section 7: the query.
  const factor = f(1.4426950408889634 * f(spec.softmax_scale));
  const ql = a.query.map((x) => (Math.abs(f(x * factor)) < 2 ** -64 ? 0 : x * factor));
  is("query.scaled", ql);
  const z = new Float32Array(Q * d), qi = new Int8Array(Q * d), qs = new Float32Array(Q);
  for (let h = 0; h < Q; h++) {
    z.set(forward(row(ql, h).slice(), turn.key), h * d);
    const most = row(z, h).reduce((m, x) => Math.max(m, Math.abs(x)), 0);
    const times = f(127 / most);
    qi.set(row(z, h).map((x) => (most ? rne(f(x * times)) : 0)), h * d);
    qs[h] = f(f(most * f(1 / 127)) * turn.key.read);
  }
  is("query.transformed", z), is("query.codes", qi), is("query.unit", qs);

  // Section 10: tokens held as fp16.
  const top = a["recent.maximum"], l0 = new Float32Array(Q), R = new Float32Array(Q * d);
  const recent = a["recent.logits"] ? a["recent.logits"].length / Q : 0;
  for (let h = 0; h < Q && recent; h++) {
    const p = row(a["recent.logits"], h, recent).map((t) => ex2(f(t - top[h])));
    same(`${name} recent.weights`, p, row(a["recent.weights"], h, recent));
    l0[h] = sum16(p);
  }
  if (recent) is("recent.sum", l0), R.set(a["recent.output"]);

  // Sections 5, 8 and 10: pages, chunk by chunk.
  const count = a.pages.length / arrays.pages.shape[1];
  const fresh = () => ({ M: top && top.slice(), l: new Float32Array(Q), acc: new Float32Array(Q * d) });
  const chunks = [];
  const found = { sums: [], logits: [], maximum: [], weights: [], value_weights: [], value_sums: [],
    running_sum: [], running_output: [] };
  for (let page = 0; page < count; page++) {
    if (page % 16 === 0) chunks.push(fresh());
    onePage(page, chunks.at(-1));
  }
  for (const [what, list] of Object.entries(found)) {
    const flat = new a[`pages.${what}`].constructor(list.flatMap((x) => [...x]));
    is(`pages.${what}`, flat);
  }

  function onePage(page, chunk) {
    const streams = readPage(row(a.pages, page, arrays.pages.shape[1]));
    const [key, value] = streams.map((s, i) => {
      const stream = ["key", "value"][i];
      s.codes.forEach((codes, h) =>
        same(`${name} ${stream}.codes`, codes, row(a[`${stream}.codes`], page * H + h, P * d)));
      const scales = scalesOf(s);
      same(`${name} ${stream}.scale_read`, scales.su, row(a[`${stream}.scale_read`], page, H * P));
      same(`${name} ${stream}.scale_unit`, scales.unit, row(a[`${stream}.scale_unit`], page, H));
      return { ...scales, levels: s.codes.map((c) => levelsOf(c, turn[stream].books, d)) };
    });
    const centred = spec.key_centre !== "none";
    const mean = row(spec.key_centre === "page" ? streams[0].mean : new Float32Array(H * d), 0, H * d);
    chunk.M ??= new Float32Array(Q).fill(-Infinity);
    for (let h = 0; h < Q; h++) {
      const [g, q] = [kv(h), row(qi, h)];
      const sums = Int32Array.from({ length: P }, (_, j) =>
        q.reduce((sum, x, c) => sum + x * key.levels[g][j * d + c], 0));
      const by = f(qs[h] * key.unit[g]);
      const extra = centred ? dot16(row(ql, h), row(mean, g)) : 0;
      const t = Float32Array.from(sums, (I, j) => {
        const plain = f(f(I * key.su[g * P + j]) * by);
        return centred ? plain + extra : plain;
      });
      const mp = t.reduce((m, x) => Math.max(m, x), -Infinity);
      const p = t.map((x) => ex2(f(x - mp)));
      if (chunk.M[h] === -Infinity) chunk.M[h] = mp;
      const joint = Math.max(chunk.M[h], mp);
      const [al, be] = [ex2(f(chunk.M[h] - joint)), ex2(f(mp - joint))];
      const w = p.map((x, j) => x * value.su[g * P + j]);
      const most = w.reduce((m, x) => Math.max(m, x), 0);
      const times = f(16383 / most);
      const iw = Int16Array.from(w, (x) => (most < 2 ** -60 ? 0 : rne(f(x * times))));
      const A = Int32Array.from({ length: d }, (_, c) =>
        iw.reduce((sum, x, j) => sum + x * value.levels[g][j * d + c], 0));
      const by2 = f(f(f(most * f(1 / 16383)) * value.unit[g]) * be);
      const acc = row(chunk.acc, h);
      if (!(f(mp - chunk.M[h]) < -40)) {
        chunk.l[h] = f(f(chunk.l[h] * al) + f(sum16(p) * be));
        A.forEach((x, c) => (acc[c] = f(f(acc[c] * al) + f(f(x) * by2))));
        chunk.M[h] = joint;
      }
      Object.entries({ sums, logits: t, maximum: [mp], weights: p, value_weights: iw,
        value_sums: A, running_sum: [chunk.l[h]], running_output: acc.slice() })
        .forEach(([what, x]) => found[what].push(x));
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
  const valueMean = Float32Array.from(a["value.mean"].subarray(0, H * d), half);
  for (let h = 0; h < Q; h++) {
    const fade = recent ? ex2(f(top[h] - total.M[h])) : 1;
    const sum = f(total.l[h] + f(l0[h] * fade));
    back(row(total.acc, h), turn.value).forEach((x, c) => {
      let o = f(x * turn.value.read);
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
