// An assertion that fails in a kernel is an error of the device, and not the end of the process.
#undef assert
#define assert(condition) ((condition) ? static_cast<void>(0) : simulated_cuda::fail_assertion(#condition))
