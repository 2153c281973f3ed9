// The sum and the largest of some values, made of the reduce() that stands in front of it. Included inside of the
// namespace of each kind of device, with OPWHEEL_DETAIL_REDUCTION defined as what such a function is declared with,
// because CUDA's are __device__ and call a reduce() of their own, as SYCL's and the host's do.
template <class Acc, class Value>
OPWHEEL_DETAIL_REDUCTION Acc sum(int64_t count, const Value& value) {
  return reduce<Acc>(count, Acc(0), value, Add());
}
template <class Acc, class Value>
OPWHEEL_DETAIL_REDUCTION Acc maximum(int64_t count, Acc start, const Value& value) {
  return reduce<Acc>(count, start, value, Larger());
}
#undef OPWHEEL_DETAIL_REDUCTION
