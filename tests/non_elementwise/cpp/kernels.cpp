// The operators of tests/non_elementwise/operators.py in C++, with nothing but the SDK.
#include "opwheel/kernels.h"

#include <cmath>
#include <limits>

#include "operators.h"
#include "opwheel/cpu/rows.h"
#include "shapes.h"

OPWHEEL_DECLARE_KERNELS(waves_cpp, WAVES_KERNELS)

namespace {

using namespace waves;
using cpu::for_rows;
using cpu::Scratch;

std::array<Tensor, 2> rms_norm(const Tensor& given, const Tensor& given_weight, double eps) {
  const Check checked = check(given, "x").on_cpu().dtype(floating).at_least(1);
  const int64_t length = checked.info().sizes[checked.info().ndim - 1];
  check(given_weight, "weight").on_cpu().same_dtype(given, "x").shape({length});
  const int64_t rows = rows_of(checked.info());
  const Tensor x = contiguous(given), weight = contiguous(given_weight);
  Tensor y = new_empty_like(x), rstd = new_empty(leading(x), wide(dtype_of(x)), device_of(x));
  dispatch(dtype_of(x), [&]<class T>() {
    using Acc = Accumulate<T>;
    for_rows(rows, length, [&, in = data<T>(x), w = data<T>(weight), out = data<T>(y), r = data<Acc>(rstd)](int64_t i) {
      const T* row = in + i * length;
      const Acc squares = cpu::sum<Acc>(length, [&](int64_t k) { return Acc(row[k]) * Acc(row[k]); });
      r[i] = 1 / std::sqrt(squares / Acc(length) + Acc(eps));
      for (int64_t k = 0; k < length; ++k) out[i * length + k] = T(Acc(row[k]) * r[i] * Acc(w[k]));
    });
  });
  return {std::move(y), std::move(rstd)};
}

std::array<Tensor, 2> rms_norm_backward(const Tensor& given_grad, const Tensor& given, const Tensor& given_weight,
                                        const Tensor& given_rstd) {
  const Check checked = check(given, "x").on_cpu().dtype(floating).at_least(1);
  const int64_t length = checked.info().sizes[checked.info().ndim - 1];
  check(given_grad, "grad_output").same_shape(given, "x").same_dtype(given, "x");
  check(given_weight, "weight").same_dtype(given, "x").shape({length});
  check(given_rstd, "rstd").dtype(wide(dtype_of(given)));
  check_one_per_row(given_rstd, "rstd", checked.info());
  const int64_t rows = rows_of(checked.info());
  const Tensor grad = contiguous(given_grad), x = contiguous(given), weight = contiguous(given_weight),
               rstd = contiguous(given_rstd);
  Tensor dx = new_empty_like(x), dweight = new_empty_like(weight);
  dispatch(dtype_of(x), [&]<class T>() {
    using Acc = Accumulate<T>;
    const T *g = data<T>(grad), *in = data<T>(x), *w = data<T>(weight);
    const Acc* r = data<Acc>(rstd);
    T *out = data<T>(dx), *out_weight = data<T>(dweight);
    for_rows(rows, length, [&](int64_t i) {
      const T *row = in + i * length, *grads = g + i * length;
      const Acc inner =
          cpu::sum<Acc>(length, [&](int64_t k) { return Acc(grads[k]) * Acc(w[k]) * Acc(row[k]); }) / Acc(length);
      for (int64_t k = 0; k < length; ++k) {
        out[i * length + k] = T(r[i] * Acc(grads[k]) * Acc(w[k]) - Acc(row[k]) * r[i] * r[i] * r[i] * inner);
      }
    });
    for_rows(length, rows, [&](int64_t k) {
      out_weight[k] =
          T(cpu::sum<Acc>(rows, [&](int64_t i) { return Acc(g[i * length + k]) * Acc(in[i * length + k]) * r[i]; }));
    });
  });
  return {std::move(dx), std::move(dweight)};
}

Tensor rope(const Tensor& given, const Tensor& given_cos, const Tensor& given_sin) {
  const Check checked = check(given, "q").on_cpu().dtype(floating).at_least(2);
  const TensorInfo& info = checked.info();
  const int64_t width = info.sizes[info.ndim - 1], half = width / 2, positions = info.sizes[info.ndim - 2];
  if (width % 2 != 0) fail("argument 'q' has rows of ", width, " elements, expected an even number");
  check(given_cos, "cos").same_dtype(given, "q").shape({positions, half});
  check(given_sin, "sin").same_dtype(given, "q").shape({positions, half});
  const Tensor q = contiguous(given), cos = contiguous(given_cos), sin = contiguous(given_sin);
  Tensor y = new_empty_like(q);
  dispatch(dtype_of(q), [&]<class T>() {
    using Acc = Accumulate<T>;
    for_rows(rows_of(info), width,
             [&, in = data<T>(q), c = data<T>(cos), s = data<T>(sin), out = data<T>(y)](int64_t i) {
               const int64_t at = i % positions * half;
               for (int64_t k = 0; k < half; ++k) {
                 const Acc a = Acc(in[i * width + k]), b = Acc(in[i * width + half + k]);
                 out[i * width + k] = T(a * Acc(c[at + k]) - b * Acc(s[at + k]));
                 out[i * width + half + k] = T(a * Acc(s[at + k]) + b * Acc(c[at + k]));
               }
             });
  });
  return y;
}

std::array<Tensor, 2> quantize_rowwise(const Tensor& given) {
  const Check checked = check(given, "x").on_cpu().dtype(floating).at_least(1);
  const int64_t length = checked.info().sizes[checked.info().ndim - 1];
  const Tensor x = contiguous(given);
  Tensor q = new_empty(sizes_of(x), ScalarType::Char, device_of(x));
  Tensor scale = new_empty(leading(x), ScalarType::Float, device_of(x));
  dispatch(dtype_of(x), [&]<class T>() {
    for_rows(rows_of(checked.info()), length,
             [&, in = data<T>(x), out = data<int8_t>(q), s = data<float>(scale)](int64_t i) {
               Scratch<float> row(length);
               for (int64_t k = 0; k < length; ++k) row[k] = float(in[i * length + k]);
               s[i] = cpu::maximum<float>(length, 0.0f, [&](int64_t k) { return std::fabs(row[k]); }) / 127;
               const float divisor = std::fmax(s[i], 1e-12f);
               for (int64_t k = 0; k < length; ++k) out[i * length + k] = int8_t(std::nearbyint(row[k] / divisor));
             });
  });
  return {std::move(q), std::move(scale)};
}

Tensor dequantize(const Tensor& given, const Tensor& given_scale, ScalarType dtype) {
  const Check checked = check(given, "q").on_cpu().dtype(ScalarType::Char).at_least(1);
  check(given_scale, "scale").on_cpu().dtype(ScalarType::Float);
  check_one_per_row(given_scale, "scale", checked.info());
  const int64_t length = checked.info().sizes[checked.info().ndim - 1];
  const Tensor q = contiguous(given), scale = contiguous(given_scale);
  Tensor x = new_empty(sizes_of(q), dtype, device_of(q));
  dispatch(dtype, [&]<class T>() {
    for_rows(rows_of(checked.info()), length,
             [&, in = data<int8_t>(q), s = data<float>(scale), out = data<T>(x)](int64_t i) {
               for (int64_t k = 0; k < length; ++k) out[i * length + k] = T(float(in[i * length + k]) * s[i]);
             });
  });
  return x;
}

Tensor softmax(const Tensor& given, int64_t dim) {
  const Check checked = check(given, "x").on_cpu().dtype(floating).at_least(1);
  const Split split(checked.info(), dim);
  const Tensor x = contiguous(given);
  Tensor y = new_empty_like(x);
  dispatch(dtype_of(x), [&]<class T>() {
    using Acc = Accumulate<T>;
    for_rows(split.outer * split.inner, split.length, [&, in = data<T>(x), out = data<T>(y)](int64_t i) {
      const int64_t start = i / split.inner * split.length * split.inner + i % split.inner, step = split.inner;
      Scratch<Acc> row(split.length);
      for (int64_t k = 0; k < split.length; ++k) row[k] = Acc(in[start + k * step]);
      const Acc top =
          cpu::maximum<Acc>(split.length, -std::numeric_limits<Acc>::infinity(), [&](int64_t k) { return row[k]; });
      for (int64_t k = 0; k < split.length; ++k) row[k] = std::exp(row[k] - top);
      const Acc total = cpu::sum<Acc>(split.length, [&](int64_t k) { return row[k]; });
      for (int64_t k = 0; k < split.length; ++k) out[start + k * step] = T(row[k] / total);
    });
  });
  return y;
}

Tensor softmax_backward(const Tensor& given_grad, const Tensor& given, int64_t dim) {
  const Check checked = check(given, "y").on_cpu().dtype(floating).at_least(1);
  check(given_grad, "grad_output").same_shape(given, "y").same_dtype(given, "y");
  const Split split(checked.info(), dim);
  const Tensor grad = contiguous(given_grad), y = contiguous(given);
  Tensor dx = new_empty_like(y);
  dispatch(dtype_of(y), [&]<class T>() {
    using Acc = Accumulate<T>;
    const T *g = data<T>(grad), *in = data<T>(y);
    for_rows(split.outer * split.inner, split.length, [&, out = data<T>(dx)](int64_t i) {
      const int64_t start = i / split.inner * split.length * split.inner + i % split.inner, step = split.inner;
      const auto at = [&](int64_t k) { return start + k * step; };
      const Acc inner = cpu::sum<Acc>(split.length, [&](int64_t k) { return Acc(g[at(k)]) * Acc(in[at(k)]); });
      for (int64_t k = 0; k < split.length; ++k) out[at(k)] = T((Acc(g[at(k)]) - inner) * Acc(in[at(k)]));
    });
  });
  return dx;
}

// Gauss-Jordan elimination with pivoting.
Tensor solve(const Tensor& given, const Tensor& given_b) {
  constexpr DTypes kDTypes{ScalarType::Float, ScalarType::Double};
  const Check checked = check(given, "a").on_cpu().dtype(kDTypes).ndim(2);
  const int64_t n = checked.info().sizes[0];
  checked.size(1, n);
  const Check right = check(given_b, "b").same_dtype(given, "a").ndim(2).size(0, n);
  const int64_t columns = right.info().sizes[1];
  const Tensor a = contiguous(given), b = contiguous(given_b);
  Tensor x = new_empty_like(b);
  dispatch<kDTypes>(dtype_of(a), [&]<class T>() {
    Scratch<double> left(n * n), out(n * columns);
    for (int64_t i = 0; i < n * n; ++i) left[i] = data<T>(a)[i];
    for (int64_t i = 0; i < n * columns; ++i) out[i] = data<T>(b)[i];
    for (int64_t p = 0; p < n; ++p) {
      int64_t best = p;
      for (int64_t i = p + 1; i < n; ++i) best = std::fabs(left[i * n + p]) > std::fabs(left[best * n + p]) ? i : best;
      for (int64_t k = 0; k < n; ++k) std::swap(left[p * n + k], left[best * n + k]);
      for (int64_t k = 0; k < columns; ++k) std::swap(out[p * columns + k], out[best * columns + k]);
      if (left[p * n + p] == 0) fail("argument 'a' is singular");
      for (int64_t i = 0; i < n; ++i) {
        const double factor = i == p ? 0 : left[i * n + p] / left[p * n + p];
        for (int64_t k = 0; k < n; ++k) left[i * n + k] -= factor * left[p * n + k];
        for (int64_t k = 0; k < columns; ++k) out[i * columns + k] -= factor * out[p * columns + k];
      }
    }
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t k = 0; k < columns; ++k) data<T>(x)[i * columns + k] = T(out[i * columns + k] / left[i * n + i]);
    }
  });
  return x;
}

