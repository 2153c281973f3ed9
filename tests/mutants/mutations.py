"""Defects to seed into the CPU backend: what to replace by what, in which file of its sources or of the C++ SDK."""

from typing import NamedTuple


class Mutation(NamedTuple):
    name: str
    file: str
    old: str
    new: str


MUTATIONS = [
    # Loops.
    Mutation("contiguous loop stops one short", "row_kernels.h", "#pragma GCC ivdep\n    for (int64_t i = 0; i < n; ++i)",
             "for (int64_t i = 0; i < n - 1; ++i)"),
    Mutation("strided loop stops one short", "row_kernels.h",
             "for (int64_t i = 0; i < n; ++i) {\n      C values[kInputs];\n      for (int k = 0; k < kInputs; ++k) values[k] = widen",
             "for (int64_t i = 0; i + 1 < n; ++i) {\n      C values[kInputs];\n      for (int k = 0; k < kInputs; ++k) values[k] = widen"),
    Mutation("converting loop loads every block from the start", "row_kernels.h", "data[kOutputs + k] + begin * step",
             "data[kOutputs + k]"),
    Mutation("converting loop stops one short of a block", "row_kernels.h", "compute<0>(functor, in, results[0], results[1], length)",
             "compute<0>(functor, in, results[0], results[1], length - (length == kBlock))"),
    Mutation("strides are ignored", "row_kernels.h", "if (one_type && !side_by_side) return &each<strided>;", ""),
    Mutation("every tile takes the first rows", "row_kernels.h", "data[k] + row * spec.row_steps[k] + i * spec.steps[k]",
             "data[k] + i * spec.steps[k]"),
    Mutation("the last tile has a row too few", "row_kernels.h", "rows - row < kTileRows ? rows - row : kTileRows",
             "rows - row < kTileRows ? (rows - row > 1 ? rows - row - 1 : 1) : kTileRows"),
    Mutation("a repeated value is not repeated", "row_kernels.h", "repeated >> k & 1 ? 0 : i", "repeated >> k & 1 ? 1 : i"),
    Mutation("a repeated value is taken from the wrong operand", "row_kernels.h", "fill(blocks[k], spec, at, k,",
             "fill(blocks[k], spec, data, 0,"),
    Mutation("threads all start at the first element", "rows.h", "index[d] = rest % plan.sizes[d];", "index[d] = 0;"),
    Mutation("outer dimensions do not wrap", "rows.h", "advance(d, -plan.sizes[d]);", ""),
    Mutation("a run has one row too few", "rows.h", "run(data, n, rows);", "run(data, n, rows > 1 ? rows - 1 : 1);"),
    Mutation("rows after the first stay where they are", "row_kernels.h", "at[k] += spec.row_steps[k];", "at[k] += 0;"),
    # Arithmetic.
    Mutation("bfloat16 is truncated", "convert.h", "(bits + 0x7fffu + (bits >> 16 & 1u)) >> 16", "bits >> 16"),
    Mutation("float16 rounds ties up", "convert.h", "0xfffu + (magnitude >> 13 & 1u)", "0x1000u"),
    Mutation("bfloat16 loses its last bit", "convert.h", "(value.bits) << 16", "(value.bits & 0xfffeu) << 16"),
    Mutation("float16 rounds the product", "arithmetic.h",
             "OPWHEEL_HOST_DEVICE C operator()(C a, C b, C c) const { return a * b + c; }",
             "C operator()(C a, C b, C c) const { if constexpr (sizeof(C) <= 8) return C(_Float16(a * b)) + c; else return a * b + c; }"),
    Mutation("float64 computes in float32", "convert.h", "using type = double;", "using type = float;"),
    Mutation("the number is rounded to float32", "row_kernels.h", "return F(spec.parameter);",
             "return F(static_cast<float>(spec.parameter));"),
    Mutation("gradients are swapped", "arithmetic.h", "{grad * b, grad * a}", "{grad * a, grad * b}"),
    Mutation("the second result goes into the first", "row_kernels.h", "second[i] = second_of(value)", "first[i] = second_of(value)"),
    Mutation("nan becomes zero", "arithmetic.h", "{ return a + b; }", "{ if constexpr (sizeof(C) <= 8) return a + b != a + b ? C(0) : a + b; else return a + b; }"),
    Mutation("minus zero becomes zero", "arithmetic.h", "{ return a * b; }", "{ if constexpr (sizeof(C) <= 8) return a * b + C(0); else return a * b; }"),
    Mutation("infinity is clamped", "arithmetic.h", "{ return x * factor; }",
             "{ if constexpr (sizeof(C) <= 8) return x * factor > C(3e38) ? C(3e38) : x * factor; else return x * factor; }"),
    Mutation("subnormals are flushed", "arithmetic.h", "{ return a * b; }",
             "{ if constexpr (sizeof(C) <= 8) return a * b < C(1.1754944e-38) && a * b > -C(1.1754944e-38) ? a * b * C(0) : a * b; else return a * b; }"),
    # Shape, dtype, strides.
    Mutation("the storage offset is ignored", "tensor.h", "  explicit TensorInfo(const Tensor& tensor) {",
             "  int64_t offset = 0;\n  explicit TensorInfo(const Tensor& tensor) {\n"
             "    aoti_torch_get_storage_offset(tensor.handle(), &offset);"),
    Mutation("broadcasting aligns on the left", "elementwise.h",
             "const int64_t lead = ndim - info.ndim;\n    std::fill_n(operand.strides, lead, 0);",
             "const int64_t lead = 0;\n    std::fill_n(operand.strides, ndim, 0);"),
    Mutation("float16 with bfloat16 gives float16", "elementwise.h", "return DType::float32;  // also", "return a;  // also"),
    Mutation("0-d tensors decide the dtype", "elementwise.h", "if (info.ndim == 0 && !only_scalars) continue;", ""),
    Mutation("results are always contiguous", "elementwise.h", "int order[kMaxDims];\n    iteration_order(output_count, order);",
             "return contiguous_strides(ndim, sizes, strides);\n    int order[kMaxDims];\n"
             "    iteration_order(output_count, order);"),
    Mutation("ties between strides are not broken", "elementwise.h", "if (sizes[a] > sizes[b]) return 1;", ""),
    Mutation("dimensions merge although they do not fit", "elementwise.h",
             "return operand.strides[outer] == sizes[inner] * operand.strides[inner];", "return operand.strides[outer] > 0;"),
    Mutation("an empty out= is not restrided", "kernels.h",
             'OPWHEEL_SHIM(torch_call_dispatcher("aten::as_strided_", "", restride, TORCH_ABI_VERSION));', ""),
    # Aliasing.
    Mutation("unclassified overlap is computed directly", "kernels.h", "staging |= found == Overlap::unknown;", ""),
    Mutation("partial overlap is not refused", "kernels.h", "if (found == Overlap::partial) {", "if (false) {"),
    Mutation("overlap inside of the output is not refused", "kernels.h", "if (may_overlap_itself(output.info)) {",
             "if (false) {"),
    Mutation("the output counts as the same elements wherever it starts", "overlap.h", "output.data == input.data && ", ""),
    Mutation("out= hands back an input", "library.h", "std::get<mutable_argument<Op>()>(arguments)",
             "std::get<0>(arguments)"),
    # Checks.
    Mutation("unsupported dtypes are not refused", "elementwise.h", "if (operand.info.dtype == DType::unsupported) {",
             "if (false) {"),
    Mutation("devices are not checked", "elementwise.h",
             "if (operand.info.device == device && device.type == device_type) return;", "return;"),
    Mutation("the output's dtype is not checked", "kernels.h", "if (output.info.dtype != plan.dtype) {", "if (false) {"),
    Mutation("the output's shape is not checked", "kernels.h",
             "if (has_result_shape(plan, output.info)) return false;", "return false;"),
    Mutation("an in-place target is resized", "kernels.h", "if (!may_resize || output.info.numel != 0) {",
             "if (output.info.numel != 0) {"),
    Mutation("the error does not say what is supported", "elementwise.h", "kSupportedDTypes, ", ""),
    Mutation("too many dimensions are not refused", "elementwise.h", "if (operand.info.ndim > kMaxDims) {", "if (false) {"),
    # Resources.
    Mutation("handles leak", "tensor.h", "if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);", ""),
]  # fmt: skip

# The storage offset has to be used as well as read.
SECOND_EDIT = {
    "the storage offset is ignored": (
        "elementwise.h",
        "operands[i].data = static_cast<char*>(data);",
        "operands[i].data = static_cast<char*>(data) - operands[i].info.offset * element_size(operands[i].info.dtype);",
    ),
}
