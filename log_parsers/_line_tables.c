/* The loops over every line of a large log that numpy and pyarrow need several passes for.

   A table gives each text a number, in order of appearance. Texts are told apart by 128 bits of a keyed
   hash (two lanes of multiply and mix, keys drawn by each process), not by their bytes: short of a chance
   of one in some 10^20 for a million texts it is the same. All of it is built where a compiler is at hand
   when rerail is installed; `line_tables.py` says what stands in its place elsewhere. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#include "_line_skeletons.h"

#define LONGEST_ON_STACK 4096
#define BLOCK 2048 /* bytes whose skeletons are made before any of them is counted */

typedef struct {
    uint64_t low, high;
    int32_t code; /* -1 where the slot is free */
} Slot;

typedef struct {
    PyObject_HEAD
    Slot *slots;
    Py_ssize_t mask, count;
    uint64_t keys[4];
    PyObject *texts; /* of the skeletons, by code */
    Py_ssize_t text_bytes;
    long era; /* a number for as long as no skeleton is forgotten, different from that of any other table */
    int32_t *place;  /* of a skeleton among those of a piece */
    uint32_t *stamp; /* of the piece that `place` is of */
    uint32_t piece;
    Py_ssize_t room; /* of `place` and `stamp` */
    unsigned char *scratch; /* for skeletons */
    Py_ssize_t scratch_room;
} Table;

typedef struct {
    char *bytes;
    Py_ssize_t size, room;
} Growing;

