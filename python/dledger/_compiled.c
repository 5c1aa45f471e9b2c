/* The compiled twins of the functions that `dledger.compiled` lists, number for number: what touches the bytes of each
   entry, frame or key. Each function in Python says what both do. The extension is optional.

   There is no state but the tables of CRC-32, no I/O and no thread. Every place that is read lies in a buffer that was
   given, or the call is an error: a start, a size or a count is held against the buffer before it is believed. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define FOLDS 1
#endif

#define HEADER 48       /* bytes of an entry's header */
#define BLANK 8         /* bytes that stay behind an entry in its file */
#define BODY_HEADER 64  /* bytes of a body's header */
#define PREFIX 24       /* bytes in front of a frame's header */
#define CHECKED 20      /* of these, the bytes that the frame's CRC covers */
#define UNIT 32         /* bytes of an index unit */
#define ROW 56          /* bytes of a row of a partition's table */
#define FETCHED 36      /* bytes of a row of a fetch's answer */
#define RUN_ROW 56      /* bytes of a row of a run in it */
#define MOST_PARTITIONS (1 << 20)

typedef const uint8_t *bytes_at;

/* Numbers as they lie in files and frames. */
static inline uint32_t big32(bytes_at at) {
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}
static inline uint64_t big64(bytes_at at) { return (uint64_t)big32(at) << 32 | big32(at + 4); }
static inline void put32(uint8_t *at, uint32_t value) {
    at[0] = (uint8_t)(value >> 24), at[1] = (uint8_t)(value >> 16), at[2] = (uint8_t)(value >> 8), at[3] = (uint8_t)value;
}
static inline void put64(uint8_t *at, uint64_t value) { put32(at, (uint32_t)(value >> 32)), put32(at + 4, (uint32_t)value); }
static inline uint32_t of_little32(bytes_at at) {
    return (uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}
static inline uint64_t of_little64(bytes_at at) { return of_little32(at) | (uint64_t)of_little32(at + 4) << 32; }
static inline void little32(uint8_t *at, uint32_t value) {
    for (int i = 0; i < 4; i++) at[i] = (uint8_t)(value >> 8 * i);
}
static inline void little64(uint8_t *at, uint64_t value) {
    for (int i = 0; i < 8; i++) at[i] = (uint8_t)(value >> 8 * i);
}

/* CRC-32 of zlib, eight bytes a step by tables; long runs by carry-less multiplication where the processor has it
   (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", Intel, 2009). */
static uint32_t table[8][256];
static int folds;

static void make_tables(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ (value & 1 ? UINT32_C(0xEDB88320) : 0);
        table[0][i] = value;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++) table[t][i] = table[t - 1][i] >> 8 ^ table[0][table[t - 1][i] & 255];
#ifdef FOLDS
    __builtin_cpu_init();
    folds = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

#ifdef FOLDS
/* Of a multiple of 16 bytes, at least 64; both values are inverted already. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t fold(uint32_t crc, bytes_at at, size_t size) {
    const __m128i by4 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4), by1 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i last = _mm_set_epi64x(0, 0x0163cd6124), barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i part[4];
    for (int i = 0; i < 4; i++) part[i] = _mm_loadu_si128((const __m128i *)(at + 16 * i));
    part[0] = _mm_xor_si128(part[0], _mm_cvtsi32_si128((int)crc));
    for (at += 64, size -= 64; size >= 64; at += 64, size -= 64)
        for (int i = 0; i < 4; i++) {
            __m128i carried = _mm_xor_si128(_mm_clmulepi64_si128(part[i], by4, 0x00), _mm_clmulepi64_si128(part[i], by4, 0x11));
            part[i] = _mm_xor_si128(carried, _mm_loadu_si128((const __m128i *)(at + 16 * i)));
        }
    __m128i sum = part[0];
    for (int i = 1; i < 4; i++) {
        __m128i carried = _mm_xor_si128(_mm_clmulepi64_si128(sum, by1, 0x00), _mm_clmulepi64_si128(sum, by1, 0x11));
        sum = _mm_xor_si128(carried, part[i]);
    }
    for (; size >= 16; at += 16, size -= 16) {
        __m128i carried = _mm_xor_si128(_mm_clmulepi64_si128(sum, by1, 0x00), _mm_clmulepi64_si128(sum, by1, 0x11));
        sum = _mm_xor_si128(carried, _mm_loadu_si128((const __m128i *)at));
    }
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), _mm_clmulepi64_si128(sum, by1, 0x10));
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), _mm_clmulepi64_si128(_mm_and_si128(sum, low), last, 0x00));
    __m128i whole = _mm_and_si128(_mm_clmulepi64_si128(_mm_and_si128(sum, low), barrett, 0x10), low);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, _mm_clmulepi64_si128(whole, barrett, 0x00)), 1);
}
#endif

static uint32_t crc32_of(bytes_at at, size_t size, uint32_t crc) {
    crc = ~crc;
#ifdef FOLDS
    if (folds && size >= 64) {
        size_t whole = size & ~(size_t)15;
        crc = fold(crc, at, whole);
        at += whole, size -= whole;
    }
#endif
    for (; size >= 8; at += 8, size -= 8) {
        uint32_t a = crc ^ ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24);
        crc = table[7][a & 255] ^ table[6][a >> 8 & 255] ^ table[5][a >> 16 & 255] ^ table[4][a >> 24]
            ^ table[3][at[4]] ^ table[2][at[5]] ^ table[1][at[6]] ^ table[0][at[7]];
    }
    for (; size; at++, size--) crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
    return ~crc;
}

/* A row of whole numbers, of a list, a tuple or any other sequence; NULL with an error. */
static int64_t *numbers(PyObject *sequence, Py_ssize_t *count) {
    *count = PySequence_Size(sequence);
    if (*count < 0) return NULL;
    int64_t *found = PyMem_Malloc((size_t)(*count + 1) * sizeof *found);
    if (found == NULL) return (int64_t *)PyErr_NoMemory();
    for (Py_ssize_t i = 0; i < *count; i++) {
        PyObject *item = PySequence_GetItem(sequence, i);
        if (item == NULL) break;
        found[i] = PyLong_AsLongLong(item);
        Py_DECREF(item);
        if (found[i] == -1 && PyErr_Occurred()) break;
    }
    if (!PyErr_Occurred()) return found;
    PyMem_Free(found);
    return NULL;
}

/* The starts of entries in a buffer: each entry has at least a header, and none ends behind the buffer. */
static int64_t *starts_in(PyObject *sequence, const Py_buffer *data, Py_ssize_t *entries) {
    Py_ssize_t count;
    int64_t *starts = numbers(sequence, &count);
    if (starts == NULL) return NULL;
    *entries = count ? count - 1 : 0;
    int sound = count == 0 || (starts[0] >= 0 && starts[*entries] <= data->len);
    for (Py_ssize_t i = 0; sound && i < *entries; i++)
        sound = starts[i] <= starts[i + 1] && starts[i + 1] - starts[i] >= HEADER;
    if (sound) return starts;
    PyMem_Free(starts);
    PyErr_SetString(PyExc_ValueError, "starts that lead out of the entries' bytes");
    return NULL;
}

static int append_number(PyObject *list, int64_t value) {
    PyObject *number = PyLong_FromLongLong(value);
    if (number == NULL) return -1;
    int failed = PyList_Append(list, number);
    Py_DECREF(number);
    return failed;
}

static int append_new(PyObject *list, PyObject *item) {
    if (item == NULL) return -1;
    int failed = PyList_Append(list, item);
    Py_DECREF(item);
    return failed;
}

static void put_header(uint8_t *at, int32_t magic, uint64_t index, int64_t term, uint64_t pos, uint32_t chain, uint32_t crc,
                       uint32_t size) {
    put32(at, (uint32_t)magic), put32(at + 4, size + HEADER), put64(at + 8, index), put64(at + 16, (uint64_t)term);
    put64(at + 24, pos), put32(at + 32, 0), put32(at + 36, chain), put32(at + 40, crc), put32(at + 44, size);
}

static PyObject *stamp_bodies(PyObject *self, PyObject *args) {
    PyObject *bodies, *starts = NULL, *data = NULL, *result = NULL;
    Py_ssize_t begin, largest;
    long long room, term, index, pos;
    int magic;
    unsigned int chain;
    if (!PyArg_ParseTuple(args, "OnnLiLLLI", &bodies, &begin, &largest, &room, &magic, &term, &index, &pos, &chain)) return NULL;
    Py_ssize_t count = PySequence_Size(bodies), taken = 0;
    if (count < 0 || begin < 0) return count < 0 ? NULL : PyErr_Format(PyExc_ValueError, "no place %zd", begin);
    Py_buffer *views = PyMem_Malloc((size_t)(count > begin ? count - begin : 1) * sizeof *views);
    if (views == NULL) return PyErr_NoMemory();
    int64_t at = 0;
    for (Py_ssize_t i = begin; i < count; i++, taken++) {
        PyObject *body = PySequence_GetItem(bodies, i);
        int failed = body == NULL || PyObject_GetBuffer(body, &views[taken], PyBUF_SIMPLE) < 0;
        Py_XDECREF(body); /* the view keeps it */
        if (failed) goto done;
        int64_t size = views[taken].len + HEADER;
        if (views[taken].len >= largest || at + size + BLANK > room) {
            PyBuffer_Release(&views[taken]);
            break;
        }
        at += size;
    }
    starts = PyList_New(taken + 1);
    data = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)at);
    if (starts == NULL || data == NULL) goto done;
    uint8_t *out = (uint8_t *)PyBytes_AsString(data);
    at = 0;
    for (Py_ssize_t i = 0; i <= taken; i++) {
        PyObject *start = PyLong_FromLongLong(at);
        if (start == NULL || PyList_SetItem(starts, i, start) < 0) goto done;
        if (i == taken) break;
        uint32_t size = (uint32_t)views[i].len, crc = crc32_of(views[i].buf, size, 0);
        put_header(out + at, magic, (uint64_t)index + (uint64_t)i, term, (uint64_t)pos + (uint64_t)at, 0, crc, size);
        chain = crc32_of(out + at, HEADER, chain);
        put32(out + at + 36, chain);
        memcpy(out + at + HEADER, views[i].buf, size);
        at += size + HEADER;
    }
    result = Py_BuildValue("(OOI)", data, starts, chain);
