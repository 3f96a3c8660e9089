// Byte-level BPE from the metadata of a GGUF file, as the model was trained with it.

import { ModelError } from "./errors.mjs";

const CONTROL = 3;
const USER_DEFINED = 4;
const DIGIT = /\p{N}|[^\p{N}]+/gu; // "smollm": every digit is a piece of its own
const SPACE = "\\p{White_Space}";
const WORD = new RegExp(
  `'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^${SPACE}\\p{L}\\p{N}]+|${SPACE}+(?!\\P{White_Space})|${SPACE}+`,
  "gu",
);

/** GPT-2's printable alphabet: a character for each byte. */
function alphabet() {
  let shifted = 256;
  const printable = (b) => (b >= 0x21 && b <= 0x7e) || (b >= 0xa1 && b <= 0xac) || b >= 0xae;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : shifted++));
}

const CHARACTERS = alphabet();
const BYTES = new Map(CHARACTERS.map((character, byte) => [character, byte]));

export class Tokenizer {
  /** @param {import("./gguf.mjs").GGUF} file */
  constructor(file) {
    for (const [key, supported] of [["tokenizer.ggml.model", "gpt2"], ["tokenizer.ggml.pre", "smollm"]]) {
      if (file.text(key) !== supported) throw new ModelError(`${key} is ${file.text(key)}; supported: ${supported}`);
    }
    this.pieces = file.texts("tokenizer.ggml.tokens");
    this.ids = new Map(this.pieces.map((piece, id) => [piece, id]));
    const kinds = file.integers("tokenizer.ggml.token_type");
    if (this.ids.size !== this.pieces.length || kinds.length !== this.pieces.length || kinds.length === 0) {
      throw new ModelError("tokenizer.ggml.tokens is empty, has repeats or does not match token_type");
    }
    this.ranks = this.#ranks(file.texts("tokenizer.ggml.merges"));
    this.special = new Set(this.pieces.filter((_, id) => kinds[id] === CONTROL));
    this.user = new Set(this.pieces.filter((_, id) => kinds[id] === USER_DEFINED));
    this.size = this.pieces.length;
    this.eos = this.#id(file, "tokenizer.ggml.eos_token_id");
    this.bos = file.flag("tokenizer.ggml.add_bos_token", false) ? this.#id(file, "tokenizer.ggml.bos_token_id") : null;
    this.template = file.text("tokenizer.chat_template", "");
  }

  #id(file, key) {
    const id = file.integer(key);
    if (!(id >= 0 && id < this.size)) throw new ModelError(`${key} is ${id}, beyond the vocabulary of ${this.size}`);
    return id;
  }

  #ranks(merges) {
    const ranks = new Map();
    for (const [rank, merge] of merges.entries()) {
      const [left, right, more] = merge.split(" ");
      if (!left || !right || more !== undefined || !this.ids.has(left + right)) {
        throw new ModelError(`tokenizer.ggml.merges entry ${rank} is not two tokens that join to a third`);
      }
      ranks.set(merge, rank);
    }
    return ranks;
  }

  /** Ids of a text. With `special` the texts of special tokens in it become those tokens. */
  encode(text, special = false) {
    const whole = [...this.user, ...(special ? this.special : [])].sort((a, b) => b.length - a.length);
    const ids = [];
    const escaped = whole.map((piece) => piece.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&"));
    const parts = whole.length ? text.split(new RegExp(`(${escaped.join("|")})`, "u")) : [text];
    for (const [number, part] of parts.entries()) {
      if (number % 2 === 1) ids.push(this.ids.get(part));
      else for (const run of part.match(DIGIT) ?? []) this.#encodeRun(run, ids);
    }
    return ids;
  }

  #encodeRun(run, ids) {
    for (const word of run.match(WORD) ?? []) {
      const bytes = new TextEncoder().encode(word);
      for (const piece of this.#merge(Array.from(bytes, (byte) => CHARACTERS[byte]))) {
        const id = this.ids.get(piece);
        if (id === undefined) throw new ModelError("the text holds a byte for which the model has no token");
        ids.push(id);
      }
    }
  }

  /** Joins the pair of lowest rank until none is left. */
  #merge(parts) {
    for (;;) {
      let best = Infinity;
      for (let i = 0; i + 1 < parts.length; i++) {
        best = Math.min(best, this.ranks.get(`${parts[i]} ${parts[i + 1]}`) ?? Infinity);
      }
      if (best === Infinity) return parts;
      const joined = [];
      for (let i = 0; i < parts.length; i++) {
        const joins = i + 1 < parts.length && this.ranks.get(`${parts[i]} ${parts[i + 1]}`) === best;
        joined.push(joins ? parts[i] + parts[++i] : parts[i]);
      }
      parts = joined;
    }
  }

  /** A decoder of a stream of ids: characters split over tokens come out when they are whole. */
  stream() {
    const utf8 = new TextDecoder("utf-8", { ignoreBOM: true });
    return {
      next: (id) => (this.special.has(this.pieces[id]) ? "" : utf8.decode(this.#bytes(id), { stream: true })),
      end: () => utf8.decode(),
    };
  }

  decode(ids) {
    const stream = this.stream();
    return ids.map((id) => stream.next(id)).join("") + stream.end();
  }

  #bytes(id) {
    const piece = this.pieces[id];
    if (this.user.has(piece)) return new TextEncoder().encode(piece);
    return Uint8Array.from(piece, (character) => BYTES.get(character) ?? 0x3f);
  }
}

/** The tokenizer of the tiny models: a token a byte. */
export class ByteTokenizer {
  size = 256;
  eos = null;
  bos = null;
  template = "";

  encode(text) {
    return Array.from(new TextEncoder().encode(text));
  }

  /** Bytes outside printable ASCII are written as middle dots. */
  stream() {
    return { next: (id) => (id >= 0x20 && id < 0x7f ? String.fromCharCode(id) : "\u00b7"), end: () => "" };
  }

  decode(ids) {
    return ids.map((id) => this.stream().next(id)).join("");
  }
}

/** Everything that decides the ids, as Python's JSON text: equal tokenizers have equal hashes there and here. */
export function identityBytes(file) {
  const list = (items, text) => `[${items.map(text).join(", ")}]`;
  const special = (key) => (file.metadata.has(key) ? String(file.integer(key)) : "null");
  const parts = [
    asciiJson(file.text("tokenizer.ggml.pre")),
    list(file.texts("tokenizer.ggml.tokens"), asciiJson),
    list(file.integers("tokenizer.ggml.token_type"), String),
    list(file.texts("tokenizer.ggml.merges"), asciiJson),
    special("tokenizer.ggml.bos_token_id"),
    special("tokenizer.ggml.eos_token_id"),
    String(file.flag("tokenizer.ggml.add_bos_token", false)),
  ];
  return new TextEncoder().encode(list(parts, String));
}

function asciiJson(text) {
  const escape = (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`;
  return JSON.stringify(text).replace(/[\u007f-\uffff]/g, escape);
}
