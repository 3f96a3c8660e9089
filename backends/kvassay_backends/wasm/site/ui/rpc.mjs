// Calls between the page and a worker: a promise a call, and events on the way.

/** In a worker: answers calls with these functions. The second argument reports an event of the call. */
export function serve(functions) {
  self.onmessage = async ({ data: { id, name, argument } }) => {
    const report = (event) => self.postMessage({ id, event });
    try {
      self.postMessage({ id, value: await functions[name](argument, report) });
    } catch (error) {
      self.postMessage({ id, error: { name: error.name, message: error.message } });
    }
  };
}

/** A worker's failure, with the name of the error there. */
export class WorkerError extends Error {
  constructor({ name, message }) {
    super(message);
    this.name = name;
  }
}

export class Caller {
  /** @param {URL} url of a module worker */
  constructor(url) {
    this.calls = new Map();
    this.worker = new Worker(url, { type: "module" });
    this.worker.onmessage = ({ data }) => this.#answer(data);
    this.worker.onerror = (event) => this.#fail(event.message || "the worker could not be started");
  }

  /** Calls a function of the worker; `onEvent` gets what it reports meanwhile. */
  call(name, argument, onEvent = () => {}) {
    const id = this.calls.size === 0 ? 1 : Math.max(...this.calls.keys()) + 1;
    return new Promise((resolve, reject) => {
      this.calls.set(id, { resolve, reject, onEvent });
      this.worker.postMessage({ id, name, argument });
    });
  }

  stop() {
    this.worker.terminate();
    this.#fail("stopped");
  }

  #answer({ id, event, value, error }) {
    const call = this.calls.get(id);
    if (call === undefined) return;
    if (event !== undefined) return call.onEvent(event);
    this.calls.delete(id);
    if (error) call.reject(new WorkerError(error));
    else call.resolve(value);
  }

  #fail(message) {
    for (const { reject } of this.calls.values()) reject(new WorkerError({ name: "WorkerError", message }));
    this.calls.clear();
  }
}