done:
    while (taken--) PyBuffer_Release(&views[taken]);
    PyMem_Free(views);
    Py_XDECREF(starts);
    Py_XDECREF(data);
    return result;
}

static PyObject *split_runs(PyObject *self, PyObject *args) {
    Py_buffer data, sizes;
    if (!PyArg_ParseTuple(args, "y*y*", &data, &sizes)) return NULL;
    PyObject *runs = NULL, *starts = NULL;
    int64_t at = 0, begin = 0, due[4] = {0, 0, 0, 0};
    if (sizes.len % 4) {
        PyErr_Format(PyExc_ValueError, "%zd bytes are no row of 4-byte sizes", sizes.len);
        goto done;
    }
    runs = PyList_New(0);
    for (Py_ssize_t i = 0; runs != NULL && i < sizes.len; i += 4) {
        int64_t size = big32((bytes_at)sizes.buf + i);
        if (size < HEADER) {
            PyErr_Format(PyExc_ValueError, "an entry has at least %d bytes, not %lld", HEADER, (long long)size);
            goto failed;
        }
        if (at + size > data.len) {
            PyErr_Format(PyExc_ValueError, "more bytes announced than the %zd that came", data.len);
            goto failed;
        }
        bytes_at head = (bytes_at)data.buf + at;
        int32_t magic = (int32_t)big32(head), stated = (int32_t)big32(head + 4), body = (int32_t)big32(head + 44);
        int64_t found[4] = {(int64_t)big64(head + 8), (int64_t)big64(head + 16), magic, (int64_t)big64(head + 24)};
        if (stated != size || body != size - HEADER) {
            PyErr_Format(PyExc_ValueError, "entry %lld says size %d, body %d, in %lld bytes", (long long)found[0], stated, body,
                         (long long)size);
            goto failed;
        }
        if (starts == NULL || memcmp(found, due, sizeof due)) {
            if (starts != NULL && append_number(starts, at - begin) < 0) goto failed;
            begin = at;
            starts = PyList_New(0); /* the run keeps it */
            if (starts == NULL) goto failed;
            PyObject *run = Py_BuildValue("(LLiLLN)", (long long)found[0], (long long)found[1], magic, (long long)found[3],
                                          (long long)begin, starts);
            if (append_new(runs, run) < 0) goto failed;
        }
        if (append_number(starts, at - begin) < 0) goto failed;
        at += size;
        due[0] = (int64_t)((uint64_t)found[0] + 1), due[1] = found[1], due[2] = magic;
        due[3] = (int64_t)((uint64_t)found[3] + (uint64_t)size);
    }
    if (starts != NULL && append_number(starts, at - begin) < 0) goto failed;
    if (at != data.len) {
        PyErr_Format(PyExc_ValueError, "%lld bytes announced, %zd came", (long long)at, data.len);
        goto failed;
    }
    goto done;
failed:
    Py_CLEAR(runs);
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&sizes);
    return runs;
}