Tensor nonzero(const Tensor& given) {
  const Check checked = check(given, "x").on_cpu().dtype(every_dtype);
  const TensorInfo& info = checked.info();
  const Tensor x = contiguous(given);
  std::vector<int64_t> found;
  dispatch<every_dtype>(dtype_of(x), [&]<class T>() {
    for (int64_t i = 0; i < info.numel; ++i) {
      if (data<T>(x)[i] != T(0)) found.push_back(i);
    }
  });
  Tensor indices = new_empty({static_cast<int64_t>(found.size()), info.ndim}, ScalarType::Long, info.device);
  int64_t* out = data<int64_t>(indices);
  for (std::size_t i = 0; i < found.size(); ++i) {
    for (int64_t d = info.ndim, rest = found[i]; d-- > 0; rest /= info.sizes[d]) {
      out[static_cast<int64_t>(i) * info.ndim + d] = rest % info.sizes[d];
    }
  }
  return indices;
}

void reshape_and_cache(const Tensor& given, Tensor& cache, const Tensor& given_slots) {
  const Check rows = check(given, "key").on_cpu().dtype(every_dtype).ndim(2);
  const int64_t count = rows.info().sizes[0], width = rows.info().sizes[1];
  const Check target = check(cache, "cache").on_cpu().same_dtype(given, "key").ndim(2).size(1, width);
  check(given_slots, "slots").on_cpu().dtype(ScalarType::Long).shape({count});
  const Tensor key = contiguous(given), slots = contiguous(given_slots);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slot = data<int64_t>(slots)[i];
    if (slot < 0 || slot >= target.info().sizes[0]) fail("slot ", slot, " is not in 'cache'");
  }
  dispatch<every_dtype>(dtype_of(key), [&]<class T>() {
    for_rows(count, width, [&, in = data<T>(key), out = data<T>(cache)](int64_t i) {
      const int64_t start = data<int64_t>(slots)[i] * target.info().strides[0];
      for (int64_t k = 0; k < width; ++k) out[start + k * target.info().strides[1]] = in[i * width + k];
    });
  });
}

