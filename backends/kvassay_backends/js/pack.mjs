// Copies the built modules and the licence beside the host, for `npm pack`; missing ones stop it.
import { copyFile, mkdir } from "node:fs/promises";

const built = new URL("../wasm/_lib/", import.meta.url);
const here = new URL("wasm/", import.meta.url);
await mkdir(here, { recursive: true });
for (const variant of ["scalar", "simd128", "relaxed"]) {
  const name = `kvassay-${variant}.wasm`;
  await copyFile(new URL(name, built), new URL(name, here));
}
await copyFile(new URL("../../../LICENSE", import.meta.url), new URL("LICENSE", import.meta.url));