static PyObject *count_chained(PyObject *self, PyObject *args) {
    Py_buffer data;
    PyObject *sequence, *result = NULL;
    Py_ssize_t most, entries, sound = 0;
    unsigned int chain;
    if (!PyArg_ParseTuple(args, "y*OnI", &data, &sequence, &most, &chain)) return NULL;
    int64_t *starts = numbers(sequence, &entries);
    if (starts == NULL) goto done;
    if (most > entries) most = entries;
    for (; sound < most; sound++) {
        if (starts[sound] < 0 || starts[sound] > data.len - HEADER) {
            PyErr_SetString(PyExc_ValueError, "starts that lead out of the entries' bytes");
            goto done;
        }
        uint8_t header[HEADER];
        memcpy(header, (bytes_at)data.buf + starts[sound], HEADER);
        uint32_t stated = big32(header + 36), body = big32(header + 40);
        put32(header + 36, 0);
        if (crc32_of(header, HEADER, chain) != stated && (chain || stated || body)) break;
        chain = stated;
    }
    result = Py_BuildValue("(nI)", sound, chain);
done:
    PyMem_Free(starts);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *bodies_match(PyObject *self, PyObject *args) {
    Py_buffer data;
    PyObject *sequence, *result = NULL;
    Py_ssize_t entries, i = 0;
    if (!PyArg_ParseTuple(args, "y*O", &data, &sequence)) return NULL;
    int64_t *starts = starts_in(sequence, &data, &entries);
    if (starts != NULL) {
        for (; i < entries; i++) {
            bytes_at header = (bytes_at)data.buf + starts[i];
            uint32_t chain = big32(header + 36), body = big32(header + 40);
            size_t size = (size_t)(starts[i + 1] - starts[i] - HEADER);
            if ((chain || body) && crc32_of(header + HEADER, size, 0) != body) break;
        }
        result = PyBool_FromLong(i == entries);
    }
    PyMem_Free(starts);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *any_body_begins(PyObject *self, PyObject *args) {
    Py_buffer data, prefix;
    PyObject *sequence, *result = NULL;
    Py_ssize_t entries, i = 0;
    if (!PyArg_ParseTuple(args, "y*Oy*", &data, &sequence, &prefix)) return NULL;
    int64_t *starts = starts_in(sequence, &data, &entries);
    if (starts != NULL) {
        for (; i < entries; i++) {
            bytes_at body = (bytes_at)data.buf + starts[i] + HEADER;
            if (starts[i + 1] - starts[i] - HEADER >= prefix.len && !memcmp(body, prefix.buf, (size_t)prefix.len)) break;
        }
        result = PyBool_FromLong(i < entries);
    }
    PyMem_Free(starts);
    PyBuffer_Release(&data);
    PyBuffer_Release(&prefix);
    return result;
}

static PyObject *pack_units(PyObject *self, PyObject *args) {
    PyObject *sequence;
    long long pos, index, term;
    int magic;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(args, "OiLLL", &sequence, &magic, &pos, &index, &term)) return NULL;
    int64_t *starts = numbers(sequence, &count);
    if (starts == NULL) return NULL;
    PyObject *result = PyBytes_FromStringAndSize(NULL, count > 1 ? (count - 1) * UNIT : 0);
    uint8_t *at = result == NULL ? NULL : (uint8_t *)PyBytes_AsString(result);
    for (Py_ssize_t i = 0; at != NULL && i + 1 < count; i++, at += UNIT) {
        put32(at, (uint32_t)magic), put64(at + 4, (uint64_t)pos + (uint64_t)starts[i]);
        put32(at + 12, (uint32_t)((uint64_t)starts[i + 1] - (uint64_t)starts[i])), put64(at + 16, (uint64_t)index + (uint64_t)i), put64(at + 24, (uint64_t)term);
    }
    PyMem_Free(starts);
    return result;
}

/* The fields of a body's header that tell one plain batch from the next; whether it is one, behind ``same``. */
static int plain(bytes_at body, int64_t size, bytes_at same, uint32_t *count, int64_t *last) {
    if (size < BODY_HEADER || (same != NULL && memcmp(body, same, 16))) return 0;
    *count = big32(body + 16), *last = (int64_t)big64(body + 32);
    return *count && !big32(body + 20) && !big64(body + 40);
}

static int append_batch(PyObject *list, uint32_t count, int64_t last) {
    return append_new(list, Py_BuildValue("(IL)", count, (long long)last));
}

/* No run where there are not two. */
static PyObject *at_least_two(PyObject *list) {
    if (list == NULL || PyList_Size(list) > 1) return list;
    Py_DECREF(list);
    return PyList_New(0);
}

static PyObject *plain_batches(PyObject *self, PyObject *args) {
    PyObject *bodies, *found;
    Py_ssize_t begin;
    uint8_t same[16];
    if (!PyArg_ParseTuple(args, "On", &bodies, &begin)) return NULL;
    Py_ssize_t count = PySequence_Size(bodies);
    if (count < 0 || begin < 0) return count < 0 ? NULL : PyErr_Format(PyExc_ValueError, "no place %zd", begin);
    found = PyList_New(0);
    for (Py_ssize_t i = begin; found != NULL && i < count; i++) {
        Py_buffer view;
        PyObject *body = PySequence_GetItem(bodies, i);
        int failed = body == NULL || PyObject_GetBuffer(body, &view, PyBUF_SIMPLE) < 0;
        Py_XDECREF(body);
        if (failed) {
            Py_CLEAR(found);
            break;
        }
        uint32_t records;
        int64_t last;
        int is_plain = plain(view.buf, view.len, i == begin ? NULL : same, &records, &last);
        if (is_plain && i == begin) memcpy(same, view.buf, sizeof same);
        PyBuffer_Release(&view);
        if (!is_plain) break;
        if (append_batch(found, records, last) < 0) Py_CLEAR(found);
    }
    return at_least_two(found);
}

static PyObject *plain_batches_of_run(PyObject *self, PyObject *args) {
    Py_buffer data;
    PyObject *sequence, *found = NULL;
    Py_ssize_t entries, begin, skip;
    if (!PyArg_ParseTuple(args, "y*Onn", &data, &sequence, &begin, &skip)) return NULL;
    int64_t *starts = starts_in(sequence, &data, &entries);
    if (starts != NULL && (begin < 0 || skip < 0)) PyErr_Format(PyExc_ValueError, "no place %zd, %zd", begin, skip);
    else if (starts != NULL) {
        found = PyList_New(0);
        bytes_at same = NULL;
        for (Py_ssize_t i = begin; found != NULL && i < entries; i++) {
            if (starts[i + 1] - starts[i] < skip) break;
            bytes_at body = (bytes_at)data.buf + starts[i] + skip;
            uint32_t records;
            int64_t last;
            if (!plain(body, starts[i + 1] - starts[i] - skip, same, &records, &last)) break;
            if (same == NULL) same = body;
            if (append_batch(found, records, last) < 0) Py_CLEAR(found);
        }
        found = at_least_two(found);
    }
    PyMem_Free(starts);
    PyBuffer_Release(&data);
    return found;
}

static PyObject *pack_batches(PyObject *self, PyObject *args) {
    Py_buffer data;
    PyObject *sequence, *batches, *rows = NULL, *bases = NULL, *result = NULL;
    long long index, pos, base, newest, before;
    Py_ssize_t entries;
    if (!PyArg_ParseTuple(args, "y*OOLLLLL", &data, &sequence, &batches, &index, &pos, &base, &newest, &before)) return NULL;
    int64_t *starts = starts_in(sequence, &data, &entries);
    if (starts == NULL) goto done;
    Py_ssize_t count = PySequence_Size(batches);
    if (count != entries) {
        if (count >= 0) PyErr_Format(PyExc_ValueError, "%zd batches in %zd entries", count, entries);
        goto done;
    }
    rows = PyBytes_FromStringAndSize(NULL, entries * ROW);
    bases = PyList_New(0);
    if (rows == NULL || bases == NULL) goto done;
    uint8_t *at = (uint8_t *)PyBytes_AsString(rows);
    for (Py_ssize_t i = 0; i < entries; i++, at += ROW) {
        uint32_t records;
        long long last;
        PyObject *batch = PySequence_GetItem(batches, i);
        int failed = batch == NULL || !PyArg_ParseTuple(batch, "IL", &records, &last);
        Py_XDECREF(batch);
        if (failed || append_number(bases, base) < 0) goto done;
        int64_t size = starts[i + 1] - starts[i] - HEADER;
        if (last > newest) newest = last;
        little64(at, (uint64_t)base), little64(at + 8, (uint64_t)index + (uint64_t)i), little64(at + 16, (uint64_t)pos + (uint64_t)starts[i]);
        little64(at + 24, (uint64_t)newest), little64(at + 32, (uint64_t)index + (uint64_t)i), little64(at + 40, (uint64_t)before);
        little32(at + 48, (uint32_t)size), little32(at + 52, big32((bytes_at)data.buf + starts[i] + 40));
        base = (int64_t)((uint64_t)base + records), before = (int64_t)((uint64_t)before + (uint64_t)size);
    }
    result = Py_BuildValue("(OOLLL)", rows, bases, base, newest, before);
done:
    Py_XDECREF(rows);
    Py_XDECREF(bases);
    PyMem_Free(starts);
    PyBuffer_Release(&data);
    return result;
}

static PyObject *pack_rows(PyObject *self, PyObject *args) {
    Py_buffer rows;
    Py_ssize_t size;
    long long number;
    if (!PyArg_ParseTuple(args, "y*nL", &rows, &size, &number)) return NULL;
    PyObject *packed = NULL;
    if (size <= 0 || rows.len % size) PyErr_Format(PyExc_ValueError, "%zd bytes are no rows of %zd", rows.len, size);
    else packed = PyBytes_FromStringAndSize(NULL, rows.len + rows.len / size * 4);
    if (packed != NULL) {
        uint8_t *at = (uint8_t *)PyBytes_AsString(packed);
        for (Py_ssize_t i = 0; i < rows.len; i += size, at += size + 4, number = (int64_t)((uint64_t)number + 1)) {
            memcpy(at, (bytes_at)rows.buf + i, (size_t)size);
            put32(at + size, crc32_of(at, (size_t)size, (uint32_t)(uint64_t)number));
        }
    }
    PyBuffer_Release(&rows);
    return packed;
}

/* Places in the frame that answers an append. */
#define ANSWER 47
#define ANSWER_ID 8
#define ANSWER_BASE 30
#define ANSWER_INDEX 39

static PyObject *fill_answers(PyObject *self, PyObject *args) {
    Py_buffer frame;
    PyObject *ids, *bases, *result = NULL;
    long long index;
    Py_ssize_t count, others;
    if (!PyArg_ParseTuple(args, "y*OOL", &frame, &ids, &bases, &index)) return NULL;
    int64_t *id = numbers(ids, &count), *base = id == NULL ? NULL : numbers(bases, &others);
    if (base != NULL && count != others) PyErr_Format(PyExc_ValueError, "%zd offsets for %zd requests", others, count);
    else if (base != NULL && frame.len != ANSWER) PyErr_Format(PyExc_ValueError, "an answer of %zd bytes", frame.len);
    else if (base != NULL) result = PyBytes_FromStringAndSize(NULL, count * ANSWER);
    if (result != NULL) {
        uint8_t *at = (uint8_t *)PyBytes_AsString(result);
        for (Py_ssize_t i = 0; i < count; i++, at += ANSWER) {
            memcpy(at, frame.buf, ANSWER);
            put32(at + ANSWER_ID, (uint32_t)id[i]);
            put64(at + ANSWER_BASE, (uint64_t)base[i]), put64(at + ANSWER_INDEX, (uint64_t)index + (uint64_t)i);
            put32(at + CHECKED, crc32_of(at + PREFIX, ANSWER - PREFIX, crc32_of(at, CHECKED, 0)));
        }
    }
    PyMem_Free(id);
    PyMem_Free(base);
    PyBuffer_Release(&frame);
    return result;
}

static PyObject *take_frames(PyObject *self, PyObject *args) {
    Py_buffer data;
    PyObject *make, *frames, *head = NULL, *result = NULL;
    Py_ssize_t at, most, largest_header, largest;
    if (!PyArg_ParseTuple(args, "y*nnnnOO", &data, &at, &most, &largest_header, &largest, &make, &frames)) return NULL;
    if (at < 0) {
        PyErr_SetString(PyExc_ValueError, "frames begin at a place in the buffer");
        goto done;
    }
    bytes_at before = NULL; /* the frame before, which has the header `head` */
    for (; most > 0 && data.len - at >= PREFIX; most--) {
        bytes_at frame = (bytes_at)data.buf + at;
        int64_t header = big32(frame + 12), payload = big32(frame + 16);
        if (memcmp(frame, "DL\1", 4) || frame[6] || frame[7]) break; /* with the flags, which are 0 */
        if (header > largest_header || payload >= largest || header + payload > data.len - at - PREFIX) break;
        bytes_at body = frame + PREFIX + header;
        if (crc32_of(frame + PREFIX, (size_t)header, crc32_of(frame, CHECKED, 0)) != big32(frame + CHECKED)) break;
        if (before == NULL || memcmp(frame, before, 8) || memcmp(frame + 12, before + 12, 4)
            || memcmp(frame + PREFIX, before + PREFIX, (size_t)header)) {
            Py_XDECREF(head);
            head = PyBytes_FromStringAndSize((const char *)frame + PREFIX, (Py_ssize_t)header);
            if (head == NULL) goto done;
        }
        before = frame;
        PyObject *copy = PyBytes_FromStringAndSize((const char *)body, (Py_ssize_t)payload);
        PyObject *view = copy == NULL ? NULL : PyMemoryView_FromObject(copy);
        PyObject *made = view == NULL ? NULL
            : PyObject_CallFunction(make, "((iIOO))", frame[4] << 8 | frame[5], big32(frame + 8), head, view);
        Py_XDECREF(copy);
        Py_XDECREF(view);
        if (append_new(frames, made) < 0) goto done;
        at += PREFIX + (Py_ssize_t)(header + payload);
    }
    result = PyLong_FromSsize_t(at);
done:
    Py_XDECREF(head);
    PyBuffer_Release(&data);
    return result;
}

/* Murmur2 of a key as Kafka's Java client has it, its sign bit cleared. */
static uint32_t murmur2(bytes_at at, uint32_t size) {
    const uint32_t by = UINT32_C(0x5BD1E995);
    uint32_t hash = UINT32_C(0x9747B28C) ^ size;
    for (; size >= 4; at += 4, size -= 4) {
        uint32_t word = ((uint32_t)at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24) * by;
        hash = hash * by ^ (word ^ word >> 24) * by;
    }
    if (size) {
        for (uint32_t i = 0; i < size; i++) hash ^= (uint32_t)at[i] << 8 * i;
        hash *= by;
    }
    hash = (hash ^ hash >> 13) * by;
    return (hash ^ hash >> 15) & INT32_MAX;
}

/* A number of an Arrow buffer, which need not be aligned. */
static inline int32_t number_at(const Py_buffer *buffer, Py_ssize_t place) {
    int32_t found;
    memcpy(&found, (bytes_at)buffer->buf + 4 * place, 4);
    return found;
}

/* The partition of each row, and how many rows each one has; whether every key lies in the data. */
static int place_keys(const Py_buffer *offsets, const Py_buffer *data, const Py_buffer *valid, Py_ssize_t first, Py_ssize_t rows,
                      uint32_t partitions, uint32_t keyless, uint32_t *chosen, uint32_t *counts) {
    int32_t start = rows ? number_at(offsets, first) : 0;
    if (start < 0) return 0;
    for (Py_ssize_t i = 0; i < rows; i++) {
        int32_t end = number_at(offsets, first + i + 1);
        if (end < start || end > data->len) return 0;
        int has_key = !valid->len || (((bytes_at)valid->buf)[(first + i) / 8] >> (first + i) % 8 & 1);
        chosen[i] = has_key ? murmur2((bytes_at)data->buf + start, (uint32_t)(end - start)) % partitions : keyless;
        counts[chosen[i]]++;
        start = end;
    }
    return 1;
}

static PyObject *rows_by_key(PyObject *self, PyObject *args) {
    Py_buffer offsets, data, valid;
    PyObject *order = NULL, *counted = NULL, *result = NULL;
    Py_ssize_t first, rows, partitions, keyless;
    uint32_t *chosen = NULL, *next = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*nnnn", &offsets, &data, &valid, &first, &rows, &partitions, &keyless)) return NULL;
    if (partitions < 1 || partitions > MOST_PARTITIONS || keyless < 0 || keyless >= partitions) {
        PyErr_Format(PyExc_ValueError, "partition %zd of %zd", keyless, partitions);
        goto done;
    }
    if (first < 0 || rows < 0 || rows > INT32_MAX || (rows && (first >= offsets.len / 4 || rows >= offsets.len / 4 - first))
        || (rows && valid.len && (first + rows - 1) / 8 >= valid.len)) {
        PyErr_SetString(PyExc_ValueError, "rows that lead out of their column");
        goto done;
    }
    order = PyBytes_FromStringAndSize(NULL, rows * 4);
    counted = PyBytes_FromStringAndSize(NULL, partitions * 4);
    chosen = PyMem_Malloc((size_t)(rows ? rows : 1) * sizeof *chosen);
    next = PyMem_Calloc((size_t)partitions, sizeof *next);
    if (order == NULL || counted == NULL || chosen == NULL || next == NULL) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    if (!place_keys(&offsets, &data, &valid, first, rows, (uint32_t)partitions, (uint32_t)keyless, chosen, next)) {
        PyErr_SetString(PyExc_ValueError, "keys that lead out of their bytes");
        goto done;
    }
    memcpy(PyBytes_AsString(counted), next, (size_t)partitions * 4);
    uint32_t before = 0;
    for (Py_ssize_t i = 0; i < partitions; i++) {
        uint32_t count = next[i];
        next[i] = before, before += count;
    }
    char *out = PyBytes_AsString(order);
    for (Py_ssize_t i = 0; i < rows; i++) {
        uint32_t row = (uint32_t)i;
        memcpy(out + 4 * (size_t)next[chosen[i]]++, &row, 4);
    }
    result = Py_BuildValue("(OO)", order, counted);
done:
    PyMem_Free(chosen);
    PyMem_Free(next);
    Py_XDECREF(order);
    Py_XDECREF(counted);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&valid);
    return result;
}

