// The session behind the page: calls come in one by one, only `stop` may come in between.

import { serve } from "../ui/rpc.mjs";
import { listModels, loader } from "./models.mjs";
import { Session } from "./session.mjs";

const base = new URL("../", import.meta.url);
let session;

/** An action with its events; what it did, and the state after it. */
const action = (run) => async (argument, report) => {
  session.report = report;
  return { ...(await run(argument ?? {})), state: session.state() };
};

serve({
  async open(settings, report) {
    session = new Session(loader(await listModels(base), base));
    return action(() => session.configure(settings))(settings, report);
  },
  configure: action((settings) => session.configure(settings)),
  newSession: action(() => session.newSession()),
  reset: action(() => session.reset()),
  forget: action(() => session.forget()),
  check: action(() => session.check()),
  feed: action(({ text }) => session.feed(text)),
  say: action(({ text, ...options }) => session.say(text, options)),
  stop: () => session.stop(),
  state: () => session.state(),
});
