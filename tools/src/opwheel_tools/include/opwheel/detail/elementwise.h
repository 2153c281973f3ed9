// The plan of an element-wise operator, shared by every backend: shape, dtype and strides of the result, and nested
// loops over all operands, with as few dimensions as possible. It follows PyTorch's TensorIterator (broadcasting,
// promotion, output strides, coalescing), so that results have the layout that PyTorch's own operators give.
//
// For a of shape (2, 3, 4), contiguous, and b of shape (4), both float32, the loops are, innermost first:
//
//     dimension    0    1    2          merged   0    1
//     sizes        4    3    2                   4    6
//     a's strides  4   16   48   bytes           4   16
//     b's strides  4    0    0                   4    0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "opwheel/detail/error.h"
#include "opwheel/detail/layout.h"
#include "opwheel/detail/tensor.h"
#include "opwheel/functor.h"

namespace opwheel {

class ElementwisePlan {
 public:
  struct Operand {
    std::string_view name;
    union {
      TensorInfo info;
    };
    char* data;
    int64_t strides[kMaxDims];  // in bytes, one for each dimension of the plan; 0 where the operand is broadcast

    Operand() {}  // sets nothing, nor does the union: a plan has room for more operands than most calls have
  };

  DType dtype = DType::unsupported;  // of the result
  Device device;
  int64_t numel = 1;
  int ndim = 0;  // until finish(): the result's shape, outermost first; afterwards: coalesced, innermost first
  int64_t sizes[kMaxDims];
  int output_count;
  int operand_count;
  Operand operands[kMaxOperands];  // outputs first

  ElementwisePlan(std::string_view operator_name, int outputs)
      : output_count(outputs), operand_count(outputs), operator_(operator_name) {}

  std::string_view operator_name() const { return operator_; }
  const Operand& output(int i) const { return operands[i]; }
  const Operand& input(int i) const { return operands[output_count + i]; }
  int input_count() const { return operand_count - output_count; }

  void add_input(std::string_view name, const Tensor& tensor) {
    const void* data = nullptr;
    OPWHEEL_SHIM(torch_get_const_data_ptr(tensor.handle(), &data));
    set(operand_count++, name, tensor, const_cast<void*>(data));
  }

  void set_output(int i, std::string_view name, const Tensor& tensor) {
    void* data = nullptr;
    OPWHEEL_SHIM(torch_get_mutable_data_ptr(tensor.handle(), &data));
    set(i, name, tensor, data);
    if (operands[i].info.numel > 0) check_memory(operands[i]);
  }

  // Step 1: shape, dtype and device of the result, from the inputs. Throws where they do not fit together.
  void infer(int32_t device_type) {
    if (!infer_flat(device_type)) infer_in_general(device_type);
  }

  // Step 2, for each output that is to be allocated: its strides in elements.
  void new_output_strides(int64_t* strides) {
    if (is_flat()) return contiguous_strides(ndim, sizes, strides);
    if (std::any_of(operands + output_count, operands + operand_count, [&](auto& input) { return is_copied(input); })) {
      return as_if_copied(strides);
    }
    if (inputs_share(&TensorInfo::sizes)) {
      if (every_input_is(is_contiguous)) return contiguous_strides(ndim, sizes, strides);
      if (every_input_is(is_channels_last)) return channels_last_strides(sizes, strides);
      if (every_input_is(is_non_overlapping_and_dense) && inputs_share(&TensorInfo::strides)) {
        std::copy_n(input(0).info.strides, ndim, strides);
        return;
      }
    }
    int order[kMaxDims];
    iteration_order(output_count, order);
    if (std::is_sorted(order, order + ndim, std::greater<>())) return contiguous_strides(ndim, sizes, strides);
    int64_t next = 1;
    for (int i = 0; i < ndim; ++i) {
      strides[order[i]] = next;
      next *= sizes[order[i]];
    }
  }

  // Step 3, once every output is set: orders the loops by stride, innermost first, and merges two neighbours where one
  // stride leads every operand through both.
  void finish() {
    const bool are_flat = is_flat() && std::all_of(operands, operands + output_count, [&](const Operand& output) {
                            return has_shape(output.info, ndim, sizes) && is_contiguous(output.info);
                          });
    if (are_flat) return flatten();
    int order[kMaxDims];
    iteration_order(0, order);
    permute(sizes, order);
    for (int i = 0; i < operand_count; ++i) permute(operands[i].strides, order);
    coalesce();
  }

  // Whether every input is contiguous, of one dtype, and of the result's shape or 0-d.
  bool is_flat() const { return result_like_ != kNone; }

  // Step 3 of such a plan, with outputs that were allocated for it: nothing of them has to be looked at.
  void finish_flat(std::span<const Tensor> outputs) {
    for (Operand* output = operands; const Tensor& tensor : outputs) {
      void* data = nullptr;
      OPWHEEL_SHIM(torch_get_mutable_data_ptr(tensor.handle(), &data));
      output->info = input(result_like_).info;
      output->data = static_cast<char*>(data);
      ++output;
    }
    flatten();
  }