/* Where each row's value goes to, or -1, by the order in which the values are to lie; how many bytes these have, or -1. */
static int64_t place_values(const Py_buffer *offsets, const Py_buffer *data, Py_ssize_t first, Py_ssize_t rows,
                            const Py_buffer *order, int32_t *places, uint8_t *starts, Py_ssize_t room) {
    int32_t filled = 0;
    memset(places, 0xFF, (size_t)rows * sizeof *places);
    memcpy(starts, &filled, 4);
    for (Py_ssize_t i = 0; i < order->len / 4; i++) {
        int32_t row = number_at(order, i);
        if (row < 0 || row >= rows || places[row] >= 0) return -1;
        int32_t start = number_at(offsets, first + row), end = number_at(offsets, first + row + 1);
        if (start < 0 || end < start || end > data->len || end - start > room - filled) return -1;
        places[row] = filled, filled += end - start;
        memcpy(starts + 4 * (i + 1), &filled, 4);
    }
    return filled;
}

static PyObject *spread_bytes(PyObject *self, PyObject *args) {
    Py_buffer offsets, data, order, starts, room;
    Py_ssize_t first;
    if (!PyArg_ParseTuple(args, "y*y*ny*w*w*", &offsets, &data, &first, &order, &starts, &room)) return NULL;
    PyObject *result = NULL;
    Py_ssize_t rows = offsets.len / 4 - 1 - (first < 0 ? 0 : first);
    int32_t *places = NULL;
    if (first < 0 || rows < 0 || order.len % 4 || starts.len != order.len + 4 || room.len > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "rows that lead out of their column");
        goto done;
    }
    places = PyMem_Malloc((size_t)(rows ? rows : 1) * sizeof *places);
    if (places == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    if (place_values(&offsets, &data, first, rows, &order, places, starts.buf, room.len) != room.len) {
        PyErr_SetString(PyExc_ValueError, "values that lead out of their bytes, or do not fill the room");
        goto done;
    }
    /* Values are read in a row and written in many: the other way round each one would be waited for. */
    for (Py_ssize_t row = 0; row < rows; row++) {
        if (places[row] < 0) continue;
        int32_t start = number_at(&offsets, first + row), end = number_at(&offsets, first + row + 1);
        memcpy((uint8_t *)room.buf + places[row], (bytes_at)data.buf + start, (size_t)(end - start));
    }
    result = Py_NewRef(Py_None);
done:
    PyMem_Free(places);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    PyBuffer_Release(&order);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&room);
    return result;
}

