// The models that a page can open: the tiny ones, and the files that its server lists.

import { fetchModel } from "../model/file.mjs";
import { tinyModel } from "../model/tiny.mjs";

export const TINY = {
  "tiny-gqa": "tiny: 6 heads on 2 (GQA)",
  "tiny-mha": "tiny: 4 heads (MHA)",
  "tiny-mqa": "tiny: 4 heads on 1 (MQA)",
};

/** Name and label of each model; a folder without models.json has the tiny ones. */
export async function listModels(base) {
  const tiny = Object.entries(TINY).map(([name, label]) => ({ name, label }));
  const answer = await fetch(new URL("models.json", base));
  const files = answer.ok ? await answer.json() : [];
  return [...tiny, ...files.map(({ name, file, bytes }) => ({ name, label: name, file, bytes }))];
}

/** Loads one of them into the memory of a library. */
export function loader(models, base) {
  return (library, name, progress) => {
    const model = models.find((candidate) => candidate.name === name);
    if (model === undefined) throw new Error(`no model ${name}`);
    if (model.file) return fetchModel(library, new URL(model.file, base), progress);
    return tinyModel(library, name.slice("tiny-".length));
  };
}
