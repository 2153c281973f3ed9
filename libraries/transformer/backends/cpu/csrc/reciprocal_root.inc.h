// What rms_norm and layer_norm multiply rows by, whatever instructions they are made of. Included by kernels.inc.h.

// 1 / sqrt(mean + eps), of squares
template <class C>
inline C reciprocal_root(C mean, double eps) {
  return C(1) / static_cast<C>(__builtin_sqrt(static_cast<double>(mean) + eps));
}