static PyObject *count_sound(PyObject *self, PyObject *args) {
    Py_buffer rows, payload;
    Py_ssize_t gap;
    long long position;
    if (!PyArg_ParseTuple(args, "y*y*nL", &rows, &payload, &gap, &position)) return NULL;
    PyObject *result = NULL;
    if (gap < 0 || rows.len % FETCHED) {
        PyErr_Format(PyExc_ValueError, "a gap of %zd bytes, %zd bytes of rows", gap, rows.len);
        goto done;
    }
    Py_ssize_t sound = 0, rest = payload.len;
    bytes_at body = payload.buf, row = rows.buf;
    int damaged = 0;
    for (; sound < rows.len / FETCHED; sound++, row += FETCHED) {
        int64_t base = (int64_t)big64(row);
        uint32_t count = big32(row + 8), size = big32(row + 12), crc = big32(row + 16);
        if ((sound ? base != position : base > position) || base > INT64_MAX - count || base + count <= position) break;
        Py_ssize_t before = gap < rest ? gap : rest;
        body += before, rest -= before;
        Py_ssize_t there = size < rest ? (Py_ssize_t)size : rest;
        damaged = crc ? crc32_of(body, (size_t)there, 0) != crc : gap != 0;
        if (damaged) break;
        body += there, rest -= there, position = base + count;
    }
    result = Py_BuildValue("(nLO)", sound, position, damaged ? Py_True : Py_False);
done:
    PyBuffer_Release(&rows);
    PyBuffer_Release(&payload);
    return result;
}

