// Linear memory seen from outside. Growth detaches every typed array made before it, silently: so
// arrays are made anew for each use, each range is checked first, and a kept one raises when stale.
import { CacheMemoryError, InputError, ModuleError, StaleViewError, StateError } from "./errors.mjs";

export const PAGE_BYTES = 65536;

/** The memory of one instance, and its arena. */
export class LinearMemory {
  constructor(exports) {
    if (!(exports.memory instanceof WebAssembly.Memory))
      throw new ModuleError("the module exports no memory; build it with an exported one");
    this.exports = exports;
    this.memory = exports.memory;
    this.closed = false;
  }

  /** The buffer of now: another one after growth, even after memory.grow(0). */
  get buffer() {
    if (this.closed) throw new StateError("the library is closed; load it again");
    return this.memory.buffer;
  }

  /** A typed array over memory, for this moment. `what` names the range where it lies outside. */
  array(Type, pointer, count, what) {
    this.check(pointer, count * Type.BYTES_PER_ELEMENT, Type.BYTES_PER_ELEMENT, what);
    return new Type(this.buffer, pointer, count);
  }

  /** A DataView over memory, for this moment. */
  dataView(pointer, bytes, what) {
    this.check(pointer, bytes, 1, what);
    return new DataView(this.buffer, pointer, bytes);
  }

  check(pointer, bytes, alignment, what) {
    const size = this.buffer.byteLength;
    const whole = Number.isSafeInteger(pointer) && Number.isSafeInteger(bytes);
    if (whole && pointer > 0 && bytes >= 0 && bytes <= size && pointer <= size - bytes) {
      if (pointer % alignment === 0) return;
      throw new ModuleError(`${what}: address ${pointer} is not aligned to ${alignment}`);
    }
    throw new ModuleError(
      `${what}: ${bytes} bytes at ${pointer} are not inside the ${size} bytes of memory; the module ` +
        "gives wrong addresses or sizes: do not use it",
    );
  }

  /** Text that ends with a zero byte. */
  text(pointer, what) {
    this.check(pointer, 1, 1, what);
    const rest = new Uint8Array(this.buffer, pointer);
    const end = rest.subarray(0, 4096).indexOf(0);
    if (end < 0) throw new ModuleError(`${what}: the text at ${pointer} has no end`);
    return new TextDecoder().decode(rest.slice(0, end));
  }

  /** A block of memory, aligned to 64. Raises CacheMemoryError at the cap. */
  allocate(bytes) {
    if (!Number.isSafeInteger(bytes) || bytes < 0)
      throw new InputError(`allocate: ${bytes} is not a number of bytes; give an integer, 0 or more`);
    void this.buffer;
    const pointer = bytes > 0xffffffff ? 0 : this.exports.kv_wasm_alloc(bytes) >>> 0;
    if (pointer === 0) throw this.refusal(bytes);
    this.check(pointer, bytes, 64, "kv_wasm_alloc");
    return new Block(this, pointer, bytes, true);
  }

  /** The error for memory that the cap, or the engine, did not give. */
  refusal(asked) {
    const refused = Number(this.exports.kv_wasm_refused()) || asked;
    const left = Number(this.exports.kv_wasm_left());
    return new CacheMemoryError(
      `linear memory: ${refused} bytes asked, ${left} left below the cap of ${this.stats().cap}; ` +
        "nothing was changed: raise memoryLimit, or close, reset or truncate caches",
      refused,
      left,
    );
  }

  /** Sizes in bytes and the number of growths, as the module counts them and the engine shows them. */
  stats() {
    const bytes = this.buffer.byteLength;
    const pages = this.exports.kv_wasm_pages() >>> 0;
    if (pages * PAGE_BYTES !== bytes)
      throw new ModuleError(`kv_wasm_pages: ${pages}, but memory has ${bytes} bytes; do not use the module`);
    return {
      bytes,
      pages,
      growths: this.exports.kv_wasm_growths() >>> 0,
      used: this.exports.kv_wasm_used() >>> 0,
      highWater: this.exports.kv_wasm_high_water() >>> 0,
      cap: (this.exports.kv_wasm_cap() >>> 0) * PAGE_BYTES,
      left: Number(this.exports.kv_wasm_left()),
    };
  }
}

