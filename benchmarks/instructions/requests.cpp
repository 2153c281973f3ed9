// What callgrind is asked for from inside the program that it watches.
#include <callgrind.h>

extern "C" {

int under_valgrind() { return RUNNING_ON_VALGRIND; }

// Instrumented from here on: everything before runs at a tenth of its speed instead of a fiftieth.
void instrument() { CALLGRIND_START_INSTRUMENTATION; }

void begin() { CALLGRIND_ZERO_STATS; }

void end(const char* name) { CALLGRIND_DUMP_STATS_AT(name); }

}  // extern "C"
