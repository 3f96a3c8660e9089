// Messages in both directions: u32 length of a JSON head, the head, then the bytes of its parts.

export function encode(head, parts = []) {
  const bytes = parts.map((part) => new Uint8Array(part.buffer, part.byteOffset, part.byteLength));
  const json = new TextEncoder().encode(JSON.stringify({ ...head, sizes: bytes.map((b) => b.length) }));
  const out = new Uint8Array(bytes.reduce((sum, b) => sum + b.length, 4 + json.length));
  new DataView(out.buffer).setUint32(0, json.length, true);
  out.set(json, 4);
  let at = 4 + json.length;
  for (const b of bytes) {
    out.set(b, at);
    at += b.length;
  }
  return out;
}

/** The head and its parts, each with a buffer of its own. */
export function decode(buffer) {
  const size = new DataView(buffer).getUint32(0, true);
  const head = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 4, size)));
  let at = 4 + size;
  const parts = head.sizes.map((bytes) => new Uint8Array(buffer.slice(at, (at += bytes))));
  return { head, parts };
}

export async function digest(bytes) {
  const hash = await crypto.subtle.digest("SHA-256", bytes);
  return Array.from(new Uint8Array(hash), (b) => b.toString(16).padStart(2, "0")).join("");
}
