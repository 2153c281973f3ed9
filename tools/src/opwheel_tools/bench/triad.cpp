// The limit: out = a * b + c as the STREAM triad, with nothing around it. Compiled for this machine by triad.py.
#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

constexpr int64_t kLineBytes = 64;
constexpr int64_t kElementsPerThread = 32768;  // torch's own grain: below it a second thread costs more than it brings

struct BFloat16 {
  uint16_t bits;
};

template <class T>
T widen(T x) {
  return x;
}

float widen(BFloat16 x) {
  uint32_t bits = uint32_t{x.bits} << 16;
  float wide;
  std::memcpy(&wide, &bits, sizeof wide);
  return wide;
}

template <class T, class Wide>
void narrow(Wide x, T& to) {
  to = static_cast<T>(x);
}

void narrow(float x, BFloat16& to) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  to.bits = static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#if defined(__FLT16_MANT_DIG__)
float widen(_Float16 x) { return static_cast<float>(x); }
#endif

template <class T, class Wide>
void multiply_add(const T* a, const T* b, Wide c, T* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) narrow(widen(a[i]) * widen(b[i]) + c, out[i]);
}

#if defined(__FLT16_MANT_DIG__) && defined(__AVX512F__)
// Compilers convert one number at a time.
void multiply_add(const _Float16* a, const _Float16* b, float c, _Float16* out, int64_t n) {
  const auto load = [](const _Float16* from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  };
  int64_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const __m512 sum = _mm512_add_ps(_mm512_mul_ps(load(a + i), load(b + i)), _mm512_set1_ps(c));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i), _mm512_cvtps_ph(sum, _MM_FROUND_TO_NEAREST_INT));
  }
  for (; i < n; ++i) narrow(widen(a[i]) * widen(b[i]) + c, out[i]);
}
#endif

// Non-temporal stores: a line of the output need not be read before it is overwritten.
void stream_line(void* to, const void* from) {
#if defined(__AVX512F__)
  _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_load_si512(from));
#elif defined(__AVX2__)
  const auto* source = static_cast<const __m256i*>(from);
  auto* target = static_cast<__m256i*>(to);
  _mm256_stream_si256(target, _mm256_load_si256(source));
  _mm256_stream_si256(target + 1, _mm256_load_si256(source + 1));
#else
  std::memcpy(to, from, kLineBytes);
#endif
}

void finish_streams() {
#if defined(__AVX2__)
  _mm_sfence();
#endif
}

template <class T, class Wide>
void triad(const T* a, const T* b, Wide c, T* out, int64_t n, int threads, bool streaming) {
  constexpr int64_t kLine = kLineBytes / sizeof(T);
  const int64_t lines = n / kLine;
#pragma omp parallel num_threads(threads) if (n > kElementsPerThread)
  {
#pragma omp for schedule(static)
    for (int64_t line = 0; line < lines; ++line) {
      alignas(kLineBytes) T result[kLine];
      multiply_add(a + line * kLine, b + line * kLine, c, result, kLine);
      if (streaming) {
        stream_line(out + line * kLine, result);
      } else {
        std::memcpy(out + line * kLine, result, kLineBytes);
      }
    }
    finish_streams();
  }
  const int64_t done = lines * kLine;
  multiply_add(a + done, b + done, c, out + done, n - done);
}

}  // namespace

#define EXPORT_TRIAD(name, T, Wide)                                                                                \
  extern "C" void triad_##name(const T* a, const T* b, double c, T* out, int64_t n, int threads, bool streaming) { \
    triad<T, Wide>(a, b, static_cast<Wide>(c), out, n, threads, streaming);                                        \
  }

EXPORT_TRIAD(float32, float, float)
EXPORT_TRIAD(float64, double, double)
EXPORT_TRIAD(bfloat16, BFloat16, float)
#if defined(__FLT16_MANT_DIG__)
EXPORT_TRIAD(float16, _Float16, float)
#endif
