// What rms_norm and layer_norm multiply rows by, whatever instructions they are made of. Included by kernels.inc.h.

// 1 / sqrt(mean + eps), of squares
template <class C>
inline C reciprocal_root(C mean, double eps) {
  return C(1) / static_cast<C>(__builtin_sqrt(static_cast<double>(mean) + eps));
}
// The same in each lane.
template <class V, class C>
inline V reciprocal_root_of_lanes(V mean, double eps) {
  V roots;
  for (int64_t i = 0; i < kLanes<C>; ++i) roots[i] = reciprocal_root(mean[i], eps);
  return roots;
}
inline Floats reciprocal_root(Floats mean, double eps) { return reciprocal_root_of_lanes<Floats, float>(mean, eps); }
inline Doubles reciprocal_root(Doubles mean, double eps) {
  return reciprocal_root_of_lanes<Doubles, double>(mean, eps);
}
