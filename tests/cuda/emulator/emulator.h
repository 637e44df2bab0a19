/* SPDX-License-Identifier: LGPL-2.1-or-later */
#pragma once

/* Runs CUDA kernels on the processor, for tests: .cu files are compiled as C++ against this
 * folder's cuda_runtime.h in place of CUDA's.
 *
 * Blocks run one after the other, in a shuffled order; the threads of a block are fibres, which
 * give way at barriers and warp operations only and go on in a shuffled order. Shared and device
 * memory is filled with a pattern that is NaN as a floating-point number and -1 as a whole one, and
 * has guard bytes around it (which AddressSanitizer knows of).
 *
 * What a device would leave undefined ends the process with a message: threads that wait at
 * different barriers or warp operations, or for one that has returned; a vector access that is not
 * aligned; a write beyond an allocation; more shared memory than was asked for; a launch that no
 * device takes; a parameter that is an address of the host's, of memory that was freed, or of
 * another device's; a copy that goes beyond an allocation, or whose source changes before it is
 * made; a call that is forbidden while a stream captures. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <functional>
#include <utility>

namespace lychee_emulator {

struct Dim3 {
  unsigned x, y, z;
  Dim3 (unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x (x_), y (y_), z (z_)
  {}
};

/* What the running thread sees of itself. */
struct Thread {
  Dim3 index, block_index, block_dim, grid_dim;
};

const Thread &thread ();

[[noreturn]] void fault (const char *format, ...) __attribute__ ((format (printf, 1, 2)));

/* Barriers and warp operations; @where is a string of the place in the source. */
void sync_block (const char *where);
int sync_block_or (const char *where, int value);
/* Every lane of @mask gives @size bytes; returns what all lanes gave, [32][size]. Valid until the
 * warp's next operation. */
const void *exchange (const char *where, unsigned mask, const void *data, size_t size);

/* cp.async: copies that are there when they were waited for, and not before. @size: 4, 8 or 16.
 * !@there: zeros. */
void copy_async (void *to, const void *from, int size, bool there, const char *where);
void commit_copies ();
void wait_copies (unsigned groups_left);

/* Shared memory of the block: the same for all threads that ask in the same place. */
void *shared (const char *where, size_t size, size_t align);
void *dynamic_shared ();

struct Launch {
  std::function<void ()> body, check;
  const void *kernel;
  Dim3 grid, block;
  size_t dynamic_size;
  size_t most_shared; /* what the kernel may have, with what is static */
  int device;
};
/* Work waits in its stream until somebody waits for that, as late as a device could possibly do it;
 * while a stream captures it goes into the graph. Without a stream it is done at once. @begin
 * (nullable) is called when the work goes into a stream, of a graph each time. */
int launch (Launch launch, void *stream);
int enqueue (void *stream, std::function<void ()> work, std::function<void ()> begin = nullptr);
/* As the runtime: what fails is also what cudaGetLastError () returns next in this thread. */
int fail (int code);
int get_device ();
int allow_shared (const void *kernel, size_t size);

/* The order of blocks and threads; 0: as they are numbered. */
void set_seed (unsigned seed);
/* Counts since the process began. */
struct Counts {
  unsigned long launches, blocks, switches, allocated;
};
Counts counts ();

/* Device memory, with guards. */
void *device_malloc (size_t size, int device);
void device_free (void *memory);
/* Looks at the guards of all device memory. */
void check_guards ();
/* Allocations beyond so many bytes in all fail; 0: no limit. $LYCHEE_EMULATED_MEMORY does the same.
 */
void set_memory_limit (size_t bytes);

void check_aligned (const void *pointer, size_t align, const char *where);
/* That memory is one allocation's, and of @device. */
void check_device_memory (const void *at, size_t size, int device, const char *where);
bool is_device_memory (const void *at);
/* That no 8 bytes of a kernel's parameter are an address of anything but @device's memory. */
void check_parameter (const void *value, size_t size, int device);

template <typename T>
void
check_parameter (T value, int device)
{
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  if (alignof (T) >= 8) {
    __builtin_clear_padding (&value);
    check_parameter (&value, sizeof value, device);
  }
#endif
#endif
}

template <typename T>
const T *
exchange (const char *where, unsigned mask, const T &value)
{
  return static_cast<const T *> (exchange (where, mask, &value, sizeof value));
}

template <typename T>
T
shuffle (const char *where, unsigned mask, T value, unsigned from)
{
  const T *all = exchange (where, mask, value);

  from &= 31;
  if (!(mask >> from & 1))
    fault ("%s: a shuffle reads lane %u, which is not in the mask %08x", where, from, mask);
  return all[from];
}

template <typename... Params, typename... Args>
int
launch_kernel (void (*kernel) (Params...), Dim3 grid, Dim3 block, size_t size, void *stream,
    const Args &...args)
{
  int device = get_device (), status;
  std::function<void ()> body = [kernel, args...] { kernel (args...); };
  std::function<void ()> check = [device, args...] { (check_parameter (args, device), ...); };

  status = launch (
      Launch{ body, check, reinterpret_cast<const void *> (kernel), grid, block, size, 0, device },
      stream);
  return status;
}

}
