// Compiles a SYCL source with the DPC++ front end that the SYCL runtime has inside (its kernel compiler extension). The
// image is SPIR-V, one module after another: front_end SOURCE IMAGE [OPTIONS...]
#include <algorithm>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <sycl/sycl.hpp>
#include <vector>

namespace compiler = sycl::ext::oneapi::experimental;

int main(int count, char** arguments) try {
  const std::vector<std::string> words(arguments + 1, arguments + count);
  std::ifstream file(words.at(0));
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const std::vector<std::string> options(words.begin() + 2, words.end());

  const sycl::queue queue;
  auto source = compiler::create_kernel_bundle_from_source(queue.get_context(), compiler::source_language::sycl, text);
  const auto bundle =
      compiler::build(source, std::vector{queue.get_device()}, compiler::properties{compiler::build_options{options}});
  std::vector<std::string> modules;
  for (const auto& image : bundle) {
    const auto content = image.ext_oneapi_get_backend_content();
    modules.emplace_back(reinterpret_cast<const char*>(content.data()), content.size());
    if (!modules.back().starts_with("\x03\x02\x23\x07")) throw std::runtime_error("a module is not SPIR-V");
  }
  std::sort(modules.begin(), modules.end());  // the same bytes from any build
  std::ofstream output(words.at(1), std::ios::binary);
  for (const std::string& module : modules) output << module;
} catch (const std::exception& error) {
  std::cerr << error.what() << '\n';
  return 1;
}
