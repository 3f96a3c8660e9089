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
  const text = restoring && dumpText(restoring.dump);
  if (!restoring || text === restoring.expected) return new IdentityError(message, message.split(":", 1)[0]);
  const difference = firstDifference(restoring.expected, text);
  if (!difference) return new PageError("dump: the identity text cannot be read, or is not in canonical form");
  const [field, expected, found] = difference;
  const said = `dump: ${field} is ${found}, this cache has ${expected}; restore with the spec it was made with`;
  return new IdentityError(said, field);
}

/** The identity text in a dump (docs/page-format.md); null where it is no UTF-8. */
function dumpText(dump) {
  const size = new DataView(dump.buffer, dump.byteOffset, dump.length).getUint32(24, true);
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(dump.subarray(32, 32 + size));
  } catch {
    return null;
  }
}

function firstDifference(expectedText, foundText) {
  try {
    const found = JSON.parse(foundText);
    if (typeof found !== "object" || found === null || Array.isArray(found)) return null;
    return difference("", JSON.parse(expectedText), found);
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
    const nested = [want, have].every((side) => typeof side === "object" && side !== null && !Array.isArray(side));
    return nested ? difference(`${prefix}${name}.`, want, have) : [`${prefix}${name}`, ...sides];
  }
  return null;
}