void scale_all(const std::vector<Tensor>& parts, double factor, const std::optional<Tensor>& total) {
  const Tensor sum = total ? contiguous(*total) : Tensor();
  for (const Tensor& part : parts) {
    check(part, "parts").on_cpu().dtype(floating);
    if (total) check(part, "parts").same_shape(*total, "total").same_dtype(*total, "total");
    const Tensor scaled = contiguous(part);
    dispatch(dtype_of(part), [&]<class T>() {
      using Acc = Accumulate<T>;
      for (int64_t i = 0; i < TensorInfo(part).numel; ++i) {
        data<T>(scaled)[i] = T(Acc(data<T>(scaled)[i]) * Acc(factor));
        if (total) data<T>(sum)[i] = T(Acc(data<T>(sum)[i]) + Acc(data<T>(scaled)[i]));
      }
    });
    copy_to(part, scaled);
  }
  if (total) copy_to(*total, sum);
}

Tensor mixture(const std::vector<Tensor>& parts, const std::optional<Tensor>& bias, const std::vector<int64_t>& weights,
               bool mean, std::string_view mode, double scale) {
  if (parts.empty()) fail("argument 'parts' is empty");
  const Check first = check(parts[0], "parts").on_cpu().dtype(floating).at_least(1);
  const int64_t length = first.info().sizes[first.info().ndim - 1];
  std::vector<Tensor> given;
  for (const Tensor& part : parts) {
    check(part, "parts").same_shape(parts[0], "parts[0]").same_dtype(parts[0], "parts[0]");
    given.push_back(contiguous(part));
  }
  if (bias) check(*bias, "bias").same_dtype(parts[0], "parts[0]").shape({length});
  const Tensor shift = bias ? contiguous(*bias) : Tensor();
  Tensor y = new_empty_like(given[0]);
  dispatch(dtype_of(y), [&]<class T>() {
    using Acc = Accumulate<T>;
    const T* b = bias ? data<T>(shift) : nullptr;
    for (int64_t i = 0; i < first.info().numel; ++i) {
      Acc total = 0;
      for (std::size_t p = 0; p < given.size(); ++p)
        total += Acc(data<T>(given[p])[i]) * Acc(weights[p % weights.size()]);
      total *= Acc(scale);
      if (b != nullptr) total += Acc(b[i % length]);
      if (mode == "square") total *= total;
      data<T>(y)[i] = T(mean ? total / Acc(given.size()) : total);
    }
  });
  return y;
}

Tensor window(int64_t size, ScalarType dtype, std::optional<Device> device) {
  Tensor y = new_empty({size}, dtype, device.value_or(Device{aoti_torch_device_type_cpu(), 0}));
  dispatch(dtype, [&]<class T>() {
    for (int64_t i = 0; i < size; ++i) data<T>(y)[i] = T(0.5 - 0.5 * std::cos(2 * M_PI * double(i) / double(size)));
  });
  return y;
}

}  // namespace

OPWHEEL_KERNELS(waves_cpp, CPU, m) {
  using namespace waves_cpp;
  implement<op::rms_norm, rms_norm>(m);
  implement<op::rms_norm_backward, rms_norm_backward>(m);
  implement<op::rope, rope>(m);
  implement<op::quantize_rowwise, quantize_rowwise>(m);
  implement<op::dequantize, dequantize>(m);
  implement<op::softmax, softmax>(m);
  implement<op::softmax_backward, softmax_backward>(m);
  implement<op::solve, solve>(m);
  implement<op::nonzero, nonzero>(m);
  implement<op::reshape_and_cache, reshape_and_cache>(m);
  implement<op::scale_all, scale_all>(m);
  implement<op::mixture, mixture>(m);
  implement<op::window, window>(m);
}
