// Typed errors: a message names what was wrong, where, and what to do.

export class KvassayError extends Error {
  constructor(message) {
    super(message);
    this.name = new.target.name;
  }
}

/** An argument of the wrong type, shape or range. */
export class InputError extends KvassayError {}
/** A spec that contradicts itself or names what does not exist. */
export class SpecError extends KvassayError {}
/** A sound spec that the module does not execute. */
export class UnsupportedError extends KvassayError {}
/** No variant that runs here, or not the one asked for. */
export class UnavailableError extends KvassayError {}
/** The module is not of this interface, or broke it: it must not be used further. */
export class ModuleError extends KvassayError {}
/** Not possible in this state: closed, empty, more queries than tokens. */
export class StateError extends KvassayError {}
/** A handle of linear memory that growth detached, or that was freed. */
export class StaleViewError extends StateError {}
/** The operation needs tokens whose pages the span has retired. */
export class SpanError extends StateError {}
/** Page or dump bytes that are damaged. */
export class PageError extends KvassayError {}

/** NaN, infinity, or a magnitude fp16 cannot hold. */
export class NonFiniteError extends InputError {
  constructor(message, place) {
    super(message);
    Object.assign(this, place);
  }
}

/** The truncation needs fp16 data that exists only as codes; `allowed` lists lengths near by. */
export class TruncateError extends StateError {
  constructor(message, allowed) {
    super(message);
    this.allowed = allowed;
  }
}

/** Sound bytes that belong to another cache; `field` is the first differing field. */
export class IdentityError extends KvassayError {
  constructor(message, field) {
    super(message);
    this.field = field;
  }
}

/** The cap of linear memory, or the engine, refused: bytes asked for and bytes still to be had. */
export class CacheMemoryError extends KvassayError {
  constructor(message, asked, left) {
    super(message);
    this.asked = asked;
    this.left = left;
  }
}
