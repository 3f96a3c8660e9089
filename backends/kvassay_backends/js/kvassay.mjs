// The public names of the host; kvassay.d.ts describes them.
export { VARIANTS, load } from "./src/load.mjs";
export { exactDot, features, relaxedDot } from "./src/features.mjs";
export { identityText, preset, PRESETS } from "./src/spec.mjs";
export * from "./src/errors.mjs";
