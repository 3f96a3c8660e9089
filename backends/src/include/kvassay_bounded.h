/* kvassay_bounded.h: how far a library may be off that does not promise the numeric contract bit for bit.
 *
 * Goes with kvassay.h. A library without KV_FLAG_EXACT sets KV_FLAG_BOUNDED in kv_info.flags and exports this
 * function. Between the marks there are only declarations and integer #defines.
 */
#ifndef KVASSAY_BOUNDED_H
#define KVASSAY_BOUNDED_H

#include "kvassay.h"

#ifdef __cplusplus
extern "C" {
#endif

/* BEGIN declarations */

#define KV_FLAG_BOUNDED 8

/* Relative RMS by which scores and outputs may differ from the numeric contract's: positive and finite. */
double kv_error_bound(void);

/* END declarations */

#ifdef __cplusplus
}
#endif
#endif
