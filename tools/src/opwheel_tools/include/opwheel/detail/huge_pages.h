// Huge pages for large new results on a CPU.
//
// The system gives memory to a new tensor when it is first written, one page at a time, and with pages of 4 KiB that
// takes longer than most operators' arithmetic. So a large result asks for pages of 2 MiB (docs/large-results.md has
// its costs, and how to turn it off). It is advice: a system whose setting is `never` ignores it.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#endif

namespace opwheel::detail::huge_pages {

inline constexpr int64_t kSize = 2 << 20;  // bytes of a huge page, on x86-64 and on aarch64 with 4 KiB pages

// Bytes from which on results ask. Smaller ones mostly get memory that was written before, and to find that out costs a
// system call for every 2 MiB: 4 % of an addition's time for a result of 4 MiB.
inline constexpr int64_t kLeast = 8 << 20;

// The system's setting, from /sys/kernel/mm/transparent_hugepage/enabled: for memory that asks, for all, for none.
enum class Setting { madvise, always, never };

inline Setting system_setting() {
  static const Setting setting = [] {
    char text[64] = {};  // the words, with the chosen one in brackets
    if (std::FILE* file = std::fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r")) {
      const std::size_t length = std::fread(text, 1, sizeof text - 1, file);
      text[length] = 0;
      std::fclose(file);
    }
    if (std::strstr(text, "[always]") != nullptr) return Setting::always;
    return std::strstr(text, "[madvise]") != nullptr ? Setting::madvise : Setting::never;
  }();
  return setting;
}

// Whether this library asks for them: the policy's `huge-pages`. Every library has its own.
inline std::atomic<bool> is_on{true};

#if defined(__linux__)
inline uintptr_t small_page() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}
#endif

// Whether memory behind these addresses was written before. Where the system does not tell: yes.
inline bool is_resident(const void* address) {
#if defined(__linux__)
  unsigned char state = 1;
  const auto start = reinterpret_cast<uintptr_t>(address) & ~(small_page() - 1);
  return mincore(reinterpret_cast<void*>(start), 1, &state) != 0 || (state & 1) != 0;
#else
  (void)address;
  return true;
#endif
}

// Asks for huge pages behind those parts of new memory that have never been written. What was written before, because
// the allocator has reused it, has its pages already.
//
// All of the page that the last byte is on counts as new memory. Linux puts a large block of malloc's so that it ends
// where a huge page does, and the tensor in it ends less than a small page before that:
//
//     | 4 KiB | 2 MiB | ... | 2 MiB |    the block
//         [--- the tensor ---------]
//
inline void advise(void* data, int64_t bytes) {
#if defined(__linux__)
  if (!is_on.load(std::memory_order_relaxed) || system_setting() != Setting::madvise) return;
  const auto address = reinterpret_cast<uintptr_t>(data), last_page = small_page() - 1;
  const auto begin = (address + kSize - 1) & ~uintptr_t{kSize - 1};
  const auto end = ((address + static_cast<uintptr_t>(bytes) + last_page) & ~last_page) & ~uintptr_t{kSize - 1};
  for (uintptr_t part = begin, next; part < end; part = next + kSize) {
    next = part;
    while (next < end && !is_resident(reinterpret_cast<void*>(next))) next += kSize;
    if (next > part) madvise(reinterpret_cast<void*>(part), next - part, MADV_HUGEPAGE);
  }
#else
  (void)data, (void)bytes;
#endif
}

// Whether new memory of this size, once it is advised, gets huge pages rather than small ones.
inline bool are_given(int64_t bytes) {
  if (system_setting() == Setting::always) return bytes >= 2 * kSize;
  return system_setting() == Setting::madvise && is_on.load(std::memory_order_relaxed) && bytes >= kLeast;
}

}  // namespace opwheel::detail::huge_pages

// Looked up in a library by whoever opens it and knows the policy: the registry in Python, opwheel/load.h in C++.
extern "C" __attribute__((visibility("default"), used)) inline void opwheel_set_huge_pages(bool is_on) {
  opwheel::detail::huge_pages::is_on.store(is_on, std::memory_order_relaxed);
}
