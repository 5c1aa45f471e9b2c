/* Digests of rows, in one pass over each column: what the modules values and texts of dledger.records.digest do with
   Arrow's functions, number for number. The extension is optional; where no compiler is found, these do the work.

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
#define NO_VALUE UINT64_C(0x2545F4914F6CDD1D) /* the hash of a null in a list or a map */
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

static inline void store(const Py_buffer *out, Py_ssize_t place, uint64_t word) {
    memcpy((uint8_t *)out->buf + place * WORD, &word, sizeof word);
}

static inline uint64_t weight(uint64_t place) { return place < MOST ? weights[place] : mix(place + 1) | 1; }

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

static inline int is_valid(const uint8_t *valid, Py_ssize_t bit) { return !valid || valid[bit / 8] >> (bit % 8) & 1; }

/* Whether there is a bit for each of so many rows, from this one on; no bits at all say that all rows are valid. */
static int has_bits(const Py_buffer *valid, Py_ssize_t bit, Py_ssize_t count) {
    return !valid->buf || (bit >= 0 && bit / 8 <= valid->len && count <= 8 * (valid->len - bit / 8) - bit % 8);
}

static inline uint64_t cell_of(uint64_t word, uint64_t salt) { return carried(word) * (salt | 1) + salt; }

/* The hashes of values of bytes: written, or added to what stands in out as cells with this salt. */
static int hash_all(
    Py_buffer *out, const Py_buffer *bounds, int width, Py_ssize_t first, const Py_buffer *data, const uint8_t *valid,
    Py_ssize_t bit, const uint64_t *salt
) {
    Py_ssize_t count = out->len / WORD;
    if (width != 4 && width != 8) return complain("offsets have 4 or 8 bytes");
    if (!holds(bounds, first, 1, width) || !holds(bounds, first + 1, count, width)) return complain("too few offsets");
    int64_t start = bound(bounds->buf, first, width);
    if (!valid) bit = 0; /* it is any number where there are no bits */
    for (Py_ssize_t row = 0; row < count; row++) {
        int64_t end = bound(bounds->buf, first + row + 1, width);
        if (start < 0 || end < start || end > data->len) return complain("an offset leads out of the values");
        if (is_valid(valid, bit + row)) {
            uint64_t found = hash_of(data->buf, (const uint8_t *)data->buf + start, (size_t)(end - start));
            store(out, row, salt ? load((uint8_t *)out->buf + row * WORD) + cell_of(found, *salt) : found);
        }
        start = end;
    }
    return 0;
}

static PyObject *hash_bytes(PyObject *self, PyObject *args) {
    Py_buffer bounds, data, out;
    Py_ssize_t first;
    int width, failed;
    if (!PyArg_ParseTuple(args, "y*iny*w*:hash_bytes", &bounds, &width, &first, &data, &out)) return NULL;
    failed = hash_all(&out, &bounds, width, first, &data, NULL, 0, NULL);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&data);
    PyBuffer_Release(&out);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *add_bytes(PyObject *self, PyObject *args) {
    Py_buffer total, bounds, data, valid;
    Py_ssize_t first, bit;
    unsigned long long given;
    int width, failed;
    if (!PyArg_ParseTuple(args, "w*y*iny*z*nK:add_bytes", &total, &bounds, &width, &first, &data, &valid, &bit, &given))
        return NULL;
    uint64_t salt = given;
    if (has_bits(&valid, bit, total.len / WORD))
        failed = hash_all(&total, &bounds, width, first, &data, valid.buf, bit, &salt);
    else failed = complain("too few bits of validity");
    PyBuffer_Release(&total);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&data);
    PyBuffer_Release(&valid);
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
    uint64_t sum;
    int size = kind < 0 ? -kind : kind;
    for (Py_ssize_t row = 0; row < count; row++, bit++) {
        if (!is_valid(valid, bit)) continue;
        sum = load(total + row * WORD) + cell_of(cell(values + row * size, kind), salt);
        memcpy(total + row * WORD, &sum, sizeof sum);
    }
}

static inline void widen_each(
    uint8_t *out, Py_ssize_t count, const uint8_t *values, int kind, const uint8_t *valid, Py_ssize_t bit
) {
    uint64_t word;
    int size = kind < 0 ? -kind : kind;
    for (Py_ssize_t row = 0; row < count; row++, bit++) {
        word = is_valid(valid, bit) ? cell(values + row * size, kind) : NO_VALUE;
        memcpy(out + row * WORD, &word, sizeof word);
    }
}

/* Numbers of 1, 2, 4 or 8 bytes: added to what stands in out as cells with this salt, or written. */
static int for_all(
    Py_buffer *out, const Py_buffer *values, int kind, Py_ssize_t first, const Py_buffer *valid, Py_ssize_t bit,
    const uint64_t *salt
) {
    Py_ssize_t count = out->len / WORD;
    if (!has_bits(valid, bit, count)) return complain("too few bits of validity");
    if (!valid->buf) bit = 0;
    switch (kind) {
#define CASE(KIND, SIZE) \
    case KIND: \
        if (!holds(values, first, count, SIZE)) return complain("too few values"); \
        if (salt) add_each(out->buf, count, (const uint8_t *)values->buf + first * SIZE, KIND, valid->buf, bit, *salt); \
        else widen_each(out->buf, count, (const uint8_t *)values->buf + first * SIZE, KIND, valid->buf, bit); \
        return 0;
    CASE(1, 1) CASE(-1, 1) CASE(2, 2) CASE(-2, 2) CASE(4, 4) CASE(-4, 4) CASE(8, 8) CASE(-8, 8)
#undef CASE
    default: return complain("values have 1, 2, 4 or 8 bytes");
    }
}

