// What this machine can do, asked once per process.
#pragma once

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

namespace opwheel::cpu {

// From the least to the best. On aarch64 the baseline has NEON and fused multiply-add; bf16 has conversions to
// bfloat16.
#if defined(__aarch64__)
enum class InstructionSet { baseline, bf16 };
#else
enum class InstructionSet { baseline, avx2, avx512 };
#endif

// The best instruction set that the processor and the operating system support. <LIBRARY>_CPU_CAPABILITY chooses a
// lower one: baseline, avx2 or avx512; on aarch64 baseline or bf16. What is not supported is ignored.
inline InstructionSet instruction_set([[maybe_unused]] std::string library) {
#if (defined(__x86_64__) || defined(__aarch64__)) && !defined(OPWHEEL_BASELINE_ONLY)
  for (char& letter : library) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  const char* variable = std::getenv((library + "_CPU_CAPABILITY").c_str());
  const std::string highest = variable == nullptr ? "" : variable;
  if (highest == "baseline") return InstructionSet::baseline;
#if defined(__x86_64__)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (avx512 && highest != "avx2") return InstructionSet::avx512;
  if (avx2) return InstructionSet::avx2;
#else
  constexpr unsigned long kBf16 = 1ul << 14;  // HWCAP2_BF16, which headers of glibc 2.28 have no name for
  if (getauxval(AT_HWCAP2) & kBf16) return InstructionSet::bf16;
#endif
#endif
  return InstructionSet::baseline;
}

// Size of the last-level cache in bytes as one core sees it; a usual size where the system does not tell. sysconf()
// would add up the caches of all sockets, and in a virtual machine those of its host.
inline int64_t last_level_cache() {
  static const int64_t size = [] {
    long kibibytes = 0;
    if (std::FILE* file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r")) {
      if (std::fscanf(file, "%ldK", &kibibytes) != 1) kibibytes = 0;
      std::fclose(file);
    }
    return int64_t{kibibytes > 0 ? kibibytes : 32 << 10} << 10;
  }();
  return size;
}

}  // namespace opwheel::cpu
