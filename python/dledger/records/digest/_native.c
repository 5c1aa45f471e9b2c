/* Digests of rows, in one pass over each column: what the modules of dledger.records.digest do with NumPy, number for
   number. The extension is optional; where no compiler is found, NumPy does the work.

   Every argument is a buffer and what is to be read from it. A buffer that is too short, or offsets that lead out of
   one, are a ValueError: nothing is read or written outside of a buffer. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words are read as they lie in memory, which is right on little-endian machines only"
#endif

#define BASE UINT64_C(0x9E3779B97F4A7C15)
#define WORD 8
#define MOST 4096 /* words of the largest block */

static uint64_t weights[MOST];

/* The finalizer of splitmix64. */
static inline uint64_t mix(uint64_t value) {
    value = (value ^ value >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    value = (value ^ value >> 27) * UINT64_C(0x94D049BB133111EB);
    return value ^ value >> 31;
}

/* The upper half in the lower one as well: multiplied by whatever it is, no bit of it is lost. */
static inline uint64_t carried(uint64_t word) { return word ^ word >> 32; }

static inline uint64_t load(const uint8_t *at) {
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* One block of this many words. */
static inline uint64_t folded(const uint8_t *at, size_t words) {
    uint64_t sum = 0;
    for (size_t i = 0; i < words; i++) sum += carried(load(at + i * WORD)) * weights[i];
    return sum;
}

/* length * BASE^(n+1) + block_1 * BASE^n + ... + block_n * BASE + rest, as dledger.records.digest.texts has it. */
static uint64_t hash_of(const uint8_t *data, const uint8_t *at, size_t length) {
    uint64_t found = length, rest = 0;
    size_t words = length / WORD, spare = length % WORD;
    const uint8_t *end = at + length;
    for (; words >= MOST; words -= MOST, at += MOST * WORD) found = found * BASE + folded(at, MOST);
    while (words) {
        size_t size = (size_t)1 << (63 - __builtin_clzll(words)); /* the largest power of 2 in what is left */
        found = found * BASE + folded(at, size);
        at += size * WORD;
        words -= size;
    }
    if (!spare) rest = 0;
    else if (end - data >= WORD) rest = load(end - WORD) >> (64 - 8 * spare); /* several times as fast as the other */
    else memcpy(&rest, at, spare);
    return found * BASE + rest;
}

static int complain(const char *what) {
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

/* Whether so many items of this size, from the first one on, lie in the buffer. */
static int holds(const Py_buffer *buffer, Py_ssize_t first, Py_ssize_t count, Py_ssize_t size) {
    return first >= 0 && count >= 0 && first <= buffer->len / size && count <= buffer->len / size - first;
}

static int64_t bound(const uint8_t *bounds, Py_ssize_t place, int width) {
    if (width == 4) {
        int32_t narrow;
        memcpy(&narrow, bounds + 4 * place, sizeof narrow);
        return narrow;
    }
    return (int64_t)load(bounds + 8 * place);
}

static int hash_all(const Py_buffer *bounds, int width, Py_ssize_t first, const Py_buffer *data, Py_buffer *out) {
    Py_ssize_t count = out->len / WORD;
    if (width != 4 && width != 8) return complain("offsets have 4 or 8 bytes");
    if (!holds(bounds, first, 1, width) || !holds(bounds, first + 1, count, width)) return complain("too few offsets");
    int64_t start = bound(bounds->buf, first, width);
    for (Py_ssize_t row = 0; row < count; row++) {
        int64_t end = bound(bounds->buf, first + row + 1, width);
        if (start < 0 || end < start || end > data->len) return complain("an offset leads out of the values");
        uint64_t found = hash_of(data->buf, (const uint8_t *)data->buf + start, (size_t)(end - start));
        memcpy((uint8_t *)out->buf + row * WORD, &found, sizeof found);
        start = end;
    }
    return 0;
}

static PyObject *hash_bytes(PyObject *self, PyObject *args) {
    Py_buffer bounds, data, out;
    Py_ssize_t first;
    int width, failed;
    if (!PyArg_ParseTuple(args, "y*iny*w*:hash_bytes", &bounds, &width, &first, &data, &out)) return NULL;
    failed = hash_all(&bounds, width, first, &data, &out);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static inline uint64_t cell(const uint8_t *at, int kind) {
    int8_t i1;
    int16_t i2;
    int32_t i4;
    uint16_t u2;
    uint32_t u4;
    switch (kind) {
    case -1: memcpy(&i1, at, 1); return (uint64_t)(int64_t)i1;
    case -2: memcpy(&i2, at, 2); return (uint64_t)(int64_t)i2;
    case -4: memcpy(&i4, at, 4); return (uint64_t)(int64_t)i4;
    case 1: return *at;
    case 2: memcpy(&u2, at, 2); return u2;
    case 4: memcpy(&u4, at, 4); return u4;
    default: return load(at);
    }
}

/* With a kind that is known when it is compiled, the loop has no switch. */
static inline void add_each(
    uint8_t *total, Py_ssize_t count, const uint8_t *values, int kind, const uint8_t *valid, Py_ssize_t bit, uint64_t salt
) {
    uint64_t factor = salt | 1, sum;
    int size = kind < 0 ? -kind : kind;
    for (Py_ssize_t row = 0; row < count; row++, bit++) {
        if (valid && !(valid[bit / 8] >> (bit % 8) & 1)) continue;
        sum = load(total + row * WORD) + carried(cell(values + row * size, kind)) * factor + salt;
        memcpy(total + row * WORD, &sum, sizeof sum);
    }
}

static int add_all(
    Py_buffer *total, const Py_buffer *values, int kind, Py_ssize_t first, const Py_buffer *valid, Py_ssize_t bit, uint64_t salt
) {
    Py_ssize_t count = total->len / WORD;
    if (valid->buf && !(bit >= 0 && bit / 8 <= valid->len && count <= 8 * (valid->len - bit / 8) - bit % 8))
        return complain("too few bits of validity");
    switch (kind) {
#define CASE(KIND, SIZE) \
    case KIND: \
        if (!holds(values, first, count, SIZE)) return complain("too few values"); \
        add_each(total->buf, count, (const uint8_t *)values->buf + first * SIZE, KIND, valid->buf, bit, salt); \
        return 0;
    CASE(1, 1) CASE(-1, 1) CASE(2, 2) CASE(-2, 2) CASE(4, 4) CASE(-4, 4) CASE(8, 8) CASE(-8, 8)
#undef CASE
    default: return complain("values have 1, 2, 4 or 8 bytes");
    }
}

static PyObject *add_cells(PyObject *self, PyObject *args) {
    Py_buffer total, values, valid;
    Py_ssize_t first, bit;
    unsigned long long salt;
    int kind, failed;
    if (!PyArg_ParseTuple(args, "w*y*inz*nK:add_cells", &total, &values, &kind, &first, &valid, &bit, &salt)) return NULL;
    failed = add_all(&total, &values, kind, first, &valid, bit, salt);
    PyBuffer_Release(&total);
    PyBuffer_Release(&values);
    PyBuffer_Release(&valid);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *sum_mixed(PyObject *self, PyObject *args) {
    Py_buffer total;
    uint64_t sum = 0;
    if (!PyArg_ParseTuple(args, "y*:sum_mixed", &total)) return NULL;
    for (Py_ssize_t at = 0; at + WORD <= total.len; at += WORD) sum += mix(load((const uint8_t *)total.buf + at));
    PyBuffer_Release(&total);
    return PyLong_FromUnsignedLongLong(sum);
}

static PyMethodDef methods[] = {
    {"hash_bytes", hash_bytes, METH_VARARGS, "Write the hash of each value of a binary or string array."},
    {"add_cells", add_cells, METH_VARARGS, "Add a column's cells to the sums of its rows."},
    {"sum_mixed", sum_mixed, METH_VARARGS, "The sum of the mixed words, modulo 2^64."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "dledger.records.digest._native", "Digests of rows, in one pass over each column.", 0, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void) {
    for (size_t i = 0; i < MOST; i++) weights[i] = mix(i + 1) | 1;
    return PyModule_Create(&module);
}