  void check_device(const Operand& operand, int32_t device_type) const {
    if (operand.info.device == device && device.type == device_type) return;
    const bool is_first = &operand == &input(0);
    fail(operator_, ": argument '", operand.name, "' is on ", operand.info.device.name(), ", but ",
         is_first ? "another argument is on a device of type " : "the first argument is on ",
         is_first ? device_name(device_type, -1) : device.name(), "; move all of them to one device with .to(...)");
  }

 private:
  std::string_view operator_;
  static constexpr int kNone = -1;
  int result_like_ = kNone;  // if the plan is flat: an input with the result's shape, dtype, strides and device

  void set(int i, std::string_view name, const Tensor& tensor, void* data) {
    operands[i].name = name;
    operands[i].info = TensorInfo(tensor);
    operands[i].data = static_cast<char*>(data);
  }

  // Fast path: every input is contiguous, of one dtype, and of one shape or 0-d. On a few elements the general rules
  // would take more than the rest of the call, and push more of what the program runs besides out of the processor's
  // caches.
  bool infer_flat(int32_t device_type) {
    int whole = 0;  // the first input that is not 0-d, if there is one
    while (whole + 1 < input_count() && input(whole).info.ndim == 0) ++whole;
    const TensorInfo& result = input(whole).info;
    if (result.dtype == DType::unsupported || result.device.type != device_type) return false;
    if (result.ndim > kMaxDims || result.numel == 0) return false;
    int64_t strides[kMaxDims];
    contiguous_strides(static_cast<int>(result.ndim), result.sizes, strides);
    for (int i = 0; i < input_count(); ++i) {
      const TensorInfo& info = input(i).info;
      if (info.dtype != result.dtype || info.device != result.device || !has_memory(input(i))) return false;
      if (info.ndim == 0) continue;
      if (!has_shape(info, result.ndim, result.sizes) || !std::equal(strides, strides + info.ndim, info.strides)) {
        return false;
      }
    }
    device = result.device;
    dtype = result.dtype;
    numel = result.numel;
    ndim = static_cast<int>(result.ndim);
    std::copy_n(result.sizes, ndim, sizes);
    result_like_ = whole;
    return true;
  }

  __attribute__((noinline)) void infer_in_general(int32_t device_type) {
    check_inputs(device_type);
    infer_shape();
    infer_dtype();
    infer_numel();
    for (int i = 0; numel > 0 && i < input_count(); ++i) check_memory(input(i));
  }

  void check_inputs(int32_t device_type) {
    device = input(0).info.device;
    for (int i = 0; i < input_count(); ++i) {
      const Operand& operand = input(i);
      if (operand.info.dtype == DType::unsupported) {
        fail(operator_, ": argument '", operand.name, "' is ", dtype_name(operand.info.dtype_code),
             "; supported dtypes are ", kSupportedDTypes, ". Convert it first, for instance with .to(torch.float32)");
      }
      if (operand.info.ndim > kMaxDims) {
        fail(operator_, ": argument '", operand.name, "' has ", operand.info.ndim, " dimensions; at most ",
             int64_t{kMaxDims}, " are supported. Merge some of them first, for instance with .flatten(...)");
      }
      check_device(operand, device_type);
    }
  }

  void infer_shape() {
    for (int i = 0; i < input_count(); ++i) ndim = std::max(ndim, static_cast<int>(input(i).info.ndim));
    std::fill_n(sizes, ndim, 1);
    for (int i = 0; i < input_count(); ++i) {
      const TensorInfo& info = input(i).info;
      for (int64_t d = 0; d < info.ndim; ++d) {
        int64_t& size = sizes[ndim - info.ndim + d];
        if (info.sizes[d] == size || info.sizes[d] == 1) continue;
        if (size != 1) fail_broadcast();
        size = info.sizes[d];
      }
    }
  }

  // PyTorch refuses what it cannot count, in these words: elements in the order of the dimensions, so that an empty
  // result may be refused, too, bytes, and the strides of a contiguous tensor.
  void infer_numel() {
    bool overflows = false;
    for (int d = 0; d < ndim; ++d) overflows |= __builtin_mul_overflow(numel, sizes[d], &numel);
    int64_t bytes, stride = 1;
    overflows |= __builtin_mul_overflow(numel, element_size(dtype), &bytes);
    for (int d = 1; d < ndim; ++d) overflows |= __builtin_mul_overflow(stride, std::max<int64_t>(sizes[d], 1), &stride);
    if (!overflows) return;
    fail(operator_, ": Storage size calculation overflowed with sizes=[", join(ndim, sizes),
         "]: no tensor can have that many elements; compute the result in parts");
  }

  // Memory that was freed, and tensors without any of their own, are a null pointer plus the storage's offset.
  static bool has_memory(const Operand& operand) {
    return reinterpret_cast<intptr_t>(operand.data) != operand.info.offset * element_size(operand.info);
  }
  void check_memory(const Operand& operand) const {
    if (has_memory(operand)) return;
    fail(operator_, ": argument '", operand.name,
         "' has no memory: its storage was resized to nothing, or it is a tensor of a subclass without data; pass a ",
         "tensor that holds its elements");
  }

