#define WAVES_KERNELS(KERNEL)                           \
  KERNEL(times, "times(Tensor x, float k=3) -> Tensor") \
  KERNEL(four, "four(Tensor x) -> Tensor")              \
  KERNEL(square, "square(Tensor x) -> Tensor")
