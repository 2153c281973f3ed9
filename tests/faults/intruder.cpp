// Registers what the variable INTRUDER names as soon as it is opened: "add@CPU *@AutocastIPU", where * is a fallback
// for every operator. Its kernels do nothing but say whose they are. The stable ABI has no fallbacks.
#undef TORCH_STABLE_ONLY
#undef TORCH_TARGET_VERSION
#include <torch/library.h>

#include <cstdlib>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

void kernel(const c10::OperatorHandle&, c10::Stack*) { throw std::runtime_error("called the intruder's kernel"); }

std::vector<std::unique_ptr<torch::Library>> libraries() {
  std::vector<std::unique_ptr<torch::Library>> result;
  std::istringstream targets(std::getenv("INTRUDER"));
  for (std::string target; targets >> target;) {
    const size_t at = target.find('@');
    const std::string op = target.substr(0, at), key = target.substr(at + 1), ns = op == "*" ? "_" : "muladd";
    try {
      const c10::DispatchKey parsed = c10::parseDispatchKey(key);
      result.push_back(std::make_unique<torch::Library>(torch::Library::IMPL, ns, parsed, __FILE__, __LINE__));
      auto function = torch::CppFunction::makeFromBoxedFunction<&kernel>();
      if (op == "*") {
        result.back()->fallback(std::move(function));
      } else {
        result.back()->impl(op.c_str(), std::move(function));
      }
    } catch (const std::exception&) {  // PyTorch allows no kernels there
    }
  }
  return result;
}

[[maybe_unused]] const auto registered = libraries();

}  // namespace
