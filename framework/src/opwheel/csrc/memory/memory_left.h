// How much memory a process can have: what the machine, its control groups (containers, jobs) and its own limits say.
#pragma once

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace opwheel {

// Whether somebody has limited this process's address space or data. An allocation of anybody's fails there at once.
inline bool process_is_limited() {
  for (const auto resource : {RLIMIT_AS, RLIMIT_DATA}) {
    rlimit limit{};
    if (getrlimit(resource, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) return true;
  }
  return false;
}

class MemoryLeft {
 public:
  static constexpr uint64_t kUnlimited = std::numeric_limits<uint64_t>::max();

  // The files are below `root`, which is not "" in tests alone.
  explicit MemoryLeft(const std::string& root = "") : meminfo_(root + "/proc/meminfo") {
    std::ifstream file(root + "/proc/self/cgroup");  // lines such as 0::/job and 4:memory:/job
    for (std::string line; std::getline(file, line);) {
      const size_t first = line.find(':'), second = line.find(':', first + 1);
      if (first == std::string::npos || second == std::string::npos) continue;
      const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
      const std::string path = line.substr(second + 1);
      if (controllers == ",,") add_groups(root + "/sys/fs/cgroup", path, kVersion2);
      if (controllers.find(",memory,") != std::string::npos)
        add_groups(root + "/sys/fs/cgroup/memory", path, kVersion1);
    }
  }

  // Bytes that there are in all, used or not.
  uint64_t total() const {
    uint64_t least = in_kilobytes(value_of(meminfo_, "MemTotal:"));
    for (const Group& group : groups_) least = std::min(least, value_of(group.limit, ""));
    return least;
  }

  // Bytes that can still be had without swapping, or before somebody is killed. Files that are cached in memory count:
  // the system drops them. Allocates nothing.
  uint64_t available() const {
    uint64_t least = in_kilobytes(value_of(meminfo_, "MemAvailable:"));
    for (const Group& group : groups_) {
      const uint64_t limit = value_of(group.limit, ""), used = value_of(group.used, "");
      if (limit == kUnlimited || used == kUnlimited) continue;
      const uint64_t cached = value_of(group.statistics, group.cached);
      const uint64_t taken = used - (cached < used ? cached : 0);
      least = std::min(least, limit > taken ? limit - taken : 0);
    }
    return least;
  }

 private:
  struct Version {
    const char *limit, *used, *cached;
  };
  struct Group {
    std::string limit, used, statistics;
    const char* cached;
  };
  static constexpr Version kVersion1{"/memory.limit_in_bytes", "/memory.usage_in_bytes", "\ntotal_inactive_file "};
  static constexpr Version kVersion2{"/memory.max", "/memory.current", "\ninactive_file "};

  // A group and those that it is in. In a container the path may be one that only its host has: the container's own
  // group is at the top then.
  void add_groups(const std::string& top, std::string path, const Version& version) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    for (;; path.erase(path.rfind('/'))) {
      const std::string folder = top + path;
      groups_.push_back({folder + version.limit, folder + version.used, folder + "/memory.stat", version.cached});
      if (path.rfind('/') == std::string::npos) break;
    }
  }

  static uint64_t in_kilobytes(uint64_t value) { return value == kUnlimited ? kUnlimited : value * 1024; }

  // The number behind `key` in a file; kUnlimited if there is none, as in "max".
  static uint64_t value_of(const std::string& path, const char* key) {
    char text[8192];
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) return kUnlimited;
    const ssize_t length = read(file, text, sizeof(text) - 1);
    close(file);
    text[std::max<ssize_t>(length, 0)] = '\0';
    const char* const found = std::strstr(text, key);
    if (found == nullptr) return kUnlimited;
    char* end = nullptr;
    const uint64_t value = std::strtoull(found + std::strlen(key), &end, 10);
    return end == found + std::strlen(key) ? kUnlimited : value;
  }

  std::string meminfo_;
  std::vector<Group> groups_;
};

}  // namespace opwheel
