// The blocks of a cluster run at the same time: each has a thread of the host, so that it has shared memory of its own,
// and they take turns. A block runs as far as barriers let it, in every other cluster the last one first: what a
// missing barrier lets it write too early into another one's memory shows there. The memory of a block that may not
// have begun, or may have ended, is reached by nobody.
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <semaphore>
#include <thread>

#include "blocks.h"
#include "stream.h"

namespace simulated_cuda {
namespace {

constexpr unsigned kMostBlocks = 8;  // without a special permission

// Fewer where SIMULATED_CUDA_CLUSTER says so, as a small part of a device has it; 0: the device does not tell.
unsigned largest_cluster() {
  const char* const given = std::getenv("SIMULATED_CUDA_CLUSTER");
  return given == nullptr ? kMostBlocks : std::min(static_cast<unsigned>(std::atoi(given)), kMostBlocks);
}

struct Range {
  const char *begin, *end;
  bool has(const void* address) const { return begin <= address && address < end; }
};

// Where this thread has the library's variables of threads, among them shared memory; `one` is one of them.
Range thread_locals_with(const char* one) {
  Range found{one, one};
  const auto look = [&](const dl_phdr_info& library) {
    const auto* const headers = library.dlpi_phdr;
    const auto* const tls =
        std::find_if(headers, headers + library.dlpi_phnum, [](const auto& header) { return header.p_type == PT_TLS; });
    if (library.dlpi_tls_data == nullptr || tls == headers + library.dlpi_phnum) return;
    const char* const begin = static_cast<const char*>(library.dlpi_tls_data);
    if (const Range range{begin, begin + tls->p_memsz}; range.has(one)) found = range;
  };
  dl_iterate_phdr(
      [](dl_phdr_info* library, std::size_t, void* data) {
        (*static_cast<decltype(look)*>(data))(*library);
        return 0;
      },
      const_cast<void*>(static_cast<const void*>(&look)));
  return found;
}

struct Grid {
  unsigned clusters, blocks, threads;
  const std::function<const char*(unsigned)>& begin;
  const std::function<void(unsigned)>& thread;
};

// A block, and the thread that runs it.
struct Seat {
  std::optional<Block> block;
  Range shared{};
  std::binary_semaphore turn{0};
};

// Threads that run the clusters of one stream, and stay.
class Crew {
 public:
  void run(const Grid& grid);
  void arrive();
  void* address_in(const void* mine, unsigned rank);
  unsigned count() const { return grid_->blocks; }

 private:
  Seat seats_[kMostBlocks];
  unsigned hired_ = 0;
  const Grid* grid_ = nullptr;
  unsigned cluster_ = 0, arrived_ = 0;
  std::binary_semaphore returned_{0};

  void serve(unsigned rank);
  bool run_cluster();
};

thread_local Crew* crew = nullptr;
thread_local unsigned rank_of_thread = 0;

void Crew::serve(unsigned rank) {
  Seat& seat = seats_[rank];
  crew = this;
  rank_of_thread = rank;
  for (;;) {
    seat.turn.acquire();
    if (!seat.block->has_begun()) seat.shared = thread_locals_with(grid_->begin(cluster_ * count() + rank));
    seat.block->advance();
    returned_.release();
  }
}

void Crew::run(const Grid& grid) {
  grid_ = &grid;
  for (; hired_ < count(); ++hired_) std::thread(&Crew::serve, this, hired_).detach();
  for (cluster_ = 0; cluster_ < grid.clusters && !is_broken(); ++cluster_) {
    if (!run_cluster()) return;
  }
}

bool Crew::run_cluster() {
  const bool last_first = cluster_ % 2 == 1;
  arrived_ = 0;
  for (unsigned rank = 0; rank < count(); ++rank) seats_[rank].block.emplace(grid_->threads, last_first, grid_->thread);
  for (bool has_moved = true; has_moved;) {
    has_moved = false;
    for (unsigned i = 0; i < count(); ++i) {
      Seat& seat = seats_[last_first ? count() - 1 - i : i];
      if (!seat.block->can_advance()) continue;
      has_moved = true;
      seat.turn.release();
      returned_.acquire();
      if (seat.block->mistake() != nullptr) return report(seat.block->mistake()), false;
    }
  }
  const bool all_done = std::all_of(seats_, seats_ + count(), [](const Seat& seat) { return seat.block->is_done(); });
  if (!all_done) report("some threads of a cluster wait for others that never come");
  return all_done;
}

void Crew::arrive() {
  if (++arrived_ < count() * grid_->threads) return seats_[rank_of_thread].block->wait_for_cluster();
  arrived_ = 0;
  for (unsigned rank = 0; rank < count(); ++rank) seats_[rank].block->release();
}

void* Crew::address_in(const void* mine, unsigned rank) {
  const Seat& me = seats_[rank_of_thread];
  Block& block = this_block();
  if (rank >= count()) block.give_up("a block is named that the cluster has not");
  if (!me.shared.has(mine)) block.give_up("an address is taken for shared memory that is something else");
  const Seat& other = seats_[rank];
  if (!other.block->has_begun()) block.give_up("the shared memory of a block is reached that may not have begun");
  if (other.block->is_done()) block.give_up("the shared memory of a block is reached that may have ended");
  return const_cast<char*>(other.shared.begin + (static_cast<const char*>(mine) - me.shared.begin));
}

}  // namespace

cudaError_t check_clusters(cudaStream_t stream, dim3 grid, unsigned blocks) {
  if (kModels[stream_of(stream).device].capability[0] < 9) return result(cudaErrorNotSupported);
  const bool is_along_x = grid.y == 1 && grid.z == 1;
  const bool fits = blocks > 0 && blocks <= largest_cluster() && grid.x % blocks == 0;
  return is_along_x && fits ? cudaSuccess : result(cudaErrorInvalidClusterSize);
}

cudaError_t ask_largest_cluster(int* blocks) {
  if (kModels[current_device()].capability[0] < 9 || largest_cluster() == 0) return result(cudaErrorNotSupported);
  *blocks = static_cast<int>(largest_cluster());
  return cudaSuccess;
}

void run_clusters(unsigned clusters, unsigned blocks, unsigned threads,
                  const std::function<const char*(unsigned)>& begin, const std::function<void(unsigned)>& thread) {
  static thread_local Crew& of_stream = *new Crew;
  of_stream.run({clusters, blocks, threads, begin, thread});
}

// A block that was launched without clusters is one of its own.
unsigned rank_in_cluster() { return rank_of_thread; }
unsigned blocks_of_cluster() { return crew == nullptr ? 1 : crew->count(); }
void wait_for_cluster() { crew == nullptr ? this_block().wait() : crew->arrive(); }
void* address_in_cluster(const void* mine, unsigned rank) {
  if (crew == nullptr) this_block().give_up("shared memory of a cluster is reached without one");
  return crew->address_in(mine, rank);
}

}  // namespace simulated_cuda
