/* The operator Linear. */
#ifndef KVASSAY_ORT_LINEAR_H
#define KVASSAY_ORT_LINEAR_H

#include "abi.h"

extern const kv_ort_op kv_linear_op;

#endif