static PyObject *fetched_rows(PyObject *self, PyObject *args) {
    Py_buffer rows;
    long long end, term;
    if (!PyArg_ParseTuple(args, "y*LL", &rows, &end, &term)) return NULL;
    PyObject *packed = NULL, *result = NULL;
    Py_ssize_t count = rows.len / RUN_ROW;
    bytes_at row = rows.buf;
    uint64_t size = 0;
    if (rows.len % RUN_ROW) PyErr_Format(PyExc_ValueError, "%zd bytes of rows", rows.len);
    else if ((packed = PyBytes_FromStringAndSize(NULL, count * FETCHED)) != NULL) {
        uint8_t *out = (uint8_t *)PyBytes_AsString(packed);
        for (Py_ssize_t i = 0; i < count; i++, row += RUN_ROW, out += FETCHED) {
            int64_t base = (int64_t)of_little64(row), next = i + 1 < count ? (int64_t)of_little64(row + RUN_ROW) : end;
            uint64_t records = (uint64_t)next - (uint64_t)base;
            if (next <= base || records > UINT32_MAX) {
                PyErr_Format(PyExc_ValueError, "row %zd does not lie in front of the next one", i);
                goto done;
            }
            uint32_t bytes = of_little32(row + 48);
            put64(out, (uint64_t)base), put32(out + 8, (uint32_t)records), put32(out + 12, bytes);
            put32(out + 16, of_little32(row + 52)), put64(out + 20, of_little64(row + 8)), put64(out + 28, (uint64_t)term);
            size += bytes;
        }
        result = Py_BuildValue("(OK)", packed, (unsigned long long)size);
    }
done:
    Py_XDECREF(packed);
    PyBuffer_Release(&rows);
    return result;
}

static int append_place(PyObject *list, Py_ssize_t row, uint64_t at) {
    return append_new(list, Py_BuildValue("(nK)", row, (unsigned long long)at));
}