/** A range of linear memory: stays right through growth, since it hands out no lasting array. */
export class Block {
  #memory;
  #owner;

  constructor(memory, pointer, bytes, owner) {
    this.#memory = memory;
    this.#owner = owner === true ? { freed: false } : owner;
    this.owned = owner === true;
    this.pointer = pointer;
    this.bytes = bytes;
  }

  /** The address, for a function of the module; raises if the block was freed. */
  get address() {
    this.#check();
    return this.pointer;
  }

  /** Whether it lies in that memory, and not in another instance's. */
  isIn(memory) {
    return this.#memory === memory;
  }

  /** A part of this block; it dies with it. */
  slice(offset, bytes = this.bytes - offset) {
    this.#range(offset, bytes, 1);
    return new Block(this.#memory, this.pointer + offset, bytes, this.#owner);
  }

  /** Copies a typed array in, in one go. */
  write(source, offset = 0) {
    if (!ArrayBuffer.isView(source) || source instanceof DataView)
      throw new InputError("write: not a typed array; give for instance a Float32Array");
    this.#range(offset, source.byteLength, 1);
    const bytes = new Uint8Array(source.buffer, source.byteOffset, source.byteLength);
    this.#memory.array(Uint8Array, this.pointer + offset, bytes.length, "write").set(bytes);
  }

  /** A copy, in one go: a typed array of its own. */
  read(Type, offset = 0, count = Math.floor((this.bytes - offset) / Type.BYTES_PER_ELEMENT)) {
    this.#range(offset, count * Type.BYTES_PER_ELEMENT, 1);
    const bytes = count * Type.BYTES_PER_ELEMENT;
    const copy = this.#memory.array(Uint8Array, this.pointer + offset, bytes, "read").slice();
    return new Type(copy.buffer);
  }

  /** A handle on the bytes themselves; its `array` raises once growth or `free` made it stale. */
  view(Type, offset = 0, count = Math.floor((this.bytes - offset) / Type.BYTES_PER_ELEMENT)) {
    this.#range(offset, count * Type.BYTES_PER_ELEMENT, Type.BYTES_PER_ELEMENT);
    const array = this.#memory.array(Type, this.pointer + offset, count, "view");
    return new View(array, () => this.#check(), () => this.#memory.buffer);
  }

  /** Gives the memory back; later uses raise. Freeing twice is harmless. */
  free() {
    if (!this.owned) throw new StateError("free: a part of a block; free the block it was cut from");
    if (this.#owner.freed) return;
    this.#owner.freed = true;
    if (!this.#memory.closed) this.#memory.exports.kv_wasm_free(this.pointer, this.bytes);
  }

  #check() {
    if (this.#owner.freed) throw new StaleViewError("the block was freed; allocate another one");
    void this.#memory.buffer;
  }

  #range(offset, bytes, alignment) {
    this.#check();
    const whole = Number.isSafeInteger(offset) && Number.isSafeInteger(bytes);
    if (!whole || offset < 0 || bytes < 0 || bytes > this.bytes || offset > this.bytes - bytes)
      throw new InputError(
        `block: ${bytes} bytes at ${offset} are not inside its ${this.bytes} bytes; ask for less`,
      );
    if ((this.pointer + offset) % alignment)
      throw new InputError(`block: offset ${offset} is not aligned to ${alignment} bytes`);
  }
}

/** A typed array over linear memory that says when it must not be used any more. */
class View {
  #array;
  #alive;
  #buffer;

  constructor(array, alive, buffer) {
    this.#array = array;
    this.#alive = alive;
    this.#buffer = buffer;
  }

  /** The typed array; use it at once, do not keep it over a call into the module. */
  get array() {
    this.#alive();
    if (this.#array.buffer !== this.#buffer())
      throw new StaleViewError("memory grew since this view was taken; take it again from its block");
    return this.#array;
  }
}
