/* tilewright.runtime._native: the C runtime as Python sees it.
 *
 * Plain functions on ints; pool.py and what stands above it make objects of them.  Pools are known
 * by handles, not addresses, so that a stale one is an error and not a crash.
 */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "tilewright_runtime.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* ---- pools by handle: read and changed with the GIL held ------------------------------------ */

enum { MAX_POOLS = 256 };

typedef struct open_pool {
  tw_pool *pool;  /* NULL: a free entry */
  int64_t handle; /* never used twice */
  int64_t calls;  /* running now; the last one frees a pool that was destroyed meanwhile */
  bool destroyed;
} open_pool;

static open_pool pools[MAX_POOLS];
static int64_t last_handle;

static open_pool *find_pool(int64_t handle) {
  for (int i = 0; i < MAX_POOLS; i++) {
    if (pools[i].pool != NULL && pools[i].handle == handle && !pools[i].destroyed) return &pools[i];
  }
  PyErr_Format(PyExc_ValueError, "no thread pool has the handle %lld: was it closed?",
               (long long)handle);
  return NULL;
}

/* Frees the pool when it is destroyed and nothing runs on it.  Joining its threads can take a while
 * on a busy machine, so other Python threads may run meanwhile. */
static void free_if_unused(open_pool *entry) {
  if (!entry->destroyed || entry->calls > 0) return;
  tw_pool *pool = entry->pool;
  *entry = (open_pool){0};
  Py_BEGIN_ALLOW_THREADS
  tw_pool_destroy(pool);
  Py_END_ALLOW_THREADS
}

/* ---- arguments ----------------------------------------------------------------------------- */

static bool check_count(const char *name, Py_ssize_t given, Py_ssize_t wanted) {
  if (given == wanted) return true;
  PyErr_Format(PyExc_TypeError, "%s takes %zd arguments, not %zd", name, wanted, given);
  return false;
}

/* An argument's name for errors; index >= 0 says which item of it. */
typedef struct label {
  const char *name;
  Py_ssize_t index;
} label;

#define NAME(name) ((label){name, -1})

static PyObject *show(label what) {
  return what.index < 0 ? PyUnicode_FromString(what.name)
                        : PyUnicode_FromFormat("%s[%zd]", what.name, what.index);
}

/* Sets an error of this kind: the name, then the problem, whose format takes the value. */
static bool refuse(PyObject *kind, label what, const char *problem, const void *value) {
  PyObject *shown = show(what), *why = PyUnicode_FromFormat(problem, value);
  if (shown != NULL && why != NULL) PyErr_Format(kind, "%U %U", shown, why);
  Py_XDECREF(shown);
  Py_XDECREF(why);
  return false;
}

static bool check_int(PyObject *value, label what) {
  if (PyLong_Check(value)) return true;
  return refuse(PyExc_TypeError, what, "must be an int, not %s", Py_TYPE(value)->tp_name);
}

static bool as_int64(PyObject *value, label what, int64_t *out) {
  if (!check_int(value, what)) return false;
  int overflow;
  *out = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return true;
  return refuse(PyExc_OverflowError, what, "does not fit in 64 bits: %R", value);
}

static bool as_address(PyObject *value, label what, void **out) {
  if (!check_int(value, what)) return false;
  size_t address = PyLong_AsSize_t(value);
  if (address == (size_t)-1 && PyErr_Occurred()) {
    PyErr_Clear();
    return refuse(PyExc_OverflowError, what, "is not an address: %R", value);
  }
  *out = (void *)address;
  return true;
}

/* ---- pools --------------------------------------------------------------------------------- */

static PyObject *pool_create(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  int64_t threads;
  if (!check_count("pool_create(threads)", count, 1)) return NULL;
  if (!as_int64(args[0], NAME("threads"), &threads)) return NULL;
  if (threads < 1 || threads > TW_MAX_THREADS) {
    return PyErr_Format(PyExc_ValueError, "a thread pool has 1 to %d threads, not %lld",
                        TW_MAX_THREADS, (long long)threads);
  }
  int i = 0;
  while (i < MAX_POOLS && pools[i].pool != NULL) i++;
  if (i == MAX_POOLS) {
    return PyErr_Format(PyExc_RuntimeError, "%d thread pools are open: close some, or share them",
                        MAX_POOLS);
  }
  tw_pool *pool = tw_pool_create(threads);
  if (pool == NULL) {
    return PyErr_Format(PyExc_MemoryError, "could not start a pool of %lld threads: %s",
                        (long long)threads, strerror(errno));
  }
  pools[i] = (open_pool){.pool = pool, .handle = ++last_handle};
  return PyLong_FromLongLong(last_handle);
}

