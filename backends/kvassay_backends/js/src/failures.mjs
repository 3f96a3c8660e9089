// The error for each code that a module returns.
import {
  IdentityError, InputError, ModuleError, NonFiniteError, PageError, SpanError, StateError,
  TruncateError, UnavailableError, UnsupportedError,
} from "./errors.mjs";
import { CODES, kv_error } from "./layout.mjs";

const PLAIN = {
  [CODES.argument]: InputError,
  [CODES.spec]: UnsupportedError,
  [CODES.variant]: UnavailableError,
  [CODES.page]: PageError,
  [CODES.span]: SpanError,
  [CODES.state]: StateError,
};

/** The error for a code, with the module's own message. `restoring` helps to name a differing field. */
export function failure(library, name, code, restoring) {
  const at = library.errorBlock.address;
  const { layer, head, channel, token } = kv_error.read(library.memory.dataView(at, kv_error.bytes, name), 0);
  const message = library.memory.text(at + kv_error.fields.message.offset, `${name}: message`);
  if (code in PLAIN) return new PLAIN[code](message);
  if (code === CODES.value) return new NonFiniteError(message, { layer, token, head, channel });
  if (code === CODES.memory) return library.memory.refusal(0);
  if (code === CODES.truncate) return new TruncateError(message, allowedLengths(message));
  if (code === CODES.identity) return identityFailure(message, restoring);
  return new ModuleError(`${name}: unknown code ${code} (${message}); the module is not of this interface`);
}

function allowedLengths(message) {
  const [, numbers = ""] = message.split("nearest allowed lengths: ");
  return (numbers.match(/\d+/g) ?? []).map(Number);
}

function identityFailure(message, restoring) {
  const difference = restoring && firstDifference(restoring.expected, dumpText(restoring.dump));
  if (!difference) return new IdentityError(message, "");
  const [field, expected, found] = difference;
  const text = `dump: ${field} is ${found}, this cache has ${expected}; restore with the spec it was made with`;
  return new IdentityError(text, field);
}

/** The identity text in a dump (docs/page-format.md). */
function dumpText(dump) {
  const size = new DataView(dump.buffer, dump.byteOffset, dump.length).getUint32(24, true);
  return new TextDecoder().decode(dump.subarray(32, 32 + size));
}

function firstDifference(expectedText, foundText) {
  try {
    return difference("", JSON.parse(expectedText), JSON.parse(foundText));
  } catch {
    return null;
  }
}

function difference(prefix, expected, found) {
  const names = [...new Set([...Object.keys(expected), ...Object.keys(found)])].sort();
  for (const name of names) {
    const [want, have] = [expected[name], found[name]];
    const sides = [want, have].map((side) => (side === undefined ? "missing" : JSON.stringify(side)));
    if (sides[0] === sides[1]) continue;
    const nested = [want, have].every((side) => typeof side === "object" && side !== null);
    return nested ? difference(`${prefix}${name}.`, want, have) : [`${prefix}${name}`, ...sides];
  }
  return null;
}
