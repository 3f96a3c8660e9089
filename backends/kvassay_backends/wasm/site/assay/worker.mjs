// Runs the suites on this device, away from the page, and sends each record as it is made.

import { VARIANTS, UnavailableError, exactDot, load, relaxedDot } from "../host/kvassay.mjs";
import { adversarial } from "../measure/relaxed.mjs";
import { serve } from "../ui/rpc.mjs";
import { readGolden } from "./golden.mjs";
import { judge } from "./judge.mjs";
import { memory, SESSIONS } from "./memory.mjs";
import { parity } from "./parity.mjs";
import { speed } from "./speed.mjs";

const base = new URL("../", import.meta.url);
const MEMORY_LIMIT = 2 ** 28;

async function openAll() {
  const libraries = [];
  const variants = [];
  for (const variant of VARIANTS) {
    try {
      const library = await load({ variant, memoryLimit: MEMORY_LIMIT });
      libraries.push(library);
      variants.push({ variant, status: "ready", reason: "", digest: library.digest, build: library.buildId });
    } catch (error) {
      if (!(error instanceof UnavailableError)) throw error;
      variants.push(error.report[0]);
    }
  }
  return { libraries, variants };
}

async function rulebook() {
  const answer = await fetch(new URL("rules.json", base));
  if (!answer.ok) throw new Error(`rules.json cannot be read: ${answer.status} ${answer.statusText}`);
  return answer.json();
}

/** Collects records; what a task throws is a record too, and the others go on. */
class Book {
  records = [];
  tasks = new Map();

  constructor(report) {
    this.report = report;
  }

  keep(record) {
    this.records.push(record);
    this.report({ record });
  }

  async attempt(variant, subject, task) {
    this.tasks.set(variant, (this.tasks.get(variant) ?? 0) + 1);
    try {
      for (const record of await task()) this.keep(record);
    } catch (error) {
      const first = `${error.name}: ${error.message}`;
      this.keep({ check: "run.errors", subject, variant, value: 1, comparisons: 1, first });
    }
  }

  close() {
    for (const [variant, comparisons] of this.tasks) {
      this.keep({ check: "run.errors", subject: "tasks", variant, value: 0, comparisons });
    }
  }
}

function relaxedRecord() {
  const { comparisons, mismatches, first } = adversarial(relaxedDot, exactDot);
  const subject = "relaxed dot, adversarial";
  const told = first ? JSON.stringify(first) : "";
  return { check: "parity.mismatches", subject, variant: "relaxed", value: mismatches, comparisons, first: told };
}

async function run(_, report) {
  const [rules, golden] = await Promise.all([rulebook(), readGolden(base)]);
  const { libraries, variants } = await openAll();
  report({ variants });
  const book = new Book(report);
  for (const [number, library] of libraries.entries()) {
    const { variant } = library;
    if (variant === "relaxed") await book.attempt(variant, "relaxed dot", () => [relaxedRecord()]);
    for (const [at, item] of golden.entries()) {
      await book.attempt(variant, `golden ${item.name}`, () => parity(library, item));
      report({ suite: "parity", done: number * golden.length + at + 1, all: libraries.length * golden.length });
    }
  }
  for (const [number, library] of libraries.entries()) {
    const all = libraries.length * SESSIONS;
    const step = (done) => report({ suite: "memory", done: number * SESSIONS + done, all });
    await book.attempt(library.variant, "sessions", async () => [await memory(library, step)]);
  }
  const step = (done, all) => report({ suite: "speed", done, all });
  await book.attempt(libraries[0]?.variant ?? "", "speed", () => speed(libraries, step));
  book.close();
  return judge(rules, book.records, libraries.map(({ variant }) => variant));
}

serve({ run });