/* The one argument of the functions below: a pool's handle. */
static open_pool *pool_argument(const char *name, PyObject *const *args, Py_ssize_t count) {
  int64_t handle;
  if (!check_count(name, count, 1)) return NULL;
  if (!as_int64(args[0], NAME("handle"), &handle)) return NULL;
  return find_pool(handle);
}

static PyObject *pool_destroy(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  open_pool *entry = pool_argument("pool_destroy(handle)", args, count);
  if (entry == NULL) return NULL;
  entry->destroyed = true;
  free_if_unused(entry);
  Py_RETURN_NONE;
}

static PyObject *pool_threads(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  open_pool *entry = pool_argument("pool_threads(handle)", args, count);
  return entry == NULL ? NULL : PyLong_FromLongLong(tw_pool_threads(entry->pool));
}

static PyObject *pool_address(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  open_pool *entry = pool_argument("pool_address(handle)", args, count);
  return entry == NULL ? NULL : PyLong_FromVoidPtr(entry->pool);
}

static PyObject *addresses(PyObject *module, PyObject *unused) {
  (void)module;
  (void)unused;
  return Py_BuildValue("{s:K,s:K,s:K}",
                       "tw_parallel", (unsigned long long)(uintptr_t)tw_parallel,
                       "tw_pool_threads", (unsigned long long)(uintptr_t)tw_pool_threads,
                       "tw_now", (unsigned long long)(uintptr_t)tw_now);
}

/* ---- memory -------------------------------------------------------------------------------- */

static bool size_argument(PyObject *value, int64_t *bytes) {
  if (!as_int64(value, NAME("bytes"), bytes)) return false;
  if (*bytes >= 0) return true;
  PyErr_Format(PyExc_ValueError, "bytes must not be negative: %lld", (long long)*bytes);
  return false;
}

static PyObject *allocate(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  int64_t bytes;
  if (!check_count("allocate(bytes)", count, 1) || !size_argument(args[0], &bytes)) return NULL;
  void *memory = tw_allocate((size_t)bytes);
  if (memory != NULL) return PyLong_FromVoidPtr(memory);
  return PyErr_Format(PyExc_MemoryError, "could not allocate %lld bytes (%lld MiB) of memory",
                      (long long)bytes, (long long)(bytes >> 20));
}

static PyObject *release(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  void *memory;
  int64_t bytes;
  if (!check_count("release(address, bytes)", count, 2)) return NULL;
  if (!as_address(args[0], NAME("address"), &memory)) return NULL;
  if (!size_argument(args[1], &bytes)) return NULL;
  if (memory != NULL) tw_release(memory, (size_t)bytes);
  Py_RETURN_NONE;
}

/* ---- calls --------------------------------------------------------------------------------- */

/* A list or tuple of ints as an array: `few` if they fit there, else from the heap.  Free it with
 * free_words.  Addresses and 64-bit ints are both words. */
enum { FEW = 64 };

typedef union word {
  void *address;
  int64_t number;
} word;

_Static_assert(sizeof(word) == sizeof(void *) && sizeof(word) == sizeof(int64_t),
               "arrays of words are read as arrays of addresses, and of numbers");

static void free_words(word *words, const word *few) {
  if (words != few) PyMem_Free(words);
}

static word *as_words(PyObject *value, const char *what, bool addresses, word *few) {
  if (!PyList_Check(value) && !PyTuple_Check(value)) {
    refuse(PyExc_TypeError, NAME(what), "must be a list or tuple of ints, not %s",
           Py_TYPE(value)->tp_name);
    return NULL;
  }
  Py_ssize_t count = PySequence_Fast_GET_SIZE(value);
  PyObject **items = PySequence_Fast_ITEMS(value);
  word *words = count <= FEW ? few : PyMem_New(word, count);
  if (words == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    label item = {what, i};
    bool ok = addresses ? as_address(items[i], item, &words[i].address)
                        : as_int64(items[i], item, &words[i].number);
    if (!ok) {
      free_words(words, few);
      return NULL;
    }
  }
  return words;
}