static PyObject *add_cells(PyObject *self, PyObject *args) {
    Py_buffer total, values, valid;
    Py_ssize_t first, bit;
    unsigned long long given;
    int kind, failed;
    if (!PyArg_ParseTuple(args, "w*y*inz*nK:add_cells", &total, &values, &kind, &first, &valid, &bit, &given)) return NULL;
    uint64_t salt = given;
    failed = for_all(&total, &values, kind, first, &valid, bit, &salt);
    PyBuffer_Release(&total);
    PyBuffer_Release(&values);
    PyBuffer_Release(&valid);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *hash_cells(PyObject *self, PyObject *args) {
    Py_buffer values, valid, out;
    Py_ssize_t first, bit;
    int kind, failed;
    if (!PyArg_ParseTuple(args, "y*inz*nw*:hash_cells", &values, &kind, &first, &valid, &bit, &out)) return NULL;
    failed = for_all(&out, &values, kind, first, &valid, bit, NULL);
    PyBuffer_Release(&values);
    PyBuffer_Release(&valid);
    PyBuffer_Release(&out);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *hash_decimals(PyObject *self, PyObject *args) {
    Py_buffer values, out;
    Py_ssize_t first;
    if (!PyArg_ParseTuple(args, "y*nw*:hash_decimals", &values, &first, &out)) return NULL;
    Py_ssize_t count = out.len / WORD;
    int failed = holds(&values, first, count, 2 * WORD) ? 0 : complain("too few values");
    for (Py_ssize_t row = 0; !failed && row < count; row++) {
        const uint8_t *at = (const uint8_t *)values.buf + (first + row) * 2 * WORD;
        store(&out, row, mix(load(at) ^ BASE) + load(at + WORD));
    }
    PyBuffer_Release(&values);
    PyBuffer_Release(&out);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

/* The sums of words between two offsets each, mixed, and how many they are. With others beside them, they are the keys
   and these the items of maps; else their places count. */
static int sum_all(
    Py_buffer *out, const Py_buffer *bounds, Py_ssize_t first, const Py_buffer *words, const Py_buffer *items
) {
    Py_ssize_t count = out->len / WORD, most = words->len / WORD;
    if (items && items->len / WORD < most) most = items->len / WORD;
    if (!holds(bounds, first, 1, 4) || !holds(bounds, first + 1, count, 4)) return complain("too few offsets");
    int64_t base = bound(bounds->buf, first, 4), start = base;
    for (Py_ssize_t row = 0; row < count; row++) {
        int64_t end = bound(bounds->buf, first + row + 1, 4);
        if (base < 0 || end < start || end - base > most) return complain("an offset leads out of the values");
        uint64_t sum = (uint64_t)(end - start);
        for (int64_t at = start; at < end; at++) {
            uint64_t word = load((const uint8_t *)words->buf + (at - base) * WORD);
            if (items) sum += mix(mix(word ^ BASE) + load((const uint8_t *)items->buf + (at - base) * WORD));
            else sum += mix(word) * weight((uint64_t)(at - start));
        }
        store(out, row, sum);
        start = end;
    }
    return 0;
}

static PyObject *sum_lists(PyObject *self, PyObject *args) {
    Py_buffer bounds, words, out;
    Py_ssize_t first;
    if (!PyArg_ParseTuple(args, "y*ny*w*:sum_lists", &bounds, &first, &words, &out)) return NULL;
    int failed = sum_all(&out, &bounds, first, &words, NULL);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&words);
    PyBuffer_Release(&out);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *sum_maps(PyObject *self, PyObject *args) {
    Py_buffer bounds, keys, items, out;
    Py_ssize_t first;
    if (!PyArg_ParseTuple(args, "y*ny*y*w*:sum_maps", &bounds, &first, &keys, &items, &out)) return NULL;
    int failed = sum_all(&out, &bounds, first, &keys, &items);
    PyBuffer_Release(&bounds);
    PyBuffer_Release(&keys);
    PyBuffer_Release(&items);
    PyBuffer_Release(&out);
    if (failed) return NULL;
    Py_RETURN_NONE;
}

static PyObject *start_sums(PyObject *self, PyObject *args) {
    Py_buffer total;
    if (!PyArg_ParseTuple(args, "w*:start_sums", &total)) return NULL;
    for (Py_ssize_t row = 0; row < total.len / WORD; row++) store(&total, row, BASE);
    PyBuffer_Release(&total);
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
    {"hash_cells", hash_cells, METH_VARARGS, "Write the hash of each number, or of its null."},
    {"hash_decimals", hash_decimals, METH_VARARGS, "Write the hash of each decimal of 16 bytes."},
    {"sum_lists", sum_lists, METH_VARARGS, "Write the hash of each list of values that have these hashes."},
    {"sum_maps", sum_maps, METH_VARARGS, "Write the hash of each map of keys and items that have these hashes."},
    {"start_sums", start_sums, METH_VARARGS, "Write the sum of a row without columns for each row."},
    {"add_bytes", add_bytes, METH_VARARGS, "Add the cells of a binary or string column to the sums of its rows."},
    {"add_cells", add_cells, METH_VARARGS, "Add the cells of a column of numbers to the sums of its rows."},
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
