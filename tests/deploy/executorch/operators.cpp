// Opens libraries in the order given and prints muladd's operators in the runtime's registry: operators LIBRARY...
#include <dlfcn.h>
#include <executorch/runtime/kernel/operator_registry.h>

#include <cstdio>
#include <set>
#include <string>

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (dlopen(argv[i], RTLD_NOW | RTLD_LOCAL) == nullptr) return std::fprintf(stderr, "%s\n", dlerror()), 1;
  }
  std::multiset<std::string> names;
  for (const auto& kernel : executorch::runtime::get_registered_kernels()) {
    if (std::string(kernel.name_).find("muladd::") == 0) names.insert(kernel.name_);
  }
  for (const std::string& name : names) std::puts(name.c_str());
}