static PyObject *stretches(PyObject *self, PyObject *args) {
    Py_buffer rows;
    Py_ssize_t gap;
    if (!PyArg_ParseTuple(args, "y*n", &rows, &gap)) return NULL;
    PyObject *sizes = NULL, *borders = PyList_New(0), *result = NULL;
    Py_ssize_t count = rows.len / FETCHED;
    uint64_t at = 0;
    if (gap < 0 || gap > UINT16_MAX || rows.len % FETCHED)
        PyErr_Format(PyExc_ValueError, "a gap of %zd bytes, %zd bytes of rows", gap, rows.len);
    else sizes = PyBytes_FromStringAndSize(NULL, count * 8);
    if (borders == NULL || sizes == NULL) goto done;
    char *out = PyBytes_AsString(sizes);
    bytes_at row = rows.buf;
    int was_single = -1;
    for (Py_ssize_t i = 0; i < count; i++, row += FETCHED) {
        int64_t size = big32(row + 12);
        int single = big32(row + 8) == 1;
        if (single != was_single && append_place(borders, i, at)) goto done;
        memcpy(out + 8 * i, &size, 8);
        was_single = single, at += (uint64_t)(gap + size);
    }
    if (!append_place(borders, count, at)) result = Py_BuildValue("(OO)", sizes, borders);
done:
    Py_XDECREF(sizes);
    Py_XDECREF(borders);
    PyBuffer_Release(&rows);
    return result;
}

/* Numbers of pairs of sizes in the order in which they are met, by open addressing. */
struct pairs {
    uint64_t *pair;
    int32_t *number;
    size_t mask;
    PyObject *met;
};

static int32_t number_of(struct pairs *pairs, uint64_t pair) {
    size_t at = (size_t)(pair * UINT64_C(0x9E3779B97F4A7C15) >> 20) & pairs->mask;
    for (; pairs->number[at]; at = (at + 1) & pairs->mask)
        if (pairs->pair[at] == pair) break;
    if (!pairs->number[at]) {
        int64_t key = (int64_t)(pair & UINT32_MAX) - 1;
        if (append_new(pairs->met, Py_BuildValue("(LL)", (long long)(pair >> 32), (long long)key))) return -1;
        pairs->pair[at] = pair, pairs->number[at] = (int32_t)PyList_Size(pairs->met);
    }
    return pairs->number[at] - 1;
}

/* Where a body's value lies, and its key if it has one; 0 where it is not of one plain record that lies so. */
static int one_record_at(bytes_at body, int64_t size, int64_t before, int is_keyed, int64_t *found) {
    int64_t room = size - BODY_HEADER - before;
    if (room < 0) return 0;
    bytes_at at = body + BODY_HEADER + before;
    int64_t key = 0, value = of_little32(at - 4);
    if (is_keyed) {
        key = value;
        int64_t padded = (key + 7) / 8 * 8;
        if (room < padded + 8 || of_little32(at + padded)) return 0;
        value = of_little32(at + padded + 4), room -= padded + 8, at += padded + 8;
    }
    found[0] = at - body, found[1] = value, found[2] = BODY_HEADER + before, found[3] = key;
    return room == (value + 7) / 8 * 8;
}

enum { TIMES, VALUES, VALUE_SIZES, KEYS, KEY_SIZES, NUMBERS, COLUMNS };

static PyObject *one_record_parts(PyObject *self, PyObject *args) {
    Py_buffer payload, sizes;
    Py_ssize_t gap, largest, before[2];
    unsigned long long kinds[4], one;
    if (!PyArg_ParseTuple(args, "y*y*nn(KKKK)Knn", &payload, &sizes, &gap, &largest, kinds, kinds + 1, kinds + 2, kinds + 3,
                          &one, before, before + 1)) return NULL;
    PyObject *columns[COLUMNS] = {NULL}, *result = NULL;
    struct pairs pairs = {NULL, NULL, 1, PyList_New(0)};
    Py_ssize_t count = sizes.len / 8, rest = payload.len;
    int is_keyed = 0, fits = 1, failed = pairs.met == NULL;
    char *out[COLUMNS] = {NULL};
    while (pairs.mask < 2 * (size_t)count) pairs.mask *= 2;
    pairs.pair = PyMem_Malloc(pairs.mask * sizeof *pairs.pair);
    pairs.number = PyMem_Calloc(pairs.mask--, sizeof *pairs.number);
    for (int i = 0; i < COLUMNS; i++) {
        columns[i] = PyBytes_FromStringAndSize(NULL, count * (i == NUMBERS ? 4 : 8));
        if (columns[i] != NULL) out[i] = PyBytes_AsString(columns[i]);
        failed |= out[i] == NULL;
    }
    if (failed || pairs.pair == NULL || pairs.number == NULL) {
        if (!PyErr_Occurred()) PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t i = 0; fits && i < count; i++) {
        int64_t size, found[4];
        memcpy(&size, (bytes_at)sizes.buf + 8 * i, 8);
        fits = gap >= 0 && gap <= rest && size > BODY_HEADER && size <= largest && size % 8 == 0 && size <= rest - gap;
        if (!fits) break;
        rest -= gap;
        Py_ssize_t start = payload.len - rest;
        bytes_at body = (bytes_at)payload.buf + start;
        uint64_t kind = big64(body);
        if (!i) is_keyed = kind == kinds[2] || kind == kinds[3];
        fits = (kind == kinds[2 * is_keyed] || kind == kinds[2 * is_keyed + 1]) && big64(body + 16) == one
            && before[is_keyed] >= 8 && one_record_at(body, size, before[is_keyed], is_keyed, found);
        if (!fits) break;
        int32_t number = number_of(&pairs, (uint64_t)found[1] << 32 | (uint64_t)(is_keyed ? found[3] + 1 : 0));
        if (number < 0) goto done;
        int64_t time = (int64_t)big64(body + 24), value = start + found[0], key = start + found[2];
        memcpy(out[TIMES] + 8 * i, &time, 8), memcpy(out[NUMBERS] + 4 * i, &number, 4);
        memcpy(out[VALUES] + 8 * i, &value, 8), memcpy(out[VALUE_SIZES] + 8 * i, found + 1, 8);
        memcpy(out[KEYS] + 8 * i, &key, 8), memcpy(out[KEY_SIZES] + 8 * i, found + 3, 8);
        rest -= (Py_ssize_t)size;
    }
    result = fits ? Py_BuildValue("(OOOOOOOO)", is_keyed ? Py_True : Py_False, columns[TIMES], columns[VALUES], columns[VALUE_SIZES],
                                  columns[KEYS], columns[KEY_SIZES], columns[NUMBERS], pairs.met)
                  : Py_BuildValue("");
done:
    PyMem_Free(pairs.pair);
    PyMem_Free(pairs.number);
    Py_XDECREF(pairs.met);
    for (int i = 0; i < COLUMNS; i++) Py_XDECREF(columns[i]);
    PyBuffer_Release(&payload);
    PyBuffer_Release(&sizes);
    return result;
}

