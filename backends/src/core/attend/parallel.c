#include "call.h"
#include "core/base/fpenv.h"

typedef struct batch {
  kv_call *call;
  kv_task *task;
  void *context;
} batch;

/* A thread of the caller has an environment of its own. */
static void run_one(void *arg, uint32_t index, uint32_t worker) {
  batch *b = arg;
  kv_fpenv saved = kv_fpenv_enter();
  b->task(b->call, b->context, index, worker);
  kv_fpenv_leave(saved);
}

void kv_run(kv_call *call, uint32_t tasks, kv_task *task, void *context) {
  batch b = {call, task, context};
  if (call->space.threads > 1 && tasks > 1) {
    call->parallel->run(call->parallel->context, tasks, run_one, &b);
    return;
  }
  for (uint32_t i = 0; i < tasks; i++) task(call, context, i, 0);
}
