#include "capability.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace muladd::cpu {
namespace {

struct InstructionSet {
  const char* name;
  bool is_supported;
  ChooseRows rows;
};

ChooseRows best_rows() {
#if defined(__x86_64__) && !defined(OPWHEEL_BASELINE_ONLY)
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const InstructionSet sets[] = {{"avx512", avx512, avx512::choose_rows}, {"avx2", avx2, avx2::choose_rows}};
  const char* limit = std::getenv("MULADD_CPU_CAPABILITY");
  bool allowed = limit == nullptr || (std::strcmp(limit, "avx2") != 0 && std::strcmp(limit, "baseline") != 0);
  for (const InstructionSet& set : sets) {
    allowed |= std::strcmp(limit == nullptr ? "" : limit, set.name) == 0;
    if (allowed && set.is_supported) return set.rows;
  }
#endif
  return baseline::choose_rows;
}

// As one core sees it: sysconf() adds up the caches of all sockets, and in a virtual machine those of its host.
int64_t ask_for_cache() {
  long kibibytes = 0;
  if (std::FILE* file = std::fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r")) {
    if (std::fscanf(file, "%ldK", &kibibytes) != 1) kibibytes = 0;
    std::fclose(file);
  }
  return int64_t{kibibytes > 0 ? kibibytes : 32 << 10} << 10;
}

}  // namespace

ChooseRows choose_rows() {
  static const ChooseRows rows = best_rows();
  return rows;
}

int64_t last_level_cache() {
  static const int64_t size = ask_for_cache();
  return size;
}

}  // namespace muladd::cpu
