"""Defects to seed into backends: what to replace by what, in which header of the operators or of the C++ SDK.

``old`` is a sequence of tokens that the header, or the block after ``within`` in it, has exactly once (cpp_edit.py);
tests/unit/test_mutations.py says which of them an edit of the headers has made stale.
"""

from pathlib import Path
from typing import NamedTuple

from tests.cpp_edit import replace


class Mutation(NamedTuple):
    name: str
    header: str  # as it is included
    old: str
    new: str
    within: str = ""

    def mutated(self, include: Path) -> str:
        """The header's text with the defect, from the include folder."""
        return replace((include / self.header).read_text(), self.old, self.new, within=self.within)


MUTATIONS = [
    # Loops.
    Mutation("contiguous loop stops one short", "opwheel/cpu/vectorized_loops.h", "#pragma GCC ivdep\n    for (; i < n; ++i)",
             "for (; i < n - 1; ++i)"),
    Mutation("contiguous loop leaves out a vector", "opwheel/cpu/vectorized_loops.h", "v < kVectors; ++v) store_vector",
             "v < kVectors - 1; ++v) store_vector"),
    Mutation("vectors all start at the first element", "opwheel/cpu/vectorized_loops.h", "load_vector<V>(in[k] + i + v * kLanes)",
             "load_vector<V>(in[k] + v * kLanes)"),
    Mutation("a repeated value is that of another input", "opwheel/cpu/vectorized_loops.h", "splats[k] = splat<V>(*in[k])",
             "splats[k] = splat<V>(*in[0])"),
    Mutation("strided loop stops one short", "opwheel/cpu/vectorized_loops.h",
             "for (int64_t i = 0; i < n; ++i) {\n      C inputs[kInputs], results[kOutputs];\n      for (int k = 0; k < kInputs; ++k) inputs[k] = widen",
             "for (int64_t i = 0; i + 1 < n; ++i) {\n      C inputs[kInputs], results[kOutputs];\n      for (int k = 0; k < kInputs; ++k) inputs[k] = widen"),
    Mutation("converting loop loads every block from the start", "opwheel/cpu/vectorized_loops.h", "data[kOutputs + k] + begin * step",
             "data[kOutputs + k]"),
    Mutation("converting loop stops one short of a block", "opwheel/cpu/vectorized_loops.h", "compute<0>(spec, in, out, length)",
             "compute<0>(spec, in, out, length - (length == kBlock))"),
    Mutation("strides are ignored", "opwheel/cpu/vectorized_loops.h", "if (found.is_one_type && !found.is_side_by_side) return found.is_in_blocks ? &blocked : &each<strided>;", ""),
    Mutation("every second element is every one", "opwheel/cpu/vectorized_loops.h", "block[i] = from[2 * i]", "block[i] = from[i]"),
    Mutation("of every second 16-bit element one is read too many", "opwheel/cpu/vectorized_loops.h",
             "i + 1 < n; ++i) {\n          uint32_t pair", "i < n; ++i) {\n          uint32_t pair"),
    Mutation("the last of every second 16-bit element is another", "opwheel/cpu/vectorized_loops.h", "from[2 * (n - 1)]", "from[n - 1]"),
    Mutation("every tile takes the first rows", "opwheel/cpu/vectorized_loops.h", "data[k] + row * given.outer_strides[k] + i * given.strides[k]",
             "data[k] + i * given.strides[k]"),
    Mutation("the last tile has a row too few", "opwheel/cpu/vectorized_loops.h", "rows - row < kTileRows ? rows - row : kTileRows",
             "rows - row < kTileRows ? (rows - row > 1 ? rows - row - 1 : 1) : kTileRows"),
    Mutation("a repeated value is not repeated", "opwheel/cpu/vectorized_loops.h", "repeated >> k & 1 ? 0 : i", "repeated >> k & 1 ? 1 : i"),
    Mutation("a repeated value is taken from the wrong operand", "opwheel/cpu/vectorized_loops.h", "fill(blocks[k], spec, at, k,",
             "fill(blocks[k], spec, data, 0,"),
    Mutation("threads all start at the first element", "opwheel/detail/cpu/parallel_loop.h", "index[d] = rest % plan.sizes[d];", "index[d] = 0;"),
    Mutation("outer dimensions do not wrap", "opwheel/detail/cpu/parallel_loop.h", "advance(d, -plan.sizes[d]);", ""),
    Mutation("a run has one row too few", "opwheel/detail/cpu/parallel_loop.h", "loop(data, size, outer_size);", "loop(data, size, outer_size > 1 ? outer_size - 1 : 1);"),
    Mutation("rows after the first stay where they are", "opwheel/cpu/vectorized_loops.h", "at[k] += spec.outer_strides[k];", "at[k] += 0;",
             within="static void blocks("),
    # Arithmetic.
    Mutation("bfloat16 is truncated", "opwheel/detail/cpu/convert.h", "(bits + 0x7fffu + (bits >> 16 & 1u)) >> 16", "bits >> 16",
             within="BFloat16 to_bfloat16(float value)"),
    Mutation("float16 rounds ties up", "opwheel/detail/cpu/convert.h", "0xfffu + (magnitude >> 13 & 1u)", "0x1000u"),
    Mutation("bfloat16 loses its last bit", "opwheel/detail/cpu/convert.h", "(value.bits) << 16", "(value.bits & 0xfffeu) << 16"),
    Mutation("float16 rounds the product", "muladd/functors.h",
             "OPWHEEL_HOST_DEVICE C operator()(C a, C b, C c) const { return a * b + c; }",
             "C operator()(C a, C b, C c) const { if constexpr (sizeof(C) <= 8) return C(_Float16(a * b)) + c; else return a * b + c; }"),
    Mutation("float64 computes in float32", "opwheel/detail/dtype.h", "double>, double, float>", "double>, float, float>"),
    Mutation("the number is rounded to float32", "opwheel/cpu/vectorized_loops.h", "splat<V>(static_cast<C>(spec.parameters[k]))",
             "splat<V>(static_cast<C>(static_cast<float>(spec.parameters[k])))"),
    Mutation("gradients are swapped", "muladd/functors.h", "{grad_output * b, grad_output * a}", "{grad_output * a, grad_output * b}"),
    Mutation("the second result goes into the first", "opwheel/cpu/vectorized_loops.h", "out[k][i] = results[k]", "out[0][i] = results[k]"),
    Mutation("the second result is the first", "opwheel/cpu/vectorized_loops.h", "v * kLanes, results[v][k]", "v * kLanes, results[v][0]"),
    Mutation("nan becomes zero", "muladd/functors.h", "{ return a + b; }", "{ if constexpr (sizeof(C) <= 8) return a + b != a + b ? C(0) : a + b; else return a + b; }"),
    Mutation("minus zero becomes zero", "muladd/functors.h", "{ return a * b; }", "{ if constexpr (sizeof(C) <= 8) return a * b + C(0); else return a * b; }"),
    Mutation("infinity is clamped", "muladd/functors.h", "{ return x * factor; }",
             "{ if constexpr (sizeof(C) <= 8) return x * factor > C(3e38) ? C(3e38) : x * factor; else return x * factor; }"),
    Mutation("subnormals are flushed", "muladd/functors.h", "{ return a * b; }",
             "{ const C y = a * b, least = C{} + 1.1754944e-38f; return ((y < least) & (y > -least)) ? y * (C{} + 0.0f) : y; }"),
    # Shape, dtype, strides.
    Mutation("the storage offset is ignored", "opwheel/detail/elementwise.h", "operands[i].data = static_cast<char*>(data);",
             "operands[i].data = static_cast<char*>(data) - operands[i].info.offset * element_size(operands[i].info.dtype);"),
    Mutation("broadcasting aligns on the left", "opwheel/detail/elementwise.h",
             "const int64_t lead = ndim - info.ndim;\n    std::fill_n(operand.strides, lead, 0);",
             "const int64_t lead = 0;\n    std::fill_n(operand.strides, ndim, 0);"),
    Mutation("float16 with bfloat16 gives float16", "opwheel/detail/elementwise.h", "return DType::float32;  // also", "return a;  // also"),
    Mutation("0-d tensors decide the dtype", "opwheel/detail/elementwise.h", "if (info.ndim == 0 && !only_scalars) continue;", ""),
    Mutation("results are always contiguous", "opwheel/detail/elementwise.h", "int order[kMaxDims];\n    iteration_order(output_count, order);",
             "return contiguous_strides(ndim, sizes, strides);\n    int order[kMaxDims];\n"
             "    iteration_order(output_count, order);"),
    Mutation("other dtypes count as flat", "opwheel/detail/elementwise.h", "info.dtype != result.dtype || ", ""),
    Mutation("other shapes count as flat", "opwheel/detail/elementwise.h", "!has_shape(info, result.ndim, result.sizes) || ", ""),
    Mutation("other strides count as flat", "opwheel/detail/elementwise.h",
             " || !std::equal(strides, strides + info.ndim, info.strides)", ""),
    Mutation("operands without memory count as flat", "opwheel/detail/elementwise.h", " || !has_memory(input(i))", ""),
    Mutation("a flat 0-d operand is not repeated", "opwheel/detail/elementwise.h",
             "operands[i].info.ndim == 0 ? 0 : element_size(dtype)", "element_size(dtype)"),
    Mutation("ties between strides are not broken", "opwheel/detail/layout.h", "sizes[a] > sizes[b]", "false"),
    Mutation("dimensions merge although they do not fit", "opwheel/detail/elementwise.h",
             "return operand.strides[outer] == sizes[inner] * operand.strides[inner];", "return operand.strides[outer] > 0;"),
    Mutation("an empty out= is not restrided", "opwheel/elementwise_kernels.h", "  restride(alias, sizes, strides);\n", ""),
    # Aliasing.
    Mutation("unclassified overlap is computed directly", "opwheel/elementwise_kernels.h", "staging |= found == Overlap::unknown;", ""),
    Mutation("partial overlap is not refused", "opwheel/elementwise_kernels.h", "if (found == Overlap::partial) {", "if (false) {"),
    Mutation("overlap inside of the output is not refused", "opwheel/elementwise_kernels.h", "if (may_overlap_itself(output.info)) {",
             "if (false) {"),
    Mutation("the output counts as the same elements wherever it starts", "opwheel/detail/overlap.h", "output.data == input.data && ", ""),
    Mutation("out= returns an input", "opwheel/detail/registration.h", "std::get<mutable_argument<Op>()>(arguments).get()",
             "const_cast<Tensor&>(static_cast<const Tensor&>(std::get<0>(arguments).get()))"),
    # Checks.
    Mutation("unsupported dtypes are not refused", "opwheel/detail/elementwise.h", "if (operand.info.dtype == DType::unsupported) {",
             "if (false) {"),
    Mutation("devices are not checked", "opwheel/detail/elementwise.h",
             "if (operand.info.device == device && device.type == device_type) return;", "return;"),
    Mutation("the output's dtype is not checked", "opwheel/elementwise_kernels.h", "if (output.info.dtype != plan.dtype) {", "if (false) {"),
    Mutation("the output's shape is not checked", "opwheel/elementwise_kernels.h",
             "if (has_shape(output.info, plan.ndim, plan.sizes)) return Tensor();", "return Tensor();"),
    Mutation("an in-place target is resized", "opwheel/elementwise_kernels.h", "if (!may_resize || output.info.numel != 0) {",
             "if (output.info.numel != 0) {"),
    Mutation("the error does not say what is supported", "opwheel/detail/elementwise.h", "kSupportedDTypes, ", ""),
    Mutation("too many dimensions are not refused", "opwheel/detail/elementwise.h", "if (operand.info.ndim > kMaxDims) {", "if (false) {"),
    # Resources.
    Mutation("handles leak", "opwheel/detail/tensor.h", "if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);", ""),
]  # fmt: skip

