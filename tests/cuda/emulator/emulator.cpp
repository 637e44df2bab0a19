/* SPDX-License-Identifier: LGPL-2.1-or-later */

#include "emulator.h"

#include <stdarg.h>
#include <sys/mman.h>

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define POISON(at, size) __asan_poison_memory_region (at, size)
#define UNPOISON(at, size) __asan_unpoison_memory_region (at, size)
#else
#define POISON(at, size)
#define UNPOISON(at, size)
#endif

namespace lychee_emulator {

static const size_t stack_size = 256 << 10;
static const size_t guard_size = 64;
static const unsigned char guard_byte = 0xa5, fresh_byte = 0xff;
static const unsigned most_threads = 1024;
static const size_t most_shared = 227 << 10, most_static = 48 << 10;

static std::atomic<unsigned> seed;
static std::atomic<unsigned long> n_launches, n_blocks, n_switches, n_allocated;

void
fault (const char *format, ...)
{
  va_list args;

  fflush (stdout);
  fputs ("CUDA emulator: ", stderr);
  va_start (args, format);
  vfprintf (stderr, format, args);
  va_end (args);
  fputc ('\n', stderr);
  abort ();
}

/* Fibres. On x86-64 the switch is our own: a warp operation needs 64 of them, and swapcontext ()
 * asks the kernel for the signal mask each time. */

struct Stack {
  void *pointer;
  char *memory;
#if defined(__SANITIZE_ADDRESS__)
  void *fake;
  const void *bottom;
  size_t size;
#endif
};

extern "C" void lychee_emulator_switch (void **save, void *load);
extern "C" void lychee_emulator_begin ();

#if defined(__x86_64__)
asm(".text\n"
    ".type lychee_emulator_switch, @function\n"
    "lychee_emulator_switch:\n"
    "  pushq %rbp\n  pushq %rbx\n  pushq %r12\n  pushq %r13\n  pushq %r14\n  pushq %r15\n"
    "  movq %rsp, (%rdi)\n"
    "  movq %rsi, %rsp\n"
    "  popq %r15\n  popq %r14\n  popq %r13\n  popq %r12\n  popq %rbx\n  popq %rbp\n"
    "  ret\n"
    ".size lychee_emulator_switch, . - lychee_emulator_switch\n");
static const size_t n_saved = 6;
#elif defined(__aarch64__)
asm(".text\n"
    ".type lychee_emulator_switch, %function\n"
    "lychee_emulator_switch:\n"
    "  sub sp, sp, #160\n"
    "  stp x19, x20, [sp]\n  stp x21, x22, [sp, #16]\n  stp x23, x24, [sp, #32]\n"
    "  stp x25, x26, [sp, #48]\n  stp x27, x28, [sp, #64]\n  stp x29, x30, [sp, #80]\n"
    "  stp d8, d9, [sp, #96]\n  stp d10, d11, [sp, #112]\n"
    "  stp d12, d13, [sp, #128]\n  stp d14, d15, [sp, #144]\n"
    "  mov x9, sp\n  str x9, [x0]\n  mov sp, x1\n"
    "  ldp x19, x20, [sp]\n  ldp x21, x22, [sp, #16]\n  ldp x23, x24, [sp, #32]\n"
    "  ldp x25, x26, [sp, #48]\n  ldp x27, x28, [sp, #64]\n  ldp x29, x30, [sp, #80]\n"
    "  ldp d8, d9, [sp, #96]\n  ldp d10, d11, [sp, #112]\n"
    "  ldp d12, d13, [sp, #128]\n  ldp d14, d15, [sp, #144]\n"
    "  add sp, sp, #160\n"
    "  ret\n"
    ".size lychee_emulator_switch, . - lychee_emulator_switch\n");
#else
#error "the CUDA emulator knows how to switch stacks on x86-64 and aarch64"
#endif

enum State { READY, AT_BARRIER, IN_WARP, RETURNED };

struct Copy {
  void *to;
  const void *from; /* NULL: zeros */
  int size;
};

struct Fibre {
  std::vector<std::vector<Copy> > copies; /* by group, the last one open */
  Stack stack;
  Thread thread;
  State state;
  const char *where;
  unsigned number;
};

struct Warp {
  unsigned arrived, mask, parity;
  size_t size;
  const char *where;
  alignas (16) unsigned char given[2][32 * 64];
};

struct SharedArray {
  size_t size;
  unsigned char *at;
};

/* What runs the blocks of one launch, in one thread of the process. */
struct Machine {
  Stack main = {};
  std::vector<Fibre> fibres;
  std::vector<Warp> warps;
  std::vector<unsigned> ready;
  Fibre *current = nullptr;
  const Launch *launch = nullptr;
  unsigned n_threads = 0, n_waiting = 0, n_returned = 0;
  int or_value = 0, or_result = 0;
  const char *barrier = nullptr;
  std::map<std::string, SharedArray> arrays;
  std::vector<unsigned char> arena;
  size_t arena_used = 0, shared_used = 0;
  uint64_t random = 0;

