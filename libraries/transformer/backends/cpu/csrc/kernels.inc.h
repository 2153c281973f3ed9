// The kernels of one instruction set, which OPWHEEL_ISA names, and their table.
#include "kernels.h"
#include "opwheel/cpu/short_rows.h"
#include "opwheel/cpu/vectorized_rows.h"

namespace transformer_ops::cpu::OPWHEEL_ISA {
namespace {

using namespace ::opwheel::cpu::OPWHEEL_ISA;

// What others use comes first.
#include "copies.inc.h"
#include "log_sums.inc.h"
#include "products.inc.h"
#include "reciprocal_root.inc.h"
#include "visible_keys.inc.h"
#if defined(__AVX512F__)
#include "norms_bfloat16.inc.h"
#endif

#include "activations.inc.h"
#include "angles.inc.h"
#include "attention.inc.h"
#include "attention_few_queries.inc.h"
#include "cross_entropy.inc.h"
#include "linear.inc.h"
#include "linear_cross_entropy.inc.h"
#include "log_softmax.inc.h"
#include "norms.inc.h"
#include "quantize.inc.h"
#include "rope.inc.h"
#include "softmax.inc.h"

}  // namespace

const Table table = {
    {OPWHEEL_BY_DTYPE(rms_norm)},
    {OPWHEEL_BY_DTYPE(rms_norm_backward)},
    {OPWHEEL_BY_DTYPE(layer_norm)},
    {OPWHEEL_BY_DTYPE(layer_norm_backward)},
    {OPWHEEL_BY_DTYPE(sum_parts)},
    {OPWHEEL_BY_DTYPE(gated)},
    {OPWHEEL_BY_DTYPE(gated_backward)},
    {OPWHEEL_BY_DTYPE(softmax)},
    {OPWHEEL_BY_DTYPE(softmax_backward)},
    {OPWHEEL_BY_DTYPE(log_softmax)},
    {OPWHEEL_BY_DTYPE(log_softmax_backward)},
    {OPWHEEL_BY_DTYPE(attention)},
    {OPWHEEL_BY_DTYPE(few_query_scores)},
    {OPWHEEL_BY_DTYPE(few_query_weights)},
    {OPWHEEL_BY_DTYPE(few_query_sums)},
    {OPWHEEL_BY_DTYPE(attention_backward)},
    {OPWHEEL_BY_DTYPE(linear_product)},
    {OPWHEEL_BY_DTYPE(rope)},
    {OPWHEEL_BY_DTYPE(cross_entropy)},
    {OPWHEEL_BY_DTYPE(cross_entropy_backward)},
    {OPWHEEL_BY_DTYPE(scaled)},
    {OPWHEEL_BY_DTYPE(accumulate)},
    {OPWHEEL_BY_DTYPE(column_sums)},
    {OPWHEEL_BY_DTYPE(quantize)},
    {OPWHEEL_BY_DTYPE(transposed)},
    {OPWHEEL_BY_DTYPE(stepped)},
    {OPWHEEL_BY_DTYPE(dequantize)},
};

}  // namespace transformer_ops::cpu::OPWHEEL_ISA