  [[noreturn]] void fail_broadcast() const {
    std::string shapes;
    for (int i = 0; i < input_count(); ++i) {
      if (i != 0) shapes += ", ";
      append(shapes, input(i).name);
      shapes += ' ';
      append(shapes, input(i).info);
    }
    fail(operator_, ": the shapes of its arguments cannot be broadcast together: ", shapes,
         "; dimensions, counted from the last, must be equal or 1");
  }

  // torch.result_type over floating-point tensors: those with dimensions decide, 0-d tensors only among themselves.
  void infer_dtype() {
    const bool only_scalars = ndim == 0;
    for (int i = 0; i < input_count(); ++i) {
      const TensorInfo& info = input(i).info;
      if (info.ndim == 0 && !only_scalars) continue;
      dtype = dtype == DType::unsupported ? info.dtype : promote(dtype, info.dtype);
    }
  }

  static DType promote(DType a, DType b) {
    if (a == b) return a;
    if (a == DType::float64 || b == DType::float64) return DType::float64;
    return DType::float32;  // also for float16 with bfloat16: neither holds the other
  }

  // Whether each input has the result's rank and its sizes (or its strides) are those of the first input.
  bool inputs_share(int64_t* TensorInfo::* values) const {
    return std::all_of(operands + output_count, operands + operand_count, [&](const Operand& operand) {
      const int64_t* own = operand.info.*values;
      return operand.info.ndim == ndim && std::equal(own, own + ndim, input(0).info.*values);
    });
  }

  bool every_input_is(bool (*property)(const TensorInfo&)) const {
    return std::all_of(operands + output_count, operands + operand_count,
                       [&](const Operand& operand) { return property(operand.info); });
  }

  // What ordering and merging come to when all operands are contiguous, and of one shape or 0-d.
  void flatten() {
    if (ndim == 0) return;
    for (int i = 0; i < operand_count; ++i)
      operands[i].strides[0] = operands[i].info.ndim == 0 ? 0 : element_size(dtype);
    ndim = 1;
    sizes[0] = numel;
  }

  void broadcast_strides(Operand& operand) const {
    const TensorInfo& info = operand.info;
    const int64_t lead = ndim - info.ndim;
    std::fill_n(operand.strides, lead, 0);
    for (int64_t d = 0; d < info.ndim; ++d) {
      const bool repeated = info.sizes[d] == 1 && sizes[lead + d] != 1;
      operand.strides[lead + d] = repeated ? 0 : info.strides[d] * element_size(info.dtype);
    }
  }

  // TensorIterator converts an input of another dtype before it looks at strides, on a CPU and nowhere else.
  bool is_copied(const Operand& operand) const {
    return operand.info.dtype != dtype && device.type == aoti_torch_device_type_cpu() &&
           !is_non_overlapping_and_dense(operand.info);
  }

  void as_if_copied(int64_t* strides) const {
    ElementwisePlan plan = *this;
    int64_t copies[kMaxOperands][kMaxDims];
    for (int i = output_count; i < operand_count; ++i) {
      if (!is_copied(operands[i])) continue;
      strides_of_copy(operands[i].info, copies[i]);
      plan.operands[i].info.strides = copies[i];
      plan.operands[i].info.dtype = dtype;
    }
    plan.new_output_strides(strides);
  }

  // Dimensions in the order of ascending strides. Where operands disagree, the earlier one decides.
  void iteration_order(int first_operand, int* order) {
    for (int i = first_operand; i < operand_count; ++i) broadcast_strides(operands[i]);
    order_dims(ndim, order, [&](int a, int b) {
      for (int i = first_operand; i < operand_count; ++i) {
        if (const int comparison = compare_strides(operands[i].strides, sizes, a, b)) return comparison;
      }
      return 0;
    });
  }

  void permute(int64_t* values, const int* order) const {
    int64_t permuted[kMaxDims];
    for (int d = 0; d < ndim; ++d) permuted[d] = values[order[d]];
    std::copy_n(permuted, ndim, values);
  }

  void coalesce() {
    int last = 0;
    for (int d = 1; d < ndim; ++d) {
      if (can_merge(last, d)) {
        if (sizes[last] == 1) copy_strides(d, last);
        sizes[last] *= sizes[d];
      } else {
        sizes[++last] = sizes[d];
        copy_strides(d, last);
      }
    }
    if (ndim > 0) ndim = last + 1;
  }

  bool can_merge(int inner, int outer) const {
    if (sizes[inner] == 1 || sizes[outer] == 1) return true;
    return std::all_of(operands, operands + operand_count, [&](const Operand& operand) {
      return operand.strides[outer] == sizes[inner] * operand.strides[inner];
    });
  }

  void copy_strides(int from, int to) {
    for (int i = 0; i < operand_count; ++i) operands[i].strides[to] = operands[i].strides[from];
  }
};

}  // namespace opwheel
