/* counts.cpp -- counts the work that a GPU would have for kernels that run by their PTX (ptx.cpp).
** MOTH_EMULATED_COUNTS names the file that a process appends its counts to when it ends. The PTX
** must have been translated with counting, as .ci/ptx does if the variable is set.
**
** The file has a line for each kernel: number of launches, number of threads, number of threads
** whose instructions were counted, and PTX instructions of one such thread. The lines below are the
** kernel's memory accesses, by line of the translated source: number of requests (of a warp), bytes
** for each request, and the 32-byte sectors they touch, or, for shared memory, the number of cycles
** by bank conflicts; `least` is the number for contiguous access.
**
** Three blocks of each launch are counted, in the usual order of threads. The k-th access of a
** thread at a line and the k-th accesses of the other threads of its warp are one request. */
#include "emulated.h"

#include <stdio.h>
#include <stdlib.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

struct request { /* of a warp */
  std::set<uint64_t> sectors;         /* of 32 bytes, in device memory */
  std::map<unsigned, std::set<uint64_t>> words; /* the words in each bank of shared memory */
  unsigned bytes = 0;
};

struct line_access { /* an instruction's accesses, over all warps */
  unsigned long long requests = 0, bytes = 0, sectors = 0, turns = 0, least = 0;
  bool shared = false;
};

struct tally {
  unsigned long long launches = 0, threads = 0, looked = 0, instructions = 0;
  std::map<int, line_access> lines;
};

static const char *const path = getenv("MOTH_EMULATED_COUNTS");
static std::map<std::string, tally> *tallies;
static unsigned long long instructions;

typedef std::tuple<unsigned, int, unsigned> which; /* warp, line, index of the access at this line
                                                   */
static std::map<which, request> under_way;
static std::map<std::pair<unsigned, int>, unsigned> times; /* accesses of a thread at a line */
static tally *of_block; /* of a counted block, or NULL */
static unsigned long long before; /* the thread's number of instructions before */

static unsigned thread_number() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}

static void close_block() {
  tally *to = of_block;
  if (!to) return;
  to->instructions += instructions - before;
  of_block = NULL;
  for (const auto &each : under_way) {
    line_access &a = to->lines[std::get<1>(each.first)];
    const request &r = each.second;
    a.requests++;
    a.bytes += r.bytes;
    a.sectors += r.sectors.size();
    size_t turns = 0;
    for (const auto &bank : r.words) turns = std::max(turns, bank.second.size());
    if (!r.words.empty()) a.shared = true;
    a.turns += turns;
    a.least += r.words.empty() ? (r.bytes + 31) / 32 : (r.bytes + 127) / 128;
  }
  under_way.clear();
  times.clear();
}

static void write_all() {
  FILE *file = fopen(path, "a");
  close_block();
  if (!file) return;
  for (const auto &of : *tallies) {
    const tally &t = of.second;
    fprintf(file, "%s launches %llu threads %llu counted %llu instructions %.1f\n",
            of.first.c_str(), t.launches, t.threads, t.looked,
            (double)t.instructions / (double)(t.looked ? t.looked : 1));
    for (const auto &line : t.lines) {
      const line_access &a = line.second;
      fprintf(file, "  %s line %d requests %llu bytes %.1f %s %.2f least %.2f\n",
              a.shared ? "shared" : "global", line.first, a.requests,
              (double)a.bytes / (double)a.requests, a.shared ? "turns" : "sectors",
              (double)(a.shared ? a.turns : a.sectors) / (double)a.requests,
              (double)a.least / (double)a.requests);
    }
  }
  fclose(file);
}

/* A thread begins; the threads of a block run in order. */
void moth_counts_begin(const moth_ptx_kernel *kernel) {
  static tally *last;
  if (!path) return;
  if (!tallies) tallies = new std::map<std::string, tally>, atexit(write_all);
  if (thread_number() == 0) {
    const unsigned long long wide = gridDim.x, all = wide * gridDim.y * gridDim.z;
    const unsigned long long block =
      blockIdx.x + wide * (blockIdx.y + (unsigned long long)gridDim.y * blockIdx.z);
    close_block();
    last = &(*tallies)[kernel->file + std::string(":") + kernel->name];
    last->launches += block == 0;
    before = instructions;
    if (block == 0 || block == all / 2 || block == all / 3) of_block = last;
  }
  last->threads++;
  if (of_block) of_block->looked++;
}

void moth_counts_touch(const char *, int line, uint64_t at, unsigned n, const char *block_shared) {
  const unsigned thread = thread_number();
  if (!of_block) return;
  const bool shared = at - (uint64_t)block_shared < moth_emulated_most_shared();
  if (!shared && moth_emulated_where((const void *)at) < 0) return; /* kernel arguments, or a stack
                                                                    */
  request &r = under_way[which(thread / 32, line, times[{thread, line}]++)];
  r.bytes += n;
  if (shared)
    for (uint64_t word = at / 4; word <= (at + n - 1) / 4; word++) r.words[word % 32].insert(word);
  else
    for (uint64_t s = at / 32; s <= (at + n - 1) / 32; s++) r.sectors.insert(s);
}

unsigned long long *moth_counts_instructions() { return &instructions; }