# Defects of CUDA backends, and the tests of a GPU that have to notice them.
CUDA_MUTATIONS = {
    Mutation("the default stream", "opwheel/detail/cuda/stream.h",
             "OPWHEEL_SHIM(aoti_torch_get_current_cuda_stream(device, &stream_));", ""):
        [f"test_{name}[contiguous]" for name in ("runs_on_the_current_stream_without_waiting", "graph")],
    Mutation("the first device", "opwheel/detail/cuda/stream.h", "guard_(device)", "guard_(0)"): ["test_second_device"],
}  # fmt: skip

# Defects of the SDK's loops over rows on a device, each of which the kit has to notice on the simulated ones.
CUDA_ROW_MUTATIONS = [
    Mutation("no barrier before the warps' results are read", "opwheel/cuda/rows.cuh",
             "if (lane == 0) of_warps[warp] = value;\n  barrier();", "if (lane == 0) of_warps[warp] = value;"),
    Mutation("no barrier before the warps' results are written", "opwheel/cuda/rows.cuh",
             "barrier();\n  if (lane == 0) of_warps[warp] = value;", "if (lane == 0) of_warps[warp] = value;"),
    Mutation("a reduction over 16 lanes", "opwheel/cuda/rows.cuh", "int step = kWarp / 2;", "int step = kWarp / 4;"),
]  # fmt: skip
# Of its loops over rows in vectors, each of which the tests of transformer-ops-cuda have to notice there.
BESIDE_THE_CPU = "test_every_way_to_share_a_row"
CUDA_TEAM_MUTATIONS = {
    Mutation("no barrier before the warps' results are read", "opwheel/detail/cuda/team.cuh",
             "if (lane == 0) of_warps[warp] = value;\n    __syncthreads();", "if (lane == 0) of_warps[warp] = value;"):
        BESIDE_THE_CPU,
    Mutation("a reduction over half a team", "opwheel/detail/cuda/team.cuh",
             "unsigned step = size / 2;", "unsigned step = size / 4;"): BESIDE_THE_CPU,
    Mutation("a maximum that begins with 0", "opwheel/detail/cuda/team.cuh", "C mine = start;", "C mine = C(0);"):
        "test_softmax_of_infinite_values",
    Mutation("sums over rows that forget the rows before", "opwheel/detail/cuda/held_rows.cuh",
             "widened<C>(loaded<C, kWidth>(data + at.begin)) + more", "more"): "test_many_rows",
    Mutation("a block too few for teams that are counted", "opwheel/detail/cuda/team_plan.cuh",
             "blocks = (count + in_block - 1) / in_block;", "blocks = std::max<int64_t>(count / in_block, 1);"):
        "test_many_rows",
    Mutation("a team too many", "opwheel/detail/cuda/team.cuh", "index() < teams_", "index() <= teams_"):
        "Segmentation fault",
    Mutation("vectors of rows that begin anywhere", "opwheel/detail/cuda/team_plan.cuh",
             "reinterpret_cast<uintptr_t>(one) % kVectorBytes == 0", "one == one"): "Illegal instruction",
    Mutation("vectors of rows any distance apart", "opwheel/detail/cuda/team_plan.cuh",
             "return stride % width == 0;", "return stride == stride;"): "Illegal instruction",
}  # fmt: skip
# Of clusters of blocks, and what notices them: one of the tests of long rows, or the simulated device itself.
OF_ROWS, OF_VALUES = "test_a_row_does_not_depend_on_the_others", "test_values"
CUDA_CLUSTER_MUTATIONS = {
    Mutation("a block writes into others before they run", "opwheel/detail/cuda/cluster.cuh",
             "{\n    cooperative_groups::this_cluster().sync();\n  }", "{}"):
        "the shared memory of a block is reached that may not have begun",
    Mutation("no barrier before the blocks' results are read", "opwheel/detail/cuda/cluster.cuh",
             "cluster.sync();\n    Acc total", "Acc total"): OF_VALUES,
    Mutation("the blocks' results are written before all have read the last ones", "opwheel/detail/cuda/cluster.cuh",
             "turn_ ^= 1;", ""): OF_VALUES,
    Mutation("a barrier that some threads leave out", "opwheel/detail/cuda/cluster.cuh",
             "cluster.sync();\n    Acc total", "if (threadIdx.x != 1) cluster.sync();\n    Acc total"):
        "some threads of a cluster wait for others that never come",
    Mutation("the order of a sum depends on the row", "opwheel/detail/cuda/cluster.cuh",
             "Acc total = half[0];\n#pragma unroll 1\n    for (uint32_t i = 1; i < count_; ++i) total = combine(total, half[i]);",
             "const uint32_t first = blockIdx.x / count_ % count_;\n    Acc total = half[first];\n"
             "    for (uint32_t i = 1; i < count_; ++i) total = combine(total, half[(first + i) % count_]);"): OF_ROWS,
    Mutation("the order of a sum depends on the block", "opwheel/detail/cuda/cluster.cuh",
             "Acc total = half[0];\n#pragma unroll 1\n    for (uint32_t i = 1; i < count_; ++i) total = combine(total, half[i]);",
             "Acc total = half[rank_];\n"
             "    for (uint32_t i = 1; i < count_; ++i) total = combine(total, half[(rank_ + i) % count_]);"):
        "test_equal_elements_have_equal_results",
    Mutation("all blocks of a cluster take the same elements", "opwheel/detail/cuda/team.cuh",
             "blocks_.rank() * blockDim.x + threadIdx.x", "threadIdx.x"): OF_VALUES,
    Mutation("every device is taken for the first one", "opwheel/detail/cuda/cluster.cuh",
             "answers[device.index];", "answers[0];"): "test_values_without_clusters",
    Mutation("the number of blocks depends on the number of rows", "opwheel/detail/cuda/team_plan.cuh",
             "uint32_t count = 1;", "uint32_t count = rows > 2 ? 8 : 1;"): OF_ROWS,
}  # fmt: skip
SYCL_ROW_MUTATIONS = [
    Mutation("no barrier before the sub-groups' results are read", "opwheel/xpu/device/rows.h",
             "of_sub_groups[sub_group().get_group_linear_id()] = value;\n  barrier();",
             "of_sub_groups[sub_group().get_group_linear_id()] = value;"),
    Mutation("no barrier before the sub-groups' results are written", "opwheel/xpu/device/rows.h",
             "barrier();\n  if (lane == 0)", "if (lane == 0)"),
    Mutation("a reduction over half a sub-group", "opwheel/xpu/device/rows.h",
             "int step = kSubGroup / 2;", "int step = kSubGroup / 4;"),
]  # fmt: skip