static PyObject *heads_match(PyObject *self, PyObject *args) {
    Py_buffer payload, ends, kinds, heads;
    Py_ssize_t width;
    if (!PyArg_ParseTuple(args, "y*y*y*y*n", &payload, &ends, &kinds, &heads, &width)) return NULL;
    int sound = width > 0 && ends.len / 8 == kinds.len / 4, alike = 1;
    for (Py_ssize_t i = 0; sound && alike && i < ends.len / 8; i++) {
        int64_t end;
        int32_t kind;
        memcpy(&end, (bytes_at)ends.buf + 8 * i, 8), memcpy(&kind, (bytes_at)kinds.buf + 4 * i, 4);
        sound = end >= width && end <= payload.len && kind >= 0 && kind < heads.len / width;
        if (sound) alike = !memcmp((bytes_at)payload.buf + end - width, (bytes_at)heads.buf + kind * width, (size_t)width);
    }
    if (!sound) PyErr_SetString(PyExc_ValueError, "heads that lead out of their bytes");
    PyBuffer_Release(&payload);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&kinds);
    PyBuffer_Release(&heads);
    return sound ? PyBool_FromLong(alike) : NULL;
}

static PyObject *join_values(PyObject *self, PyObject *args) {
    Py_buffer data, starts, sizes;
    if (!PyArg_ParseTuple(args, "y*y*y*", &data, &starts, &sizes)) return NULL;
    PyObject *offsets = NULL, *joined = NULL, *result = NULL;
    Py_ssize_t count = starts.len / 8, total = 0;
    int sound = starts.len == sizes.len;
    for (Py_ssize_t i = 0; sound && i < count; i++) {
        int64_t start, size;
        memcpy(&start, (bytes_at)starts.buf + 8 * i, 8), memcpy(&size, (bytes_at)sizes.buf + 8 * i, 8);
        sound = start >= 0 && start <= data.len && size >= 0 && size <= data.len - start && size <= INT32_MAX - total;
        if (sound) total += (Py_ssize_t)size;
    }
    if (!sound) PyErr_SetString(PyExc_ValueError, "values that lead out of their bytes");
    else if ((joined = PyBytes_FromStringAndSize(NULL, total)) != NULL
             && (offsets = PyBytes_FromStringAndSize(NULL, 4 * (count + 1))) != NULL) {
        char *out = PyBytes_AsString(joined), *place = PyBytes_AsString(offsets);
        int32_t offset = 0;
        memcpy(place, &offset, 4);
        for (Py_ssize_t i = 0; i < count; i++) {
            int64_t start, size;
            memcpy(&start, (bytes_at)starts.buf + 8 * i, 8), memcpy(&size, (bytes_at)sizes.buf + 8 * i, 8);
            memcpy(out + offset, (bytes_at)data.buf + start, (size_t)size);
            offset += (int32_t)size;
            memcpy(place + 4 * (i + 1), &offset, 4);
        }
        result = Py_BuildValue("(OO)", offsets, joined);
    }
    Py_XDECREF(offsets);
    Py_XDECREF(joined);
    PyBuffer_Release(&data);
    PyBuffer_Release(&starts);
    PyBuffer_Release(&sizes);
    return result;
}

/* Whether offsets rise; the first and the last one. All are looked at: most columns are sound. */
#define RISE(name, type) \
    static int name(bytes_at at, Py_ssize_t rows, int64_t *start, int64_t *end) { \
        int falls = 0; \
        type before, next; \
        memcpy(&next, at, sizeof next), *start = next; \
        for (Py_ssize_t i = 0; i < rows; i++, at += sizeof next) \
            memcpy(&before, at, sizeof before), memcpy(&next, at + sizeof next, sizeof next), falls |= next < before; \
        *end = next; \
        return !falls; \
    }
RISE(narrow_rise, int32_t)
RISE(wide_rise, int64_t)

static PyObject *is_ascii(PyObject *self, PyObject *args) {
    Py_buffer offsets, data;
    Py_ssize_t first, rows;
    int width;
    if (!PyArg_ParseTuple(args, "y*y*inn", &offsets, &data, &width, &first, &rows)) return NULL;
    Py_ssize_t there = width == 4 || width == 8 ? offsets.len / width : 0;
    int sound = first >= 0 && rows >= 0 && first < there && rows < there - first;
    int64_t start = 0, end = 0;
    if (!sound) PyErr_SetString(PyExc_ValueError, "offsets that lead out of their bytes");
    else sound = (width == 4 ? narrow_rise : wide_rise)((bytes_at)offsets.buf + first * width, rows, &start, &end);
    sound = sound && start >= 0;
    sound = sound && end <= data.len;
    if (sound) {
        uint64_t found = 0, word, four[4];
        bytes_at at = (bytes_at)data.buf + start, behind = (bytes_at)data.buf + end;
        for (; behind - at >= 32; at += 32) memcpy(four, at, 32), found |= four[0] | four[1] | four[2] | four[3];
        for (; behind - at >= 8; at += 8) memcpy(&word, at, 8), found |= word;
        for (; at < behind; at++) found |= *at;
        sound = !(found & UINT64_C(0x8080808080808080));
    }
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&data);
    return PyErr_Occurred() ? NULL : PyBool_FromLong(sound);
}

#define TWIN(name) {#name, name, METH_VARARGS, "The compiled twin of the function of this name in Python."}
static PyMethodDef methods[] = {
    TWIN(stamp_bodies), TWIN(split_runs), TWIN(count_chained), TWIN(bodies_match), TWIN(any_body_begins),
    TWIN(pack_units), TWIN(plain_batches), TWIN(plain_batches_of_run), TWIN(pack_batches), TWIN(pack_rows), TWIN(fill_answers),
    TWIN(take_frames), TWIN(rows_by_key), TWIN(spread_bytes), TWIN(count_sound), TWIN(fetched_rows), TWIN(stretches),
    TWIN(one_record_parts), TWIN(heads_match), TWIN(join_values), TWIN(is_ascii), {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "dledger._compiled", "What touches the bytes of each entry, frame or key.", 0, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__compiled(void) {
    make_tables();
    return PyModule_Create(&module);
}
