// An element-wise operator on the ExecuTorch runtime: checks the inputs, resizes the output, and loops over all
// operands. Throws nothing and allocates nothing, as the runtime asks of kernels: what is refused is logged and fails
// the method.
#pragma once

#include <executorch/runtime/kernel/kernel_includes.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

namespace muladd_executorch {

using executorch::aten::BFloat16;
using executorch::aten::Half;
using executorch::aten::ScalarType;
using executorch::aten::SizesType;
using executorch::aten::Tensor;
using executorch::runtime::Error;
using executorch::runtime::KernelRuntimeContext;
using executorch::runtime::kTensorDimensionLimit;

inline bool is_supported(ScalarType dtype) {
  return dtype == ScalarType::Half || dtype == ScalarType::BFloat16 || dtype == ScalarType::Float ||
         dtype == ScalarType::Double;
}

// torch.result_type over the supported dtypes.
inline ScalarType promote(ScalarType a, ScalarType b) {
  if (a == b) return a;
  return a == ScalarType::Double || b == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

// The nested loops over an output and N inputs, outermost first, in the order of the output's strides (largest first).
// Broadcast dimensions of an input have step 0; dimensions of size 1 are left out; two neighbours are merged into one
// loop where every operand can go through both with one step.
template <std::size_t N>
class LoopNest {
 public:
  using Steps = std::array<int64_t, N + 1>;  // in bytes; the output's comes first

  LoopNest(const Tensor& out, const std::array<const Tensor*, N>& inputs) {
    std::array<int, kTensorDimensionLimit> order;
    int count = 0;
    for (int d = 0; d < out.dim(); ++d) {
      if (out.size(d) != 1) order[count++] = d;
    }
    std::sort(order.begin(), order.begin() + count, [&](int a, int b) { return out.strides()[a] > out.strides()[b]; });
    for (int i = 0; i < count; ++i) {
      Steps steps = {out.strides()[order[i]] * static_cast<int64_t>(out.element_size())};
      for (std::size_t k = 0; k < N; ++k) steps[k + 1] = step(*inputs[k], out, order[i]);
      append(out.size(order[i]), steps);
    }
  }

  // Calls row(offsets, n, steps) for each run of the innermost loop: n elements that begin at `offsets` and lie `steps`
  // apart, in bytes.
  template <class Row>
  void for_each_row(const Row& row) const {
    if (ndim_ == 0) return row(Steps{}, 1, Steps{});
    const int inner = ndim_ - 1;
    std::array<int64_t, kTensorDimensionLimit> index{};
    Steps offsets{};
    while (true) {
      row(offsets, sizes_[inner], steps_[inner]);
      int d = inner - 1;
      for (; d >= 0; --d) {
        advance(offsets, d, 1);
        if (++index[d] < sizes_[d]) break;
        advance(offsets, d, -sizes_[d]);
        index[d] = 0;
      }
      if (d < 0) return;
    }
  }

 private:
  int ndim_ = 0;
  std::array<int64_t, kTensorDimensionLimit> sizes_;
  std::array<Steps, kTensorDimensionLimit> steps_;

  static int64_t step(const Tensor& input, const Tensor& out, int dim) {
    const int own = dim - static_cast<int>(out.dim() - input.dim());
    if (own < 0 || input.size(own) == 1) return 0;
    return input.strides()[own] * static_cast<int64_t>(input.element_size());
  }

  void append(int64_t size, const Steps& steps) {
    bool mergeable = ndim_ > 0;
    for (std::size_t k = 0; k <= N && mergeable; ++k) mergeable = steps_[ndim_ - 1][k] == size * steps[k];
    if (mergeable) {
      sizes_[ndim_ - 1] *= size;
      steps_[ndim_ - 1] = steps;
    } else {
      sizes_[ndim_] = size;
      steps_[ndim_++] = steps;
    }
  }

  void advance(Steps& offsets, int dim, int64_t count) const {
    for (std::size_t k = 0; k <= N; ++k) offsets[k] += count * steps_[dim][k];
  }
};

namespace detail {

template <class C>
C load(const char* element, ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Half:
      return static_cast<C>(*reinterpret_cast<const Half*>(element));
    case ScalarType::BFloat16:
      return static_cast<C>(*reinterpret_cast<const BFloat16*>(element));
    case ScalarType::Float:
      return static_cast<C>(*reinterpret_cast<const float*>(element));
    default:
      return static_cast<C>(*reinterpret_cast<const double*>(element));
  }
}

// Computes every element of out. T is the result's type, C the one that is computed in (float32 for Half and BFloat16).
// Three loops over a row: all operands of type T and contiguous, of type T with any steps, of mixed dtypes.
template <class T, class C, class F, std::size_t N, std::size_t... I>
void compute(const F& functor, Tensor& out, const std::array<const Tensor*, N>& inputs, std::index_sequence<I...>) {
  char* const result = static_cast<char*>(out.mutable_data_ptr());
  const std::array<const char*, N> data = {static_cast<const char*>(inputs[I]->const_data_ptr())...};
  const LoopNest<N> loops(out, inputs);
  if (((inputs[I]->scalar_type() == out.scalar_type()) && ...)) {
    loops.for_each_row([&](const auto& offsets, int64_t n, const auto& steps) {
      char* const to = result + offsets[0];
      const std::array<const char*, N> from = {data[I] + offsets[I + 1]...};
      if (steps[0] == sizeof(T) && ((steps[I + 1] == sizeof(T)) && ...)) {
        for (int64_t i = 0; i < n; ++i) {
          reinterpret_cast<T*>(to)[i] =
              static_cast<T>(functor(static_cast<C>(reinterpret_cast<const T*>(from[I])[i])...));
        }
        return;
      }
      for (int64_t i = 0; i < n; ++i) {
        *reinterpret_cast<T*>(to + i * steps[0]) =
            static_cast<T>(functor(static_cast<C>(*reinterpret_cast<const T*>(from[I] + i * steps[I + 1]))...));
      }
    });
  } else {
    loops.for_each_row([&](const auto& offsets, int64_t n, const auto& steps) {
      for (int64_t i = 0; i < n; ++i) {
        *reinterpret_cast<T*>(result + offsets[0] + i * steps[0]) =
            static_cast<T>(functor(load<C>(data[I] + offsets[I + 1] + i * steps[I + 1], inputs[I]->scalar_type())...));
      }
    });
  }
}

// The broadcast shape of the inputs; false if there is none.
template <std::size_t N>
bool broadcast_shape(const std::array<const Tensor*, N>& inputs, std::array<SizesType, kTensorDimensionLimit>& sizes,
                     std::size_t& ndim) {
  ndim = 0;
  for (const Tensor* input : inputs) ndim = std::max<std::size_t>(ndim, input->dim());
  std::fill_n(sizes.begin(), ndim, 1);
  for (const Tensor* input : inputs) {
    for (ssize_t d = 0; d < input->dim(); ++d) {
      SizesType& size = sizes[ndim - input->dim() + d];
      if (input->size(d) == 1 || input->size(d) == size) continue;
      if (size != 1) return false;
      size = static_cast<SizesType>(input->size(d));
    }
  }
  return true;
}

// 0-d tensors decide the dtype only among themselves.
template <std::size_t N>
ScalarType result_dtype(const std::array<const Tensor*, N>& inputs, std::size_t ndim) {
  ScalarType dtype = ScalarType::Undefined;
  for (const Tensor* input : inputs) {
    if (input->dim() == 0 && ndim > 0) continue;
    dtype = dtype == ScalarType::Undefined ? input->scalar_type() : promote(dtype, input->scalar_type());
  }
  return dtype;
}

}  // namespace detail

// Computes Functor<C>(params...) for every element of the inputs' broadcast shape into out, which is resized.
template <template <class> class Functor, std::size_t N, class... Params>
Tensor& elementwise(KernelRuntimeContext& context, std::string_view operator_name, Tensor& out,
                    const Tensor* const (&tensors)[N], Params... params) {
  char name[64] = {};
  operator_name.copy(name, sizeof name - 1);
  std::array<const Tensor*, N> inputs;
  std::copy_n(tensors, N, inputs.begin());
  for (std::size_t i = 0; i < N; ++i) {
    ET_KERNEL_CHECK_MSG(context, is_supported(inputs[i]->scalar_type()), InvalidArgument, out,
                        "%s: input %zu is %s; supported dtypes are Half, BFloat16, Float, Double", name, i,
                        executorch::runtime::toString(inputs[i]->scalar_type()));
  }
  std::array<SizesType, kTensorDimensionLimit> sizes;
  std::size_t ndim;
  ET_KERNEL_CHECK_MSG(context, detail::broadcast_shape(inputs, sizes, ndim), InvalidArgument, out,
                      "%s: the shapes of its inputs cannot be broadcast together", name);
  const ScalarType dtype = detail::result_dtype(inputs, ndim);
  ET_KERNEL_CHECK_MSG(context, out.scalar_type() == dtype, InvalidArgument, out,
                      "%s: out is %s, but the result is %s; out must have exactly the result's dtype", name,
                      executorch::runtime::toString(out.scalar_type()), executorch::runtime::toString(dtype));
  ET_KERNEL_CHECK_MSG(context, executorch::runtime::resize_tensor(out, {sizes.data(), ndim}) == Error::Ok,
                      InvalidArgument, out, "%s: out has no room for the result's shape", name);
  if (out.numel() == 0) return out;

  constexpr auto indices = std::make_index_sequence<N>{};
  switch (dtype) {
    case ScalarType::Half:
      detail::compute<Half, float>(Functor<float>{params...}, out, inputs, indices);
      break;
    case ScalarType::BFloat16:
      detail::compute<BFloat16, float>(Functor<float>{params...}, out, inputs, indices);
      break;
    case ScalarType::Float:
      detail::compute<float, float>(Functor<float>{params...}, out, inputs, indices);
      break;
    default:
      detail::compute<double, double>(Functor<double>{params...}, out, inputs, indices);
  }
  return out;
}

}  // namespace muladd_executorch
