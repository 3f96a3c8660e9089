// A model from a GGUF file. The file is put into linear memory as it is, and its blocks are used where they lie.

import { ModelError } from "./errors.mjs";
import { GGUF } from "./gguf.mjs";
import { digest, layerTensors } from "./shape.mjs";
import { Tokenizer, identityBytes } from "./tokenizer.mjs";

const F32 = 0;
const BLOCK = 32;
const LARGEST_FILE = 2 ** 31 - 2 ** 20; // of one piece of linear memory
/** Keys that change the computation in ways the decoder does not follow. */
const UNSUPPORTED = ["llama.expert_count", "llama.rope.scaling.type", "llama.attention.sliding_window"];

/**
 * Downloads a file into linear memory.
 * @param {(loaded: number, total: number) => void} progress
 */
export async function fetchModel(library, url, progress = () => {}) {
  const answer = await fetch(url);
  if (!answer.ok) throw new ModelError(`${url} cannot be read: ${answer.status} ${answer.statusText}`);
  const size = Number(answer.headers.get("content-length"));
  if (!(size > 0)) throw new ModelError(`${url}: the server does not say how large it is`);
  const block = take(library, size);
  try {
    let at = 0;
    for await (const chunk of chunks(answer.body)) {
      if (at + chunk.length > size) throw new ModelError(`${url}: more bytes than the ${size} announced`);
      block.write(chunk, at);
      progress((at += chunk.length), size);
    }
    if (at !== size) throw new ModelError(`${url}: ${at} bytes of ${size} arrived; try again`);
    return await fileModel(library, block);
  } catch (error) {
    block.free();
    throw error;
  }
}

async function* chunks(body) {
  const reader = body.getReader(); // streams are not iterable in every engine
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    yield value;
  }
}

/** A model from bytes at hand. */
export async function bytesModel(library, bytes) {
  const block = take(library, bytes.length);
  try {
    block.write(bytes);
    return await fileModel(library, block);
  } catch (error) {
    block.free();
    throw error;
  }
}

function take(library, size) {
  if (size > LARGEST_FILE) throw new ModelError(`a file of ${size} bytes does not fit; at most ${LARGEST_FILE}`);
  return library.allocate(size);
}

async function fileModel(library, block) {
  const bytes = block.view(Uint8Array).array;
  const file = new GGUF(bytes);
  const hashes = { model_hash: await digest(bytes) };
  const tokenizer = new Tokenizer(file);
  hashes.tokenizer_hash = await digest(identityBytes(file));
  hashes.template_hash = await digest(new TextEncoder().encode(tokenizer.template));
  const config = { ...readConfig(file, tokenizer), ...hashes };
  return { config, tokenizer, block, weights: readWeights(library, file, config, block.address) };
}

function readConfig(file, tokenizer) {
  const architecture = file.text("general.architecture");
  if (architecture !== "llama") throw new ModelError(`architecture ${architecture} is not supported; supported: llama`);
  const unsupported = UNSUPPORTED.find((key) => file.metadata.has(key));
  if (unsupported) throw new ModelError(`metadata key ${unsupported} is set, which is not supported`);
  const hidden = file.integer("llama.embedding_length");
  const query_heads = file.integer("llama.attention.head_count");
  if (!(query_heads > 0)) throw new ModelError(`query_heads is ${query_heads}, must be positive`);
  const head_dim = file.integer("llama.attention.key_length", hidden / query_heads);
  const config = {
    name: file.text("general.name", "model"),
    layers: file.integer("llama.block_count"),
    query_heads,
    kv_heads: file.integer("llama.attention.head_count_kv", query_heads),
    head_dim,
    hidden,
    ffn: file.integer("llama.feed_forward_length"),
    vocab: tokenizer.size,
    context: file.integer("llama.context_length"),
    rope_base: file.number("llama.rope.freq_base", 10000),
    eps: file.number("llama.attention.layer_norm_rms_epsilon"),
  };
  check(file, config);
  return config;
}

function check(file, config) {
  for (const [field, value] of Object.entries(config)) {
    if (typeof value === "number" && !(value > 0)) throw new ModelError(`${field} is ${value}, must be positive`);
  }
  for (const field of ["hidden", "ffn"]) {
    if (config[field] % BLOCK) throw new ModelError(`${field} is ${config[field]}, no multiple of ${BLOCK}`);
  }
  if (config.head_dim % 16) throw new ModelError(`head_dim is ${config.head_dim}, no multiple of 16`);
  if (config.query_heads % config.kv_heads) throw new ModelError("kv_heads does not divide query_heads");
  for (const key of ["llama.rope.dimension_count", "llama.attention.value_length"]) {
    if (file.integer(key, config.head_dim) !== config.head_dim) throw new ModelError(`${key} is not the head dim`);
  }
}

function readWeights(library, file, config, base) {
  const unused = new Set(file.tensors.keys());
  const bytesOf = (...shape) => library.raw("kvd_matrix_bytes", ...shape);
  const read = (name, rows, columns) => {
    const { offset, ...tensor } = file.tensor(name, rows, columns, bytesOf);
    const pointer = base + offset;
    if (rows === 1 && tensor.type !== F32) throw new ModelError(`tensor ${name} is not stored as F32`);
    if (!library.raw("kvd_matrix_finite", tensor.type, pointer, rows, columns)) {
      throw new ModelError(`tensor ${name} holds values that are not finite`);
    }
    unused.delete(name);
    return { ...tensor, pointer };
  };
  const { vocab, hidden } = config;
  const embedding = read("token_embd.weight", vocab, hidden);
  const tensors = layerTensors(config);
  const layers = [];
  for (let number = 0; number < config.layers; number++) {
    const fields = tensors.map(([field, stored, ...shape]) => [field, read(`blk.${number}.${stored}.weight`, ...shape)]);
    layers.push(Object.fromEntries(fields));
  }
  const norm = read("output_norm.weight", 1, hidden);
  const output = file.tensors.has("output.weight") ? read("output.weight", vocab, hidden) : embedding;
  const [stranger] = unused;
  if (stranger !== undefined) throw new ModelError(`tensor ${stranger} is not part of a plain llama model`);
  return { embedding, layers, norm, output };
}
