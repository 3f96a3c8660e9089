// Reads the GGUF container: metadata, and where each tensor lies. Every length is checked against the end of the
// file before anything is read or made, and tensors are never copied.

import { ModelError } from "./errors.mjs";

const MAGIC = 0x46554747;
const ARRAY = 9;
const STRING = 8;

/** Size and reader of each scalar type, by GGUF's number. */
const SCALARS = new Map([
  [0, [1, (view, at) => view.getUint8(at)]],
  [1, [1, (view, at) => view.getInt8(at)]],
  [2, [2, (view, at) => view.getUint16(at, true)]],
  [3, [2, (view, at) => view.getInt16(at, true)]],
  [4, [4, (view, at) => view.getUint32(at, true)]],
  [5, [4, (view, at) => view.getInt32(at, true)]],
  [6, [4, (view, at) => view.getFloat32(at, true)]],
  [7, [1, (view, at) => view.getUint8(at) !== 0]],
  [10, [8, (view, at) => safe(view.getBigUint64(at, true))]],
  [11, [8, (view, at) => safe(view.getBigInt64(at, true))]],
  [12, [8, (view, at) => view.getFloat64(at, true)]],
]);

/** Numbers beyond 2^53 read as NaN, which no check of a size or an index lets pass. */
const safe = (big) => (Number.isSafeInteger(Number(big)) ? Number(big) : NaN);

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  }

  /** The offset of the next `size` bytes, which are there. */
  take(size, what) {
    const at = this.at;
    if (!(size >= 0 && size <= this.bytes.length - at)) {
      throw new ModelError(`not a readable GGUF file: ${what} at byte ${at} runs past the end`);
    }
    this.at += size;
    return at;
  }

  scalar(type, what) {
    const [size, read] = SCALARS.get(type) ?? [];
    if (size === undefined) throw new ModelError(`not a readable GGUF file: ${what} has the unknown type ${type}`);
    return read(this.view, this.take(size, what));
  }

  u32(what) {
    return this.scalar(4, what);
  }

  u64(what) {
    return this.scalar(10, what);
  }

  string(what) {
    const size = this.u64(`the length of ${what}`);
    const at = this.take(size, what);
    try {
      return this.text.decode(this.bytes.subarray(at, at + size));
    } catch {
      throw new ModelError(`not a readable GGUF file: ${what} at byte ${at} is not UTF-8`);
    }
  }

  value(type, what) {
    if (type === STRING) return this.string(what);
    return type === ARRAY ? this.array(what) : this.scalar(type, what);
  }

  /** An array of scalars or strings; every element takes at least a byte, so its length bounds the memory. */
  array(what) {
    const type = this.u32(what);
    const count = this.u64(what);
    if (type === ARRAY) throw new ModelError(`${what} is an array of arrays, which this reader does not know`);
    const least = type === STRING ? 8 : (SCALARS.get(type)?.[0] ?? 1);
    if (!(count * least <= this.bytes.length - this.at)) this.take(NaN, what);
    return Array.from({ length: count }, () => this.value(type, what));
  }
}

/** A parsed file. `tensors`: name to {type, shape (outermost axis first), offset}; offsets count from the file's start. */
export class GGUF {
  /** @param {Uint8Array} bytes the whole file */
  constructor(bytes) {
    const reader = new Reader(bytes);
    if (bytes.length < 24 || reader.u32("the magic") !== MAGIC) throw new ModelError("not a GGUF file");
    const version = reader.u32("the version");
    if (version !== 2 && version !== 3) throw new ModelError(`GGUF version ${version} is not supported; supported: 2, 3`);
    const tensors = reader.u64("the tensor count");
    const keys = reader.u64("the key count");
    this.size = bytes.length;
    this.metadata = new Map();
    for (let i = 0; i < keys; i++) this.#readKey(reader);
    if (Number.isNaN(keys) || Number.isNaN(tensors)) throw new ModelError("not a readable GGUF file: impossible counts");
    this.tensors = new Map();
    for (let i = 0; i < tensors; i++) this.#readTensor(reader);
    this.#place(reader.at);
  }

  #readKey(reader) {
    const key = reader.string("a metadata key");
    if (this.metadata.has(key)) throw new ModelError(`metadata key ${key} is there twice`);
    this.metadata.set(key, reader.value(reader.u32(key), `metadata key ${key}`));
  }

  #readTensor(reader) {
    const name = reader.string("a tensor name");
    const axes = reader.u32(name);
    if (axes < 1 || axes > 4) throw new ModelError(`tensor ${name} has ${axes} axes`);
    const shape = Array.from({ length: axes }, () => reader.u64(`the shape of ${name}`)).reverse();
    if (this.tensors.has(name)) throw new ModelError(`tensor ${name} is there twice`);
    this.tensors.set(name, { type: reader.u32(name), shape, offset: reader.u64(`the offset of ${name}`) });
  }

  #place(end) {
    const alignment = this.integer("general.alignment", 32);
    if (alignment < 4 || alignment > 65536 || (alignment & (alignment - 1)) !== 0) {
      throw new ModelError(`general.alignment is ${alignment}, not a power of two from 4 to 65536`);
    }
    const start = Math.ceil(end / alignment) * alignment;
    for (const [name, tensor] of this.tensors) {
      if (tensor.offset % alignment !== 0) throw new ModelError(`tensor ${name} is not aligned to ${alignment} bytes`);
      tensor.offset += start;
    }
  }

  #get(key, fallback, good, kind) {
    const value = this.metadata.has(key) ? this.metadata.get(key) : fallback;
    if (value === undefined) throw new ModelError(`metadata key ${key} is missing`);
    if (!good(value)) throw new ModelError(`metadata key ${key} is ${String(value).slice(0, 60)}, expected ${kind}`);
    return value;
  }

  text(key, fallback) {
    return this.#get(key, fallback, (v) => typeof v === "string", "a string");
  }

  integer(key, fallback) {
    return this.#get(key, fallback, (v) => Number.isSafeInteger(v), "an integer");
  }

  number(key, fallback) {
    return this.#get(key, fallback, (v) => Number.isFinite(v), "a finite number");
  }

  flag(key, fallback) {
    return this.#get(key, fallback, (v) => typeof v === "boolean", "a boolean");
  }

  texts(key) {
    return this.#get(key, undefined, (v) => Array.isArray(v) && v.every((x) => typeof x === "string"), "strings");
  }

  integers(key) {
    return this.#get(key, undefined, (v) => Array.isArray(v) && v.every(Number.isSafeInteger), "integers");
  }

  /**
   * Where a matrix or vector lies: {type, offset, rows, columns}.
   * @param {(type: number, rows: number, columns: number) => number} bytesOf its size, 0 where it cannot be read
   */
  tensor(name, rows, columns, bytesOf) {
    const tensor = this.tensors.get(name);
    if (tensor === undefined) throw new ModelError(`tensor ${name} is missing`);
    const wanted = rows === 1 ? [columns] : [rows, columns];
    if (tensor.shape.join() !== wanted.join()) {
      throw new ModelError(`tensor ${name} has shape ${tensor.shape.join(" x ")}, expected ${wanted.join(" x ")}`);
    }
    const bytes = bytesOf(tensor.type, rows, columns);
    if (!(bytes > 0)) throw new ModelError(`tensor ${name}: GGUF type ${tensor.type} with ${columns} columns is not supported`);
    if (!(tensor.offset + bytes <= this.size)) throw new ModelError(`tensor ${name} runs past the end of the file`);
    return { type: tensor.type, offset: tensor.offset, rows, columns };
  }
}