  ~Machine ()
  {
    for (Fibre &f : fibres)
      munmap (f.stack.memory, stack_size);
  }
};

/* In the thread's own block, for it is looked at whenever a kernel asks which thread it is. */
static __thread Machine *machine __attribute__ ((tls_model ("initial-exec")));

static Machine &
get_machine ()
{
  static thread_local Machine own;

  machine = &own;
  return own;
}

static unsigned
random_below (Machine &m, unsigned n)
{
  m.random ^= m.random << 13;
  m.random ^= m.random >> 7;
  m.random ^= m.random << 17;
  return (unsigned) ((m.random >> 32) * n >> 32);
}

static void
switch_stacks (Stack &from, Stack &to, bool for_good)
{
  n_switches.fetch_add (1, std::memory_order_relaxed);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber (for_good ? nullptr : &from.fake, to.bottom, to.size);
#endif
  lychee_emulator_switch (&from.pointer, to.pointer);
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber (from.fake, nullptr, nullptr);
#endif
}

/* Goes on with one of those that are ready: with the block's caller, where none is. Straight from
 * one fibre to the next, for this is most of what the emulator does. */
static void
go_on (Stack &from, bool for_good)
{
  Machine &m = *machine;
  unsigned n = (unsigned) m.ready.size ();

  if (n == 0) {
    switch_stacks (from, m.main, for_good);
    return;
  }
  unsigned pick = m.random ? random_below (m, n) : n - 1;
  std::swap (m.ready[pick], m.ready[n - 1]);
  m.current = &m.fibres[m.ready[n - 1]];
  m.ready.pop_back ();
  if (&m.current->stack != &from)
    switch_stacks (from, m.current->stack, for_good);
}

static void
give_way ()
{
  go_on (machine->current->stack, false);
}

extern "C" void
lychee_emulator_begin ()
{
#if defined(__SANITIZE_ADDRESS__)
  const void *bottom;
  size_t size;

  __sanitizer_finish_switch_fiber (nullptr, &bottom, &size);
  if (!machine->main.bottom) { /* the first one of all begins from there */
    machine->main.bottom = bottom;
    machine->main.size = size;
  }
#endif
  machine->launch->body ();
  machine->current->state = RETURNED;
  machine->n_returned++;
  go_on (machine->current->stack, true);
  abort ();
}

static void
prepare_fibre (Fibre &f)
{
  if (!f.stack.memory) {
    f.stack.memory = (char *) mmap (nullptr, stack_size, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f.stack.memory == MAP_FAILED)
      fault ("no memory for the stack of a thread");
  }
  UNPOISON (f.stack.memory, stack_size);
#if defined(__SANITIZE_ADDRESS__)
  f.stack.bottom = f.stack.memory;
  f.stack.size = stack_size;
#endif
  void **top = (void **) (f.stack.memory + stack_size - 64);
#if defined(__x86_64__)
  *--top = nullptr; /* so that the stack is aligned as after a call */
  *--top = (void *) lychee_emulator_begin;
  top -= n_saved;
  memset (top, 0, n_saved * sizeof *top);
#else
  top -= 20;
  memset (top, 0, 160);
  top[11] = (void *) lychee_emulator_begin; /* x30 */
#endif
  f.stack.pointer = top;
  f.state = READY;
  f.where = nullptr;
}

const Thread &
thread ()
{
  return machine->current->thread;
}

static bool
same (const char *a, const char *b)
{
  return a == b || strcmp (a, b) == 0;
}

static void
release_barrier (Machine &m)
{
  m.or_result = m.or_value;
  m.or_value = 0;
  m.n_waiting = 0;
  for (unsigned i = 0; i < m.n_threads; i++) {
    m.fibres[i].state = READY;
    m.ready.push_back (i);
  }
}

int
sync_block_or (const char *where, int value)
{
  Machine &m = *machine;

  if (m.n_waiting > 0 && !same (m.barrier, where))
    fault (
        "a thread waits at the barrier in %s while others wait at the one in %s", where, m.barrier);
  m.barrier = where;
  m.or_value |= value != 0;
  m.current->state = AT_BARRIER;
  m.current->where = where;
  if (++m.n_waiting == m.n_threads)
    release_barrier (m);
  give_way ();
  return m.or_result;
}

void
sync_block (const char *where)
{
  sync_block_or (where, 0);
}

const void *
exchange (const char *where, unsigned mask, const void *data, size_t size)
{
  Machine &m = *machine;
  Fibre &f = *m.current;
  Warp &w = m.warps[f.number / 32];
  unsigned lane = f.number % 32;
  unsigned char *given = w.given[w.parity];

  if (!(mask >> lane & 1))
    fault ("%s: lane %u is not in its own mask %08x", where, lane, mask);
  if (size > 64)
    fault ("%s: %zu bytes in a warp operation", where, size);
  if (w.arrived == 0) {
    w.where = where;
    w.mask = mask;
    w.size = size;
  } else if (!same (w.where, where) || w.mask != mask || w.size != size) {
    fault ("lane %u is at the warp operation in %s (mask %08x) while others of its warp are at the "
           "one in %s (mask %08x)",
        lane, where, mask, w.where, w.mask);
  }
  memcpy (given + lane * size, data, size);
  w.arrived |= 1u << lane;
  f.state = IN_WARP;
  f.where = where;
  if (w.arrived == mask) {
    w.arrived = 0;
    w.parity ^= 1;
    for (unsigned i = 0; i < 32; i++)
      if (mask >> i & 1) {
        m.fibres[f.number - lane + i].state = READY;
        m.ready.push_back (f.number - lane + i);
      }
  }
  give_way ();
  return given;
}

void
copy_async (void *to, const void *from, int size, bool there, const char *where)
{
  if (size != 4 && size != 8 && size != 16)
    fault ("%s: an asynchronous copy of %d bytes", where, size);
  check_aligned (to, (size_t) size, where);
  check_aligned (from, (size_t) size, where);
  machine->current->copies.back ().push_back (Copy{ to, there ? from : nullptr, size });
}

void
commit_copies ()
{
  machine->current->copies.emplace_back ();
}

void
wait_copies (unsigned groups_left)
{
  auto &copies = machine->current->copies;

  while (copies.size () > groups_left + 1) {
    for (const Copy &c : copies.front ())
      if (c.from)
        memcpy (c.to, c.from, (size_t) c.size);
      else
        memset (c.to, 0, (size_t) c.size);
    copies.erase (copies.begin ());
  }
}

void *
dynamic_shared ()
{
  return shared ("dynamic", machine->launch->dynamic_size, 16);
}

void *
shared (const char *where, size_t size, size_t align)
{
  Machine &m = *machine;
  auto found = m.arrays.find (where);

  if (found != m.arrays.end ()) {
    if (found->second.size != size)
      fault ("%s: shared memory of %zu bytes here, and of %zu for another thread", where, size,
          found->second.size);
    return found->second.at;
  }
  size_t at = (m.arena_used + 15) / 16 * 16;
  size_t end = at + (size + 15) / 16 * 16 + guard_size;
  m.shared_used += strcmp (where, "dynamic") == 0 ? 0 : (size + align - 1) / align * align;
  if (m.shared_used > most_static)
    fault ("%s: more than %zu bytes of static shared memory", where, most_static);
  if (end > m.arena.size ())
    fault ("%s: too much shared memory", where);
  UNPOISON (m.arena.data () + at, size);
  memset (m.arena.data () + at, fresh_byte, size);
  m.arena_used = end;
  m.arrays[where] = SharedArray{ size, m.arena.data () + at };
  return m.arena.data () + at;
}

static void
begin_shared (Machine &m)
{
  m.arrays.clear ();
  m.arena_used = guard_size;
  m.shared_used = 0;
  m.arena.resize (most_shared + most_static + 64 * guard_size);
  UNPOISON (m.arena.data (), m.arena.size ());
  memset (m.arena.data (), guard_byte, m.arena.size ());
  POISON (m.arena.data (), m.arena.size ());
}

static bool
intact (const unsigned char *from, const unsigned char *to)
{
  for (; from < to; from++)
    if (*from != guard_byte)
      return false;
  return true;
}

static void
end_shared (Machine &m)
{
  /* Known only now; a device would not have begun. */
  if (m.shared_used + m.launch->dynamic_size > m.launch->most_shared)
    fault ("%zu bytes of static and %zu of dynamic shared memory, and the kernel may have %zu",
        m.shared_used, m.launch->dynamic_size, m.launch->most_shared);
  UNPOISON (m.arena.data (), m.arena.size ());
  for (auto &array : m.arrays) {
    unsigned char *end = array.second.at + array.second.size;

    if (!intact (end, end + guard_size / 2) ||
        !intact (array.second.at - guard_size / 2, array.second.at))
      fault (
          "%s: a write beyond shared memory of %zu bytes", array.first.c_str (), array.second.size);
  }
}

static void
describe_deadlock (Machine &m)
{
  for (unsigned i = 0; i < m.n_threads; i++) {
    Fibre &f = m.fibres[i];

    if (f.state == AT_BARRIER || f.state == IN_WARP)
      fault ("thread %u waits at the %s in %s for ever: %u threads have returned, %u wait at a "
             "barrier",
          i, f.state == AT_BARRIER ? "barrier" : "warp operation", f.where, m.n_returned,
          m.n_waiting);
  }
}

static void
run_block (Machine &m, Dim3 block)
{
  const Launch &l = *m.launch;
  Dim3 dim = l.block;

  m.n_threads = dim.x * dim.y * dim.z;
  m.n_waiting = m.n_returned = 0;
  m.or_value = 0;
  if (m.fibres.size () < m.n_threads)
    m.fibres.resize (most_threads);
  m.warps.resize (most_threads / 32);
  for (Warp &w : m.warps)
    w.arrived = w.parity = 0;
  m.ready.clear ();
  begin_shared (m);
  for (unsigned i = 0; i < m.n_threads; i++) {
    Fibre &f = m.fibres[i];

    f.number = i;
    f.copies.assign (1, {});
    f.thread =
        Thread{ Dim3 (i % dim.x, i / dim.x % dim.y, i / (dim.x * dim.y)), block, dim, l.grid };
    prepare_fibre (f);
    m.ready.push_back (m.n_threads - 1 - i);
  }
  go_on (m.main, false);
  m.current = nullptr;
  if (m.n_returned != m.n_threads)
    describe_deadlock (m);
  end_shared (m);
  n_blocks.fetch_add (1, std::memory_order_relaxed);
}

static std::mutex lock; /* of what follows */
static std::map<const void *, size_t> allowed;

struct Block {
  size_t size;
  int device;
};
typedef std::map<const unsigned char *, Block> Blocks; /* by their begin */
static Blocks device_memory, freed_memory;
static size_t memory_limit, memory_used;

/* Smaller devices than the one that is emulated: $LYCHEE_EMULATED_SHARED bytes. */
size_t
get_block_shared ()
{
  const char *variable = getenv ("LYCHEE_EMULATED_SHARED");

  return variable ? strtoull (variable, nullptr, 10) : most_shared;
}

static void
run (const Launch &l)
{
  Machine &m = get_machine ();
  unsigned n = l.grid.x * l.grid.y * l.grid.z;
  std::vector<unsigned> order (n);

  l.check ();
  m.launch = &l;
  m.random = seed ? seed * 0x9e3779b97f4a7c15u + n_launches : 0;
  for (unsigned i = 0; i < n; i++)
    order[i] = i;
  for (unsigned i = n; m.random && i > 1; i--)
    std::swap (order[i - 1], order[random_below (m, i)]);
  for (unsigned i : order)
    run_block (m, Dim3 (i % l.grid.x, i / l.grid.x % l.grid.y, i / (l.grid.x * l.grid.y)));
  n_launches++;
  m.launch = nullptr;
  check_guards ();
}

int
allow_shared (const void *kernel, size_t size)
{
  std::lock_guard<std::mutex> guard (lock);

  if (size > get_block_shared ())
    return fail (cudaErrorInvalidValue);
  allowed[kernel] = size;
  return cudaSuccess;
}

int
launch (Launch l, void *stream)
{
  size_t n = (size_t) l.block.x * l.block.y * l.block.z, most = most_static;

  l.most_shared = most_static;
  {
    std::lock_guard<std::mutex> guard (lock);
    auto found = allowed.find (l.kernel);

    if (found != allowed.end ()) {
      most = found->second;
      l.most_shared = get_block_shared ();
    }
  }
  if (n == 0 || n > most_threads || l.block.z > 64 || l.grid.x == 0 || l.grid.y == 0 ||
      l.grid.z == 0 || l.grid.x > 0x7fffffff || l.grid.y > 65535 || l.grid.z > 65535 ||
      l.dynamic_size > most)
    return fail (cudaErrorInvalidConfiguration);
  return enqueue (stream, [l] { run (l); });
}

void
set_seed (unsigned to)
{
  seed = to;
}

Counts
counts ()
{
  return Counts{ n_launches, n_blocks, n_switches, n_allocated };
}

/* Memory */

void
set_memory_limit (size_t bytes)
{
  memory_limit = bytes;
}

static size_t
get_limit ()
{
  const char *variable = getenv ("LYCHEE_EMULATED_MEMORY");

  return memory_limit ? memory_limit : variable ? strtoull (variable, nullptr, 10) : 0;
}

/* The block that @at lies in or, with @slack, right behind. With the lock. */
static Blocks::iterator
find_block (Blocks &blocks, const void *at, size_t slack)
{
  const unsigned char *byte = (const unsigned char *) at;
  auto found = blocks.upper_bound (byte);

  if (found == blocks.begin ())
    return blocks.end ();
  --found;
  return byte < found->first + found->second.size + slack ? found : blocks.end ();
}

void *
device_malloc (size_t size, int device)
{
  std::lock_guard<std::mutex> guard (lock);
  size_t limit = get_limit ();
  unsigned char *whole, *at;

  if (limit && memory_used + size > limit)
    return nullptr;
  whole = (unsigned char *) aligned_alloc (256, (size + 255) / 256 * 256 + 512);
  if (!whole)
    return nullptr;
  at = whole + 256;
  memset (whole, guard_byte, 256);
  memset (at, fresh_byte, size);
  memset (at + size, guard_byte, 256);
  POISON (whole, 256);
  POISON (at + size, 256);
  memory_used += size;
  n_allocated++;
  for (auto old = freed_memory.lower_bound (at);
       old != freed_memory.end () && old->first <= at + size;)
    old = freed_memory.erase (old);
  device_memory[at] = Block{ size, device };
  return at;
}

__attribute__ ((no_sanitize ("address"))) static bool
intact_memory (const unsigned char *at, size_t size)
{
  for (size_t i = 0; i < guard_size; i++)
    if (at[size + i] != guard_byte || at[-1 - (ptrdiff_t) i] != guard_byte)
      return false;
  return true;
}

void
device_free (void *memory)
{
  std::lock_guard<std::mutex> guard (lock);
  unsigned char *at = (unsigned char *) memory;
  auto found = device_memory.find (at);

  if (found == device_memory.end ())
    fault ("%p is freed, and is no device memory", memory);
  Block block = found->second;
  if (!intact_memory (at, block.size))
    fault ("a write beyond device memory of %zu bytes", block.size);
  UNPOISON (at - 256, block.size + 512);
  memset (at, fresh_byte, block.size);
  memory_used -= block.size;
  free (at - 256);
  device_memory.erase (found);
  freed_memory[at] = block;
  n_allocated--;
}

void
check_guards ()
{
  std::lock_guard<std::mutex> guard (lock);

  for (auto &memory : device_memory)
    if (!intact_memory (memory.first, memory.second.size))
      fault ("a write beyond device memory of %zu bytes", memory.second.size);
}

bool
is_device_memory (const void *at)
{
  std::lock_guard<std::mutex> guard (lock);

  return find_block (device_memory, at, 0) != device_memory.end ();
}

void
check_device_memory (const void *at, size_t size, int device, const char *where)
{
  std::lock_guard<std::mutex> guard (lock);
  auto found = find_block (device_memory, at, 1);

  if (size == 0)
    return;
  if (found == device_memory.end ())
    fault ("%s: %p is no device memory", where, at);
  if ((const unsigned char *) at + size > found->first + found->second.size)
    fault ("%s: %zu bytes from byte %td on of device memory of %zu bytes", where, size,
        (const unsigned char *) at - found->first, found->second.size);
  if (found->second.device != device)
    fault ("%s: memory of device %d on device %d", where, found->second.device, device);
}

void
check_parameter (const void *value, size_t size, int device)
{
#if defined(__x86_64__)
  std::lock_guard<std::mutex> guard (lock);

  for (size_t i = 0; i + 8 <= size; i += 8) {
    unsigned char mapped;
    uintptr_t x;
    void *at;

    memcpy (&x, (const char *) value + i, 8);
    if (x < 0x500000000000 || x >> 47 != 0) /* nothing of a program's lies there */
      continue;
    at = (void *) x;
    /* Behind its end may lie where an array of no elements begins. */
    auto found = find_block (device_memory, at, 256);
    if (found != device_memory.end ()) {
      if (found->second.device != device)
        fault ("a parameter is the address of memory of device %d, and the kernel runs on %d",
            found->second.device, device);
    } else if (find_block (freed_memory, at, 0) != freed_memory.end ()) {
      fault ("a parameter is the address of memory that was freed");
    } else if (mincore ((void *) (x & ~(uintptr_t) 4095), 4096, &mapped) == 0) {
      fault ("a parameter is the address %p of the host's memory", at);
    }
  }
#endif
}

void
check_aligned (const void *pointer, size_t align, const char *where)
{
  if ((uintptr_t) pointer % align != 0)
    fault ("%s: %p is not a multiple of %zu", where, pointer, align);
}

size_t
memory_free (size_t *total)
{
  std::lock_guard<std::mutex> guard (lock);
  size_t limit = get_limit ();

  *total = limit ? limit : (size_t) 16 << 30;
  return *total - std::min (*total, memory_used);
}

}
