// Loads libraries from several threads at once, in a program that may or may not have PyTorch: no_torch LIBRARY...
#include <cstdio>
#include <thread>
#include <vector>

#include "opwheel/load.h"

int main(int argc, char** argv) {
  std::vector<std::string> messages(4);
  std::vector<std::thread> threads;
  for (std::string& message : messages) {
    threads.emplace_back([&] {
      try {
        opwheel::load("muladd", {argv + 1, argv + argc});
      } catch (const opwheel::LoadError& error) {
        message = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& message : messages) {
    if (!message.empty()) return std::fprintf(stderr, "%s\n", message.c_str()), 2;
  }
}
