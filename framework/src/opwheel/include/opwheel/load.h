// For programs without Python: opens the schema library and the backends' libraries, which register their operators
// with the PyTorch that the program is linked against. It needs nothing but the dynamic loader.
//
//     opwheel::load({"cpu"});                      // finds libmuladd_schema.so and libmuladd_cpu.so
//     opwheel::load({"/opt/ops/libmuladd_cpu.so"});  // the schema library is looked for in that folder, too
//
// `muladd config --libs` prints the files that a program ships.
#pragma once

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <optional>
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

inline constexpr const char* kSchemaLibrary = "libmuladd_schema.so";

// Where a library that is given by name may be, besides the folders of those given by path.
inline std::vector<Path> default_folders() {
  std::vector<Path> folders;
  if (const char* variable = getenv("MULADD_LIBRARY_PATH")) {
    std::string list = std::string(variable) + ':';
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

inline bool is_path(const std::string& library) {
  return library.find('/') != std::string::npos || Path(library).extension() == ".so";
}

inline Path find_library(const std::string& file, const std::vector<Path>& folders) {
  std::string searched;
  for (const Path& folder : folders) {
    std::error_code unreadable;
    if (std::filesystem::exists(folder / file, unreadable)) return folder / file;
    searched += (searched.empty() ? "" : ", ") + folder.string();
  }
  throw LoadError("muladd: there is no " + file + " in " + searched +
                  ". Copy the files that `muladd config --libs` prints next to the program, name their folder in "
                  "MULADD_LIBRARY_PATH, or pass the path");
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

inline void* open_library(const Path& path) {
  std::error_code missing;
  if (!std::filesystem::exists(path, missing)) throw LoadError("muladd: there is no file " + path.string());
  // A second copy of the schema library would define every operator twice, which ends the process; one of a backend
  // would replace kernels that are in use.
  if (const auto open = find_open(path.filename()); open && !std::filesystem::equivalent(*open, path, missing)) {
    throw LoadError("muladd: " + path.string() + " cannot be opened, because " + open->string() +
                    " is in this process already; load only one of them");
  }
  // RTLD_GLOBAL: a compiled model may call the C functions of a backend directly (docs/deployment.md).
  if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return handle;
  const std::string reason = dlerror();
  const bool no_torch = reason.find("libtorch") != std::string::npos || reason.find("aoti_torch") != std::string::npos;
  throw LoadError("muladd: " + path.string() + " cannot be opened: " + reason +
                  (no_torch ? ". It needs PyTorch >= 2.10 in the process: link the program against torch_cpu with "
                              "-Wl,--no-as-needed"
                            : ""));
}

}  // namespace detail

// Opens the schema library, then `libraries` in the order given. A name such as "cpu" stands for libmuladd_cpu.so, in
// MULADD_LIBRARY_PATH, next to the program or in ../lib; what has a slash or ends in .so is a path. What is open
// already stays open. With no library, the operators exist and every call says that it has no kernel.
inline void load(const std::vector<std::string>& libraries) {
  static std::mutex mutex;
  const std::lock_guard<std::mutex> lock(mutex);

  std::vector<detail::Path> folders;
  for (const std::string& library : libraries) {
    if (detail::is_path(library)) folders.push_back(std::filesystem::absolute(library).parent_path());
  }
  for (detail::Path& folder : detail::default_folders()) folders.push_back(std::move(folder));

  std::vector<detail::Path> schemas, backends;
  for (const std::string& library : libraries) {
    const bool given = detail::is_path(library);
    detail::Path path =
        given ? std::filesystem::absolute(library) : detail::find_library("libmuladd_" + library + ".so", folders);
    (path.filename() == detail::kSchemaLibrary ? schemas : backends).push_back(std::move(path));
  }
  if (schemas.empty()) {
    const std::optional<detail::Path> open = detail::find_open(detail::kSchemaLibrary);
    schemas.push_back(open ? *open : detail::find_library(detail::kSchemaLibrary, folders));
  }

  for (const detail::Path& schema : schemas) {
    if (dlsym(detail::open_library(schema), "muladd_schemas") == nullptr) {
      throw LoadError("muladd: " + schema.string() + " is not muladd-core's schema library; reinstall muladd-core");
    }
  }
  for (const detail::Path& backend : backends) detail::open_library(backend);
}

}  // namespace opwheel
