// Loads an operator library into a program without Python: opens the schema library and the backends' libraries, which
// register their operators with the PyTorch that the program is linked against. It needs nothing but the dynamic
// loader.
//
//     opwheel::load("waves", {"cpu"});                      // finds libwaves_schema.so and libwaves_cpu.so
//     opwheel::load("waves", {"/opt/ops/libwaves_cpu.so"});  // the schema library is looked for in that folder, too
//     opwheel::load("waves", {"cpu", "autograd"});          // for training: gradients, from the operators' formulas
//     opwheel::load("waves", {"cpu", "memory"});            // keeps the memory of large results for the next ones
//
// `waves config --libs` prints the files that a program ships; with --autograd and --memory, those for gradients and
// for memory as well.
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace opwheel {

// A library is missing, damaged or there twice; what() says which, and what to do.
class LoadError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

namespace detail {

using Path = std::filesystem::path;

// The name of a library's environment variable: WAVES_LIBRARY_PATH, with further folders.
inline std::string variable(std::string library, const std::string& name) {
  for (char& letter : library) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return library + "_" + name;
}
inline std::string path_variable(const std::string& library) { return variable(library, "LIBRARY_PATH"); }

// Whether a library's variable has the value `on` or "never"; nothing if it is not set.
inline std::optional<bool> is_on(const std::string& library, const std::string& name, const std::string& on) {
  const char* setting = getenv(variable(library, name).c_str());
  if (setting == nullptr) return std::nullopt;
  const std::string value = setting;
  if (value == on || value == "never") return value == on;
  throw LoadError(variable(library, name) + "=" + value + " is neither " + on +
                  " nor never: set it to one of them, or unset it");
}

// WAVES_HUGE_PAGES=never, WAVES_RESULT_CACHE=never: as the registry does it in Python. The cache is in the native
// library for memory, and there if that is.
inline void set_memory_of_results(const std::string& library, void* handle) {
  const std::optional<bool> huge_pages = is_on(library, "HUGE_PAGES", "advise");
  void* const set_huge_pages = dlsym(handle, "opwheel_set_huge_pages");
  if (huge_pages && set_huge_pages != nullptr) reinterpret_cast<void (*)(bool)>(set_huge_pages)(*huge_pages);

  const bool cache = is_on(library, "RESULT_CACHE", "keep").value_or(true);
  void* const allocate = cache ? dlsym(RTLD_DEFAULT, "opwheel_cache_empty_strided") : nullptr;
  void* const set_cache = dlsym(handle, "opwheel_set_result_cache");
  // Where the native library is not, or Python has opened it for itself, what was set before stays.
  if (set_cache != nullptr && (allocate != nullptr || !cache)) reinterpret_cast<void (*)(void*)>(set_cache)(allocate);
}

// The schema of an operator, "waves::norm.out", of a library that was made with opwheel: its schema library says it.
// Null for all others.
inline const char* schema_of_library(const char* name) {
  const std::string text = name;
  const std::size_t colons = text.find("::");
  void* const function = dlsym(RTLD_DEFAULT, (text.substr(0, colons) + "_schemas").c_str());
  if (function == nullptr) return nullptr;
  const std::string start = text.substr(colons + 2) + "(";
  for (auto schema = reinterpret_cast<const char* const* (*)()>(function)(); *schema != nullptr; ++schema) {
    if (std::string(*schema).rfind(start, 0) == 0) return *schema;
  }
  return nullptr;
}

// What its kernels need to call other operators (opwheel/call.h). The native Autograd library knows the schemas of all.
inline void set_dispatcher(void* handle) {
  void* const set = dlsym(handle, "opwheel_set_dispatcher");
  if (set == nullptr) return;
  void* const schema = dlsym(RTLD_DEFAULT, "opwheel_dispatcher_schema");
  void* const call = dlsym(RTLD_DEFAULT, "opwheel_dispatcher_call");
  void* const last_error = dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace");
  reinterpret_cast<void (*)(void*, void*, void*)>(set)(
      schema != nullptr ? schema : reinterpret_cast<void*>(&schema_of_library), call, last_error);
}

// Where a shared library that is given by name may be, besides the folders of those given by path.
inline std::vector<Path> default_folders(const std::string& library) {
  std::vector<Path> folders;
  if (const char* paths = getenv(path_variable(library).c_str())) {
    std::string list = std::string(paths) + ':';
    for (std::size_t begin = 0, end; (end = list.find(':', begin)) != std::string::npos; begin = end + 1) {
      if (end > begin) folders.emplace_back(list.substr(begin, end - begin));
    }
  }
  std::error_code no_proc;
  const Path program = std::filesystem::read_symlink("/proc/self/exe", no_proc);
  if (!no_proc) {
    folders.push_back(program.parent_path());
    folders.push_back(program.parent_path().parent_path() / "lib");
  }
  return folders;
}

inline bool is_path(const std::string& name) {
  return name.find('/') != std::string::npos || Path(name).extension() == ".so";
}

inline Path find_file(const std::string& library, const std::string& file, const std::vector<Path>& folders) {
  std::string searched;
  for (const Path& folder : folders) {
    std::error_code unreadable;
    if (std::filesystem::is_regular_file(folder / file, unreadable)) return folder / file;
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  throw LoadError(library + ": there is no " + file + " in " + searched + ". Copy the files that `" + library +
                  " config --libs` prints next to the program, name their folder in " + path_variable(library) +
                  ", or pass the path");
}

// The file of that name that is part of the process already.
inline std::optional<Path> find_open(const Path& file_name) {
  struct Search {
    Path file_name;
    std::optional<Path> found;
  } search{file_name, std::nullopt};
  const auto look_at = [](dl_phdr_info* object, std::size_t, void* context) {
    auto& wanted = *static_cast<Search*>(context);
    const Path path = object->dlpi_name;
    if (path.filename() == wanted.file_name) wanted.found = path;
    return 0;
  };
  dl_iterate_phdr(look_at, &search);
  return search.found;
}

inline void* open_file(const std::string& library, const Path& path) {
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) {
    throw LoadError(library + ": there is no file " + path.string() + "; pass the path of one that `" + library +
                    " config --libs` prints");
  }
  // A second copy of the schema library would define every operator twice, which ends the process; one of a backend
  // would replace kernels that are in use.
  if (const auto open = find_open(path.filename()); open && !std::filesystem::equivalent(*open, path, missing)) {
    throw LoadError(library + ": " + path.string() + " cannot be opened, because " + open->string() +
                    " is in this process already; load only one of them");
  }
  // RTLD_GLOBAL: a compiled model may call the C functions of a backend directly (docs/deployment.md).
  if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
  const std::string reason = dlerror();
  const bool no_torch = reason.find("libtorch") != std::string::npos || reason.find("aoti_torch") != std::string::npos;
  throw LoadError(library + ": " + path.string() + " cannot be opened: " + reason +
                  (no_torch ? ". It needs PyTorch >= 2.10 in the process: link the program against torch_cpu with "
                              "-Wl,--no-as-needed"
                            : ""));
}

inline bool starts_with(const std::string& text, const std::string& start) { return text.rfind(start, 0) == 0; }

// The file of opwheel's native library for "autograd" or "memory": there is one for each minor release of PyTorch.
inline std::string native_file(const std::string& library, const std::string& name) {
  void* const version = dlsym(RTLD_DEFAULT, "aoti_torch_abi_version");
  if (version == nullptr) {
    throw LoadError(
        library + ": opwheel's library for " + name +
        " needs PyTorch >= 2.10 in the process: link the program against torch_cpu with -Wl,--no-as-needed");
  }
  const std::uint64_t number = reinterpret_cast<std::uint64_t (*)()>(version)();
  return "libopwheel_" + name + '_' + std::to_string(number >> 56) + '_' + std::to_string(number >> 48 & 0xff) + ".so";
}

// Gives the formulas in the schema library to the native Autograd library, once.
inline void register_derivatives(const std::string& library, void* schema, const Path& autograd) {
  static std::set<std::string> registered;
  if (registered.count(library) != 0) return;
  void* const handle = open_file(library, autograd);
  const auto add =
      reinterpret_cast<void* (*)(const char*, char*, std::size_t)>(dlsym(handle, "opwheel_autograd_register"));
  const auto derivatives = reinterpret_cast<const char* (*)()>(dlsym(schema, (library + "_derivatives").c_str()));
  char message[2000] = "its schema library has no derivatives; build its core package with this opwheel";
  if (add == nullptr) {
    throw LoadError(library + ": " + autograd.string() + " is not opwheel's Autograd library; pass the file that `" +
                    library + " config --autograd` prints");
  }
  if (derivatives == nullptr || add(derivatives(), message, sizeof message) == nullptr) {
    throw LoadError(library + ": no gradients: " + message);
  }
  registered.insert(library);
}

}  // namespace detail

// Opens a library's schema library, then `backends` in the order given. A name such as "cpu" stands for
// lib<library>_cpu.so, in <LIBRARY>_LIBRARY_PATH, next to the program or in ../lib; what has a slash or ends in .so is
// a path. What is open already stays open. With no backend, the operators exist and every call says that it has no
// kernel.
//
// "autograd" stands for opwheel's native Autograd library, libopwheel_autograd_2_13.so for PyTorch 2.13. With it the
// operators have gradients wherever their formulas are declared as text; one without is an error in backward. Without
// it PyTorch's backward warns and has no gradients of them. "memory" stands for libopwheel_memory_2_13.so, which keeps
// the memory of large results.
inline void load(const std::string& library, const std::vector<std::string>& backends) {
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  const std::string prefix = "lib" + library + "_", schema_file = prefix + "schema.so";

  std::vector<detail::Path> folders;
  for (const std::string& name : backends) {
    if (detail::is_path(name)) folders.push_back(std::filesystem::absolute(name).parent_path());
  }
  for (detail::Path& folder : detail::default_folders(library)) folders.push_back(std::move(folder));

  std::vector<detail::Path> schemas, files, autograds, memories;
  for (const std::string& name : backends) {
    const bool is_path = detail::is_path(name);
    const bool is_native = name == "autograd" || name == "memory";
    const std::string file = is_native ? detail::native_file(library, name) : prefix + name + ".so";
    detail::Path path = is_path ? std::filesystem::absolute(name) : detail::find_file(library, file, folders);
    const std::string found = path.filename().string();
    (found == schema_file                                 ? schemas
     : detail::starts_with(found, "libopwheel_autograd_") ? autograds
     : detail::starts_with(found, "libopwheel_memory_")   ? memories
                                                          : files)
        .push_back(std::move(path));
  }
  if (schemas.empty()) {
    const std::optional<detail::Path> open = detail::find_open(schema_file);
    schemas.push_back(open ? *open : detail::find_file(library, schema_file, folders));
  }

  void* operators = nullptr;
  for (const detail::Path& schema : schemas) {
    operators = detail::open_file(library, schema);
    if (dlsym(operators, (library + "_schemas").c_str()) == nullptr) {
      throw LoadError(library + ": " + schema.string() + " is not the schema library of " + library +
                      "; reinstall its core package");
    }
  }
  for (const detail::Path& file : autograds) detail::register_derivatives(library, operators, file);
  for (const detail::Path& file : memories) detail::open_file(library, file);
  for (const detail::Path& file : files) {
    void* const handle = detail::open_file(library, file);
    detail::set_memory_of_results(library, handle);
    detail::set_dispatcher(handle);
  }
}

}  // namespace opwheel
