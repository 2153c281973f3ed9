// A backend's library for the fault tests: its kernels do nothing but say which file they are in.
//   KEY                where it registers                     ALSO_AT, ALSO  a second key and the operator there
//   OPERATORS          a comma-separated list; the whole list if left out
//   BEFORE, AFTER      a statement in a static initialiser, before or after the registration
//   DEFINE             registers the namespace itself instead
#include "opwheel/kernels.h"

#include <dlfcn.h>
#include <torch/csrc/stable/library.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "muladd/operators.h"

OPWHEEL_DECLARE_OPERATORS(muladd, MULADD_OPERATORS)

extern "C" int gone();

namespace {

void kernel(StableIValue*, uint64_t, uint64_t) {
  Dl_info info;
  dladdr(reinterpret_cast<void*>(&kernel), &info);
  throw std::runtime_error(std::string("called the kernel of ") + info.dli_fname);
}

template <class... Operators>
[[maybe_unused]] void implement_all(torch::stable::detail::StableLibrary& library,
                                    opwheel::OperatorList<Operators...>) {
  (library.impl(std::string(Operators::schema.name).c_str(), &kernel), ...);
}

#ifdef BEFORE
const int before = (BEFORE, 0);
#endif

}  // namespace

#ifdef KEY
STABLE_TORCH_LIBRARY_IMPL(muladd, KEY, m) {
#ifdef OPERATORS
  for (const char* name : {OPERATORS}) m.impl(name, &kernel);
#else
  implement_all(m, muladd::op::Operators());
#endif
}
#endif

#ifdef ALSO
STABLE_TORCH_LIBRARY_IMPL(muladd, ALSO_AT, m) { m.impl(ALSO, &kernel); }
#endif

#ifdef DEFINE
STABLE_TORCH_LIBRARY(muladd, m) { m.def("muladd(Tensor a, Tensor b, float c) -> Tensor"); }
#endif

#ifdef DEFINE_MORE
STABLE_TORCH_LIBRARY_FRAGMENT(muladd, m) { m.def("fused_everything(Tensor a) -> Tensor"); }
#endif