static int grown(Growing *array, Py_ssize_t more) {
    if (array->size + more <= array->room)
        return 1;
    Py_ssize_t room = 2 * (array->size + more) + 4096;
    char *bytes = PyMem_Realloc(array->bytes, (size_t)room);
    if (bytes == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    array->bytes = bytes;
    array->room = room;
    return 1;
}

static inline int push64(Growing *array, int64_t value) {
    if (array->size + 8 > array->room && !grown(array, 8))
        return 0;
    memcpy(array->bytes + array->size, &value, 8);
    array->size += 8;
    return 1;
}

static inline int push32(Growing *array, int32_t value) {
    if (array->size + 4 > array->room && !grown(array, 4))
        return 0;
    memcpy(array->bytes + array->size, &value, 4);
    array->size += 4;
    return 1;
}

static PyObject *released(Growing *array) {
    PyObject *made = PyBytes_FromStringAndSize(array->bytes, array->size);
    PyMem_Free(array->bytes);
    array->bytes = NULL;
    return made;
}

static int larger(Table *table) {
    /* Many tables are of one small file. */
    Py_ssize_t mask = table->mask < 4096 ? 4 * table->mask + 3 : 2 * table->mask + 1;
    Slot *slots = PyMem_Malloc((size_t)(mask + 1) * sizeof(Slot));
    if (slots == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    for (Py_ssize_t at = 0; at <= mask; at++)
        slots[at].code = -1;
    for (Py_ssize_t old = 0; old <= table->mask; old++) {
        Slot slot = table->slots[old];
        if (slot.code < 0)
            continue;
        Py_ssize_t at = (Py_ssize_t)slot.low & mask;
        while (slots[at].code >= 0)
            at = (at + 1) & mask;
        slots[at] = slot;
    }
    PyMem_Free(table->slots);
    table->slots = slots;
    table->mask = mask;
    return 1;
}

/* Return the code of a text, -1 where it is not known, -2 where there is no memory. */
static inline int32_t code_of(Table *table, const unsigned char *text, Py_ssize_t size, int add) {
    uint64_t low, high;
    hash_of(table->keys, text, size, &low, &high);
    Py_ssize_t at = (Py_ssize_t)low & table->mask;
    while (table->slots[at].code >= 0) {
        if (table->slots[at].low == low && table->slots[at].high == high)
            return table->slots[at].code;
        at = (at + 1) & table->mask;
    }
    if (!add)
        return -1;
    int32_t code = (int32_t)table->count;
    table->slots[at] = (Slot){low, high, code};
    table->count++;
    if (3 * table->count > 2 * table->mask && !larger(table))
        return -2;
    return code;
}

static void emptied(Table *table) {
    for (Py_ssize_t at = 0; at <= table->mask; at++)
        table->slots[at].code = -1;
    table->count = 0;
}

static long eras;

static int Table_init(Table *self, PyObject *args, PyObject *kwargs) {
    Py_buffer keys;
    static char *names[] = {"keys", NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "y*", names, &keys))
        return -1;
    if (keys.len != sizeof self->keys) {
        PyBuffer_Release(&keys);
        PyErr_SetString(PyExc_ValueError, "a table takes 32 random bytes");
        return -1;
    }
    memcpy(self->keys, keys.buf, sizeof self->keys);
    PyBuffer_Release(&keys);
    PyMem_Free(self->slots);
    self->mask = 63;
    self->slots = PyMem_Malloc((size_t)(self->mask + 1) * sizeof(Slot));
    Py_XSETREF(self->texts, PyList_New(0));
    self->text_bytes = 0;
    self->era = ++eras;
    if (self->slots == NULL || self->texts == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    emptied(self);
    return 0;
}

static void Table_dealloc(Table *self) {
    PyMem_Free(self->slots);
    PyMem_Free(self->place);
    PyMem_Free(self->stamp);
    PyMem_Free(self->scratch);
    Py_XDECREF(self->texts);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t Table_length(Table *self) { return self->count; }

PyDoc_STRVAR(put_doc, "Return the number of a text; one that is new gets the next, or -1 where there are `most`.");

static PyObject *Table_put(Table *self, PyObject *args) {
    Py_buffer text;
    Py_ssize_t most = PY_SSIZE_T_MAX;
    if (!PyArg_ParseTuple(args, "y*|n", &text, &most))
        return NULL;
    int32_t code = code_of(self, text.buf, text.len, self->count < most);
    PyBuffer_Release(&text);
    return code < -1 ? NULL : PyLong_FromLong(code);
}

static int room_for(Table *self, Py_ssize_t codes) {
    if (codes <= self->room)
        return 1;
    Py_ssize_t room = 2 * codes + 1024;
    int32_t *place = PyMem_Realloc(self->place, (size_t)room * sizeof *place);
    if (place != NULL)
        self->place = place;
    uint32_t *stamp = PyMem_Realloc(self->stamp, (size_t)room * sizeof *stamp);
    if (stamp != NULL)
        self->stamp = stamp;
    if (place == NULL || stamp == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    memset(self->stamp + self->room, 0, (size_t)(room - self->room) * sizeof *stamp);
    self->room = room;
    return 1;
}

static int wider(Table *self, Py_ssize_t room) {
    unsigned char *scratch = PyMem_Realloc(self->scratch, (size_t)room);
    if (scratch == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    self->scratch = scratch;
    self->scratch_room = room;
    return 1;
}

/* Count one frame; the arrays hold what was counted of the piece so far. */
static int counted(Table *self, const unsigned char *skeleton, Py_ssize_t length, int64_t frame,
                   Growing *codes, Growing *numbers, Growing *firsts, int64_t **lasts, int64_t **counts, Py_ssize_t *room,
                   PyObject *keys) {
    int32_t code = code_of(self, skeleton, length, 1);
    if (code < 0)
        return 0;
    if (code > PyList_GET_SIZE(self->texts)) {
        PyErr_SetString(PyExc_ValueError, "a table of skeletons holds nothing else");
        return 0;
    }
    if (code == PyList_GET_SIZE(self->texts)) {
        PyObject *key = PyBytes_FromStringAndSize((const char *)skeleton, length);
        if (key == NULL || PyList_Append(self->texts, key) < 0) {
            Py_XDECREF(key);
            return 0;
        }
        Py_DECREF(key);
        self->text_bytes += length + 80;
        if (!room_for(self, code + 1))
            return 0;
    }
    Py_ssize_t local = self->place[code];
    if (self->stamp[code] != self->piece) {
        local = PyList_GET_SIZE(keys);
        self->stamp[code] = self->piece;
        self->place[code] = (int32_t)local;
        if (local >= *room) {
            *room = 2 * *room + 512;
            int64_t *more = PyMem_Realloc(*lasts, (size_t)*room * 8);
            if (more != NULL)
                *lasts = more;
            int64_t *most = PyMem_Realloc(*counts, (size_t)*room * 8);
            if (most != NULL)
                *counts = most;
            if (more == NULL || most == NULL) {
                PyErr_NoMemory();
                return 0;
            }
        }
        (*counts)[local] = 0;
        if (!push64(firsts, frame) || !push32(numbers, code) || PyList_Append(keys, PyList_GET_ITEM(self->texts, code)) < 0)
            return 0;
    }
    (*counts)[local]++;
    (*lasts)[local] = frame;
    return push32(codes, (int32_t)local);
}

PyDoc_STRVAR(tally_doc,
             "Count the skeletons of whole frames: (ends, codes, first, last, counts, numbers, keys, era).\n\n"
             "Args:\n    data: the piece.\n    returns: whether carriage returns end frames as well.\n"
             "    most: skeletons that are remembered.\n    most_bytes: of them.\n\n"
             "All are bytes of 64-bit integers, but codes (in order of appearance in the piece) and numbers (those of the\n"
             "skeletons in the table, which hold for one era) of 32-bit ones.");

static PyObject *Table_tally(Table *self, PyObject *args) {
    Py_buffer data;
    int returns;
    Py_ssize_t most, most_bytes;
    if (!PyArg_ParseTuple(args, "y*pnn", &data, &returns, &most, &most_bytes))
        return NULL;
    Growing ends = {0}, codes = {0}, numbers = {0}, firsts = {0};
    int64_t *lasts = NULL, *counts = NULL;
    Py_ssize_t room = 0;
    Frame frames[BLOCK];
    PyObject *result = NULL, *keys = PyList_New(0);
    if (keys == NULL)
        goto done;
    if (self->count > most || self->text_bytes > most_bytes) {
        emptied(self);
        if (PyList_SetSlice(self->texts, 0, PyList_GET_SIZE(self->texts), NULL) < 0)
            goto done;
        self->text_bytes = 0;
        self->era = ++eras;
    }
    if (++self->piece == 0) {
        self->piece = 1;
        for (Py_ssize_t at = 0; at < self->room; at++)
            self->stamp[at] = 0;
    }
    int64_t frame = 0, length = 0;
    for (Py_ssize_t from = 0; from < data.len; from += BLOCK) {
        if (length + BLOCK + SLACK > self->scratch_room && !wider(self, 2 * (length + BLOCK + SLACK)))
            goto done;
        Py_ssize_t to = data.len - from < BLOCK ? data.len : from + BLOCK;
        int64_t found = skeletons(data.buf, from, to, returns, self->scratch, &length, frames), begun = 0;
        for (int64_t at = 0; at < found; at++, frame++) {
            if (!push64(&ends, frames[at].end) ||
                !counted(self, self->scratch + begun, frames[at].skeleton - begun, frame, &codes, &numbers, &firsts,
                         &lasts, &counts, &room, keys))
                goto done;
            begun = frames[at].skeleton + 1;
        }
        length -= begun; /* of a frame that goes on; a piece ends with a frame */
        memmove(self->scratch, self->scratch + begun, (size_t)length);
    }
    Growing last = {(char *)lasts, 8 * PyList_GET_SIZE(keys), 0};
    Growing count = {(char *)counts, 8 * PyList_GET_SIZE(keys), 0};
    lasts = counts = NULL;
    result = Py_BuildValue("NNNNNNOl", released(&ends), released(&codes), released(&firsts), released(&last),
                           released(&count), released(&numbers), keys, self->era);
done:
    PyMem_Free(ends.bytes);
    PyMem_Free(codes.bytes);
    PyMem_Free(numbers.bytes);
    PyMem_Free(firsts.bytes);
    PyMem_Free(lasts);
    PyMem_Free(counts);
    Py_XDECREF(keys);
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(lines_doc,
             "Return (codes, places of those that are new) of some lines of a piece.\n\n"
             "Args:\n    data: the piece.\n    ends: where its lines end, 64-bit integers.\n"
             "    rows: which lines, 64-bit integers.\n    zero: whether all digits are the same.");

static PyObject *Table_lines(Table *self, PyObject *args) {
    Py_buffer data, ends, rows;
    int zero;
    if (!PyArg_ParseTuple(args, "y*y*y*p", &data, &ends, &rows, &zero))
        return NULL;
    const unsigned char *text = data.buf;
    const int64_t *end = ends.buf, *row = rows.buf;
    Py_ssize_t count = rows.len / 8, lines = ends.len / 8, widest = LONGEST_ON_STACK;
    unsigned char stack[LONGEST_ON_STACK + SLACK], *buffer = stack, *heap = NULL;
    Growing fresh = {0};
    PyObject *result = NULL, *codes = PyBytes_FromStringAndSize(NULL, 4 * count);
    if (codes == NULL)
        goto done;
    int32_t *out = (int32_t *)PyBytes_AS_STRING(codes);
    for (Py_ssize_t at = 0; at < count; at++) {
        if (row[at] < 0 || row[at] >= lines || end[row[at]] > data.len) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        Py_ssize_t start = row[at] ? (Py_ssize_t)end[row[at] - 1] + 1 : 0;
        Py_ssize_t size = (Py_ssize_t)end[row[at]] - start, known = self->count;
        const unsigned char *line = text + start;
        if (start < 0 || size < 0) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        if (zero) {
            if (size > widest) {
                PyMem_Free(heap);
                widest = 2 * size;
                buffer = heap = PyMem_Malloc((size_t)widest + SLACK);
                if (heap == NULL) {
                    PyErr_NoMemory();
                    goto done;
                }
            }
            zeroed(line, size, text + data.len, buffer);
            line = buffer;
        }
        out[at] = code_of(self, line, size, 1);
        if (out[at] < 0 || (self->count > known && !push64(&fresh, at)))
            goto done;
    }
    PyObject *places = released(&fresh);
    result = places == NULL ? NULL : Py_BuildValue("ON", codes, places);
done:
    Py_XDECREF(codes);
    PyMem_Free(fresh.bytes);
    PyMem_Free(heap);
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&rows);
    return result;
}

typedef struct {
    int32_t end, window, from, to; /* parts of a front that name its writer: from .. to of `parts` */
} Cut;

PyDoc_STRVAR(
    streams_doc,
    "Set the stream of each line and where the window around its time begins.\n\n"
    "The table holds the shapes of fronts: their first bytes with all digits zeroed.\n\n"
    "Args:\n    data, ends: the piece and where its lines end.\n    codes: the kind of each line.\n"
    "    widths, windows: by kind, how much of a front tells its shape, and the window where that is nothing.\n"
    "    cuts: by shape, end of the labels (-1: not to be cut so), window, and which parts name the writer.\n"
    "    parts: first byte and end of each.\n    names: the table of writers, by stream.\n    examples: a line of each.\n"
    "    streams, windows_out: where the answer goes.\n"
    "    first, most: the row to begin at, and how many rows of known shapes may be left out.\n"
    "    streams_at_most, example: streams beyond these are none; bytes behind the labels of an example.\n\n"
    "All arrays are of 32-bit integers, `ends` of 64-bit ones. Returns (rows left out, the row to go on at, the\n"
    "end of the labels of each new example).");

static PyObject *Table_streams(Table *self, PyObject *args) {
    Py_buffer data, ends, codes, widths, windows, cuts, parts, streams, starts;
    Table *names;
    PyObject *examples;
    Py_ssize_t row, most, writers, behind;
    if (!PyArg_ParseTuple(args, "y*y*y*y*y*y*y*OO!w*w*nnnn", &data, &ends, &codes, &widths, &windows, &cuts,
                          &parts, &names, &PyList_Type, &examples, &streams, &starts, &row, &most, &writers,
                          &behind))
        return NULL;
    const unsigned char *text = data.buf;
    const int64_t *end = ends.buf;
    const int32_t *code = codes.buf, *width = widths.buf, *window = windows.buf;
    const int32_t(*part)[2] = parts.buf;
    const Cut *cut = cuts.buf;
    Py_ssize_t lines = ends.len / 8, kinds = widths.len / 4, shapes = cuts.len / (Py_ssize_t)sizeof *cut;
    Py_ssize_t spans = parts.len / 8;
    int32_t *stream = streams.buf, *where = starts.buf;
    Growing left = {0}, labels = {0};
    unsigned char front[LONGEST_ON_STACK + SLACK], name[LONGEST_ON_STACK];
    PyObject *result = NULL;
    if (Py_TYPE(names) != Py_TYPE(self) || codes.len / 4 < lines || streams.len / 4 < lines ||
        starts.len / 4 < lines || windows.len / 4 < kinds || row < 0 || row > lines) {
        PyErr_SetString(PyExc_ValueError, "arrays of different lengths");
        goto done;
    }
    Py_ssize_t start = row ? (Py_ssize_t)end[row - 1] + 1 : 0;
    for (; row < lines && left.size < 8 * most; start = (Py_ssize_t)end[row] + 1, row++) {
        Py_ssize_t size = (Py_ssize_t)end[row] - start;
        if (code[row] < 0 || code[row] >= kinds || start < 0 || size < 0 || end[row] > data.len) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        Py_ssize_t wide = width[code[row]];
        stream[row] = 0;
        where[row] = window[code[row]];
        if (wide <= 0)
            continue;
        if (wide > size)
            wide = size;
        int32_t shape = -1;
        if (wide <= LONGEST_ON_STACK) {
            zeroed(text + start, wide, text + data.len, front);
            shape = code_of(self, front, wide, 0);
        }
        int known_shape = shape >= 0 && shape < shapes;
        if (known_shape && cut[shape].end >= 0 && cut[shape].end <= size) {
            where[row] = cut[shape].window;
            if (cut[shape].end == 0)
                continue;
            Py_ssize_t length = 0, known = names->count;
            for (Py_ssize_t one = cut[shape].from; one < cut[shape].to && one < spans; one++) {
                Py_ssize_t first = part[one][0], more = part[one][1] - first;
                if (first < 0 || more < 0 || first + more > size || length + more > (Py_ssize_t)sizeof name)
                    break;
                memcpy(name + length, text + start + first, (size_t)more);
                length += more;
            }
            int32_t found = code_of(names, name, length, known < writers);
            if (found < -1)
                goto done;
            if (names->count > known) {
                Py_ssize_t shown = cut[shape].end + behind;
                PyObject *example = PyBytes_FromStringAndSize((const char *)text + start, shown < size ? shown : size);
                if (example == NULL || PyList_Append(examples, example) < 0 || !push32(&labels, cut[shape].end)) {
                    Py_XDECREF(example);
                    goto done;
                }
                Py_DECREF(example);
            }
            stream[row] = found < 0 ? 0 : found;
            continue;
        }
        if (!push64(&left, row))
            goto done;
        if (!known_shape) {
            row++;
            break; /* what is learned of it holds for those that follow */
        }
    }
    PyObject *rows = released(&left), *new_ends = released(&labels);
    result = rows && new_ends ? Py_BuildValue("OnO", rows, row, new_ends) : NULL;
    Py_XDECREF(rows);
    Py_XDECREF(new_ends);
done:
    PyMem_Free(left.bytes);
    PyMem_Free(labels.bytes);
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&codes);
    PyBuffer_Release(&widths);
    PyBuffer_Release(&windows);
    PyBuffer_Release(&cuts);
    PyBuffer_Release(&parts);
    PyBuffer_Release(&streams);
    PyBuffer_Release(&starts);
    return result;
}

static PyMethodDef Table_methods[] = {
    {"put", (PyCFunction)Table_put, METH_VARARGS, put_doc},
    {"tally", (PyCFunction)Table_tally, METH_VARARGS, tally_doc},
    {"lines", (PyCFunction)Table_lines, METH_VARARGS, lines_doc},
    {"streams", (PyCFunction)Table_streams, METH_VARARGS, streams_doc},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods Table_sequence = {.sq_length = (lenfunc)Table_length};

static PyTypeObject TableType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rerail.log_parsers._line_tables.Table",
    .tp_basicsize = sizeof(Table),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = PyDoc_STR("Numbers of texts, in order of appearance."),
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Table_init,
    .tp_dealloc = (destructor)Table_dealloc,
    .tp_methods = Table_methods,
    .tp_as_sequence = &Table_sequence,
};

#include "_kept_lines.h"
#include "_line_facts.h"
#include "_record_fields.h"
#include "_step_layouts.h"

PyDoc_STRVAR(begun_doc, "Return the rows of the lines from `first` up to `last` that begin with some bytes, 64-bit integers.\n\n"
                        "Args:\n    data, ends: the piece and where its lines end, 64-bit integers.\n    label: the bytes.");

static PyObject *begun(PyObject *module, PyObject *args) {
    Py_buffer data, ends, label;
    Py_ssize_t first, last;
    if (!PyArg_ParseTuple(args, "y*y*y*nn", &data, &ends, &label, &first, &last))
        return NULL;
    const int64_t *end = ends.buf;
    Py_ssize_t lines = ends.len / 8;
    Growing rows = {0};
    PyObject *result = NULL;
    for (Py_ssize_t row = first < 0 ? 0 : first; row < last && row <= lines; row++) {
        Py_ssize_t start = row ? (Py_ssize_t)end[row - 1] + 1 : 0;
        if (start < 0 || data.len - start < label.len)
            break;
        if (memcmp((const char *)data.buf + start, label.buf, (size_t)label.len) == 0 && !push64(&rows, row))
            goto done;
    }
    result = released(&rows);
done:
    PyMem_Free(rows.bytes);
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&label);
    return result;
}

PyDoc_STRVAR(line_ends_doc, "Return the offset of every newline, bytes of 64-bit integers.");

static PyObject *line_ends(PyObject *module, PyObject *args) {
    Py_buffer data;
    if (!PyArg_ParseTuple(args, "y*", &data))
        return NULL;
    Growing ends = {0};
    PyObject *result = NULL;
    const char *start = data.buf, *stop = start + data.len;
    for (const char *at = start; at < stop && (at = memchr(at, '\n', (size_t)(stop - at))) != NULL; at++)
        if (!push64(&ends, at - start))
            goto done;
    result = released(&ends);
done:
    PyMem_Free(ends.bytes);
    PyBuffer_Release(&data);
    return result;
}

PyDoc_STRVAR(windows_doc, "Return so many bytes of some lines, behind an offset in each, padded with NUL.\n\n"
                          "Args:\n    data: the piece.\n    ends, rows: 64-bit integers.\n"
                          "    offsets: of all lines, 32-bit integers.\n    size: bytes of each.");

static PyObject *windows(PyObject *module, PyObject *args) {
    Py_buffer data, ends, rows, offsets;
    Py_ssize_t size;
    if (!PyArg_ParseTuple(args, "y*y*y*y*n", &data, &ends, &rows, &offsets, &size))
        return NULL;
    const int64_t *end = ends.buf, *row = rows.buf;
    const int32_t *offset = offsets.buf;
    Py_ssize_t lines = ends.len / 8, count = rows.len / 8;
    PyObject *found = size < 0 ? PyErr_NoMemory() : PyBytes_FromStringAndSize(NULL, count * size);
    if (found == NULL)
        goto done;
    char *out = PyBytes_AS_STRING(found);
    memset(out, 0, (size_t)(count * size));
    for (Py_ssize_t at = 0; at < count; at++, out += size) {
        Py_ssize_t line = (Py_ssize_t)row[at];
        if (line < 0 || line >= lines || line >= offsets.len / 4 || offset[line] < 0) {
            Py_CLEAR(found);
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        Py_ssize_t start = (line ? (Py_ssize_t)end[line - 1] + 1 : 0) + offset[line];
        Py_ssize_t left = data.len - start;
        if (left > 0)
            memcpy(out, (char *)data.buf + start, (size_t)(left < size ? left : size));
    }
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&offsets);
    return found;
}

PyDoc_STRVAR(grouped_doc,
             "Return (keys, counts, first rows, last rows) of lines by stream, bytes of 64-bit integers.\n\n"
             "Args:\n    streams: of all lines of a piece, 32-bit integers.\n"
             "    rows: which lines, 64-bit integers in order; empty for all of them.");

static PyObject *grouped(PyObject *module, PyObject *args) {
    Py_buffer streams, rows;
    if (!PyArg_ParseTuple(args, "y*y*", &streams, &rows))
        return NULL;
    const int32_t *stream = streams.buf;
    const int64_t *row = rows.buf;
    Py_ssize_t lines = streams.len / 4, wanted = rows.len / 8, count = wanted ? wanted : lines;
    Growing arrays[4] = {{0}};
    int32_t highest = -1, *place = NULL;
    PyObject *result = NULL;
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t line = wanted ? (Py_ssize_t)row[at] : at;
        if (line < 0 || line >= lines || stream[line] < 0) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        if (stream[line] > highest)
            highest = stream[line];
    }
    place = PyMem_Calloc((size_t)highest + 2, sizeof *place);
    if (place == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    int32_t present = 0;
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t line = wanted ? (Py_ssize_t)row[at] : at;
        int32_t here = place[stream[line]];
        if (here == 0) {
            place[stream[line]] = here = ++present;
            if (!push64(&arrays[0], stream[line]) || !push64(&arrays[1], 0) || !push64(&arrays[2], line) ||
                !push64(&arrays[3], line))
                goto done;
        }
        ((int64_t *)arrays[1].bytes)[here - 1]++;
        ((int64_t *)arrays[3].bytes)[here - 1] = line;
    }
    result = Py_BuildValue("NNNN", released(&arrays[0]), released(&arrays[1]), released(&arrays[2]),
                           released(&arrays[3]));
done:
    for (int at = 0; at < 4; at++)
        PyMem_Free(arrays[at].bytes);
    PyMem_Free(place);
    PyBuffer_Release(&streams);
    PyBuffer_Release(&rows);
    return result;
}

PyDoc_STRVAR(taken_doc, "Return some lines of a piece with their ends, as one text.\n\n"
                        "Args:\n    data: the piece.\n    ends, rows: 64-bit integers.");

static PyObject *taken(PyObject *module, PyObject *args) {
    Py_buffer data, ends, rows;
    if (!PyArg_ParseTuple(args, "y*y*y*", &data, &ends, &rows))
        return NULL;
    const int64_t *end = ends.buf, *row = rows.buf;
    Py_ssize_t lines = ends.len / 8, count = rows.len / 8, size = 0;
    PyObject *text = NULL;
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t line = (Py_ssize_t)row[at];
        if (line < 0 || line >= lines || end[line] < 0 || end[line] >= data.len ||
            (line && (end[line - 1] < 0 || end[line] <= end[line - 1]))) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        size += (Py_ssize_t)(end[line] - (line ? end[line - 1] : -1));
    }
    text = PyBytes_FromStringAndSize(NULL, size);
    if (text == NULL)
        goto done;
    char *out = PyBytes_AS_STRING(text);
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t start = row[at] ? (Py_ssize_t)end[row[at] - 1] + 1 : 0;
        Py_ssize_t length = (Py_ssize_t)end[row[at]] + 1 - start;
        memcpy(out, (char *)data.buf + start, (size_t)length);
        out += length;
    }
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&rows);
    return text;
}

static PyMethodDef functions[] = {
    {"taken", taken, METH_VARARGS, taken_doc},
    {"windows", windows, METH_VARARGS, windows_doc},
    {"grouped", grouped, METH_VARARGS, grouped_doc},
    {"line_ends", line_ends, METH_VARARGS, line_ends_doc},
    {"begun", begun, METH_VARARGS, begun_doc},
    {"kept", kept, METH_VARARGS, kept_doc},
    {"record_fields", record_fields, METH_VARARGS, record_fields_doc},
    {"step_lines", step_lines, METH_VARARGS, step_lines_doc},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_line_tables", "Loops over every line of a large log.", -1, functions, NULL, NULL,
    NULL, NULL};

PyMODINIT_FUNC PyInit__line_tables(void) {
    choose_loops();
    if (PyType_Ready(&TableType) < 0 || PyType_Ready(&FactsType) < 0)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && (PyModule_AddObjectRef(made, "Table", (PyObject *)&TableType) < 0 ||
                         PyModule_AddObjectRef(made, "Facts", (PyObject *)&FactsType) < 0))
        Py_CLEAR(made);
    return made;
}