/* Runs the model without the GIL.  The pool, if any, outlives the call: see open_pool.calls. */
static int32_t enter_model(tw_entry entry, tw_call *call, open_pool *pool) {
  int32_t result;
  if (pool != NULL) {
    call->pool = pool->pool;
    pool->calls++;
  }
  Py_BEGIN_ALLOW_THREADS
  result = entry(call);
  Py_END_ALLOW_THREADS
  if (pool != NULL) {
    pool->calls--;
    free_if_unused(pool);
  }
  return result;
}

static PyObject *call(PyObject *module, PyObject *const *args, Py_ssize_t count) {
  (void)module;
  if (!check_count("call(entry, memories, dims, pool, host_call, host, times)", count, 7)) {
    return NULL;
  }
  void *entry, *host_call, *host, *times;
  int64_t handle;
  if (!as_address(args[0], NAME("entry"), &entry) || !as_int64(args[3], NAME("pool"), &handle) ||
      !as_address(args[4], NAME("host_call"), &host_call) ||
      !as_address(args[5], NAME("host"), &host) || !as_address(args[6], NAME("times"), &times)) {
    return NULL;
  }
  if (entry == NULL) return PyErr_Format(PyExc_ValueError, "entry is 0: there is no code there");
  open_pool *pool = handle == 0 ? NULL : find_pool(handle);
  if (handle != 0 && pool == NULL) return NULL;
  word few_memories[FEW], few_dims[FEW];
  word *memories = as_words(args[1], "memories", true, few_memories);
  if (memories == NULL) return NULL;
  word *dims = as_words(args[2], "dims", false, few_dims);
  PyObject *result = NULL;
  if (dims != NULL) {
    tw_call arguments = {.memories = &memories->address, .dims = &dims->number, .host = host,
                         .times = times};
    memcpy(&arguments.host_call, &host_call, sizeof host_call); /* data to function pointer */
    tw_entry model;
    memcpy(&model, &entry, sizeof entry);
    result = PyLong_FromLong(enter_model(model, &arguments, pool));
    free_words(dims, few_dims);
  }
  free_words(memories, few_memories);
  return result;
}

/* ---- the module ---------------------------------------------------------------------------- */

#define FAST(function) (PyCFunction)(void (*)(void))(function), METH_FASTCALL

static PyMethodDef functions[] = {
    {"pool_create", FAST(pool_create),
     "pool_create(threads) -> handle: start a pool; the calling thread is one of its threads."},
    {"pool_destroy", FAST(pool_destroy),
     "pool_destroy(handle): stop a pool, at once or when the last call that runs on it ends."},
    {"pool_threads", FAST(pool_threads), "pool_threads(handle) -> int"},
    {"pool_address", FAST(pool_address),
     "pool_address(handle) -> int: its tw_pool, valid until the pool is destroyed."},
    {"addresses", addresses, METH_NOARGS,
     "addresses() -> dict: where the functions that compiled models call are, by name."},
    {"allocate", FAST(allocate),
     "allocate(bytes) -> address: divisible by 64, from 4 MiB on by 2 MiB; contents not set."},
    {"release", FAST(release), "release(address, bytes): give back what allocate(bytes) gave."},
    {"call", FAST(call),
     "call(entry, memories, dims, pool, host_call, host, times) -> int: call a compiled model.\n\n"
     "All are ints, memories and dims lists or tuples of ints; the fields of tw_call in\n"
     "tilewright_runtime.h say what they mean. pool is a handle; 0 stands for none of a thing.\n"
     "The GIL is released; 0 is success, n > 0 that step n - 1 failed."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "tilewright.runtime._native",
    .m_doc = "The C runtime of compiled models.", .m_size = -1, .m_methods = functions};

PyMODINIT_FUNC PyInit__native(void) { return PyModule_Create(&definition); }
