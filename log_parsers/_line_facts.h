/* Facts about lines by signature set and stream: how often, on which first and last line, and their times.

   A key is a 64-bit number; beside each stand a count, the first and the last line, and so many bytes of both. */

#ifndef RERAIL_LINE_FACTS_H
#define RERAIL_LINE_FACTS_H

#define WINDOW 48

typedef struct {
    int64_t key, count, first, last;
    int64_t row;    /* of the last line in the piece that is read */
    uint64_t touch; /* the call that changed the last line */
    char first_window[WINDOW], last_window[WINDOW];
} Fact;

typedef struct {
    PyObject_HEAD
    Fact *facts;
    int32_t *slots; /* places in `facts`, -1 where free */
    Py_ssize_t mask, count, room;
    uint64_t touch;
} Facts;

static inline Py_ssize_t slot_of(const Facts *self, int64_t key) {
    uint64_t spread = (uint64_t)key * 0x9E3779B97F4A7C15ull;
    Py_ssize_t at = (Py_ssize_t)(spread >> 32) & self->mask;
    while (self->slots[at] >= 0 && self->facts[self->slots[at]].key != key)
        at = (at + 1) & self->mask;
    return at;
}

static int facts_grown(Facts *self) {
    if (self->count == self->room) {
        Py_ssize_t room = 2 * self->room + 64;
        Fact *facts = PyMem_Realloc(self->facts, (size_t)room * sizeof *facts);
        if (facts == NULL) {
            PyErr_NoMemory();
            return 0;
        }
        self->facts = facts;
        self->room = room;
    }
    if (3 * self->count < 2 * self->mask)
        return 1;
    Py_ssize_t mask = 2 * self->mask + 1;
    int32_t *slots = PyMem_Malloc((size_t)(mask + 1) * sizeof *slots);
    if (slots == NULL) {
        PyErr_NoMemory();
        return 0;
    }
    PyMem_Free(self->slots);
    self->slots = slots;
    self->mask = mask;
    memset(slots, -1, (size_t)(mask + 1) * sizeof *slots);
    for (Py_ssize_t at = 0; at < self->count; at++)
        slots[slot_of(self, self->facts[at].key)] = (int32_t)at;
    return 1;
}

/* Copy the bytes at an offset of a line, padded with NUL behind the end of the piece. */
static void window_of(const Py_buffer *data, const int64_t *ends, const int32_t *offsets, Py_ssize_t row, char *out) {
    Py_ssize_t start = (row ? (Py_ssize_t)ends[row - 1] + 1 : 0) + offsets[row], left = data->len - start;
    memset(out, 0, WINDOW);
    if (left > 0)
        memcpy(out, (const char *)data->buf + start, (size_t)(left < WINDOW ? left : WINDOW));
}

PyDoc_STRVAR(facts_add_doc,
             "Count lines of a piece.\n\n"
             "Args:\n    data, ends: the piece and where its lines end, 64-bit integers.\n"
             "    streams, offsets: of all its lines, 32-bit integers.\n"
             "    rows: which lines, 64-bit integers in any order; None for all.\n"
             "    base: what is added to a stream to make a key.\n    first_line: the number of its first line.");

static PyObject *Facts_add(Facts *self, PyObject *args) {
    Py_buffer data, ends, streams, offsets, rows = {0};
    PyObject *some, *result = NULL;
    int32_t *touched = NULL;
    long long base, first_line;
    if (!PyArg_ParseTuple(args, "y*y*y*y*OLL", &data, &ends, &streams, &offsets, &some, &base, &first_line))
        return NULL;
    if (some != Py_None && PyObject_GetBuffer(some, &rows, PyBUF_C_CONTIGUOUS) < 0)
        goto done;
    const int64_t *end = ends.buf, *row = rows.buf;
    const int32_t *stream = streams.buf, *offset = offsets.buf;
    Py_ssize_t lines = ends.len / 8, count = some == Py_None ? streams.len / 4 : rows.len / 8, from = self->count;
    if (streams.len / 4 < lines)
        lines = streams.len / 4;
    if (offsets.len / 4 < lines)
        lines = offsets.len / 4;
    uint64_t touch = ++self->touch;
    touched = PyMem_Malloc((size_t)(count + 1) * sizeof *touched);
    Py_ssize_t changed = 0;
    if (touched == NULL) {
        PyErr_NoMemory();
        goto done;
    }
    for (Py_ssize_t at = 0; at < count; at++) {
        Py_ssize_t line = row ? (Py_ssize_t)row[at] : at;
        if (line < 0 || line >= lines || stream[line] < 0 || offset[line] < 0) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        int64_t key = base + stream[line], number = first_line + line;
        Py_ssize_t slot = slot_of(self, key);
        if (self->slots[slot] < 0) {
            if (!facts_grown(self))
                goto done;
            slot = slot_of(self, key);
            Fact *added = self->facts + self->count;
            *added = (Fact){.key = key, .first = number, .last = number, .row = line, .touch = touch};
            window_of(&data, end, offset, line, added->first_window);
            self->slots[slot] = (int32_t)self->count++;
            touched[changed++] = self->slots[slot];
        }
        Fact *fact = self->facts + self->slots[slot];
        fact->count++;
        if (number < fact->first) {
            fact->first = number;
            window_of(&data, end, offset, line, fact->first_window);
        }
        if (number > fact->last) {
            fact->last = number;
            fact->row = line;
            if (fact->touch != touch) {
                fact->touch = touch;
                touched[changed++] = self->slots[slot];
            }
        }
    }
    for (Py_ssize_t at = 0; at < changed; at++) {
        Fact *fact = self->facts + touched[at];
        window_of(&data, end, offset, (Py_ssize_t)fact->row, fact->last_window);
    }
    result = PyLong_FromSsize_t(self->count - from);
done:
    PyMem_Free(touched);
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&streams);
    PyBuffer_Release(&offsets);
    PyBuffer_Release(&rows);
    return result;
}

PyDoc_STRVAR(facts_add_sets_doc,
             "Count lines of a piece by what each of them shows: (sets, lines of each, the last rows of each, padded with -1).\n\n"
             "Args:\n    data, ends, streams, offsets, rows, first_line: as for `add`; rows in order.\n"
             "    sets: what each row shows, 32-bit integers.\n"
             "    bases: by set, what is added to a stream to make a key, 64-bit integers.\n"
             "    most: rows of each that are returned, in order.\n\nAll are bytes of 64-bit integers.");

static PyObject *Facts_add_sets(Facts *self, PyObject *args) {
    PyObject *data, *ends, *streams, *offsets, *order = NULL, *result = NULL;
    Py_buffer rows, sets, bases;
    long long first_line;
    Py_ssize_t most;
    if (!PyArg_ParseTuple(args, "OOOOy*y*y*Ln", &data, &ends, &streams, &offsets, &rows, &sets, &bases, &first_line,
                          &most))
        return NULL;
    const int64_t *row = rows.buf, *base = bases.buf;
    const int32_t *set = sets.buf;
    Py_ssize_t count = rows.len / 8, kinds = bases.len / 8;
    int32_t *place = PyMem_Malloc((size_t)(kinds + 1) * sizeof *place);
    Growing found = {0}, counts = {0}, last = {0}, sorted = {0}, starts = {0};
    if (place == NULL || most < 0) {
        PyErr_NoMemory();
        goto done;
    }
    memset(place, -1, (size_t)(kinds + 1) * sizeof *place);
    for (Py_ssize_t at = 0; at < count; at++) {
        if (at >= sets.len / 4 || set[at] < 0 || set[at] >= kinds) {
            PyErr_SetString(PyExc_IndexError, "no such set");
            goto done;
        }
        if (place[set[at]] < 0) {
            place[set[at]] = (int32_t)(found.size / 8);
            if (!push64(&found, set[at]) || !push64(&counts, 0))
                goto done;
        }
        ((int64_t *)counts.bytes)[place[set[at]]]++;
    }
    /* Rows by set, in order within each. */
    Py_ssize_t present = found.size / 8, start = 0;
    for (Py_ssize_t at = 0; at < present; at++) {
        if (!push64(&starts, start))
            goto done;
        start += (Py_ssize_t)((int64_t *)counts.bytes)[at];
    }
    if (!grown(&sorted, 8 * count + 8))
        goto done;
    for (Py_ssize_t at = 0; at < count; at++)
        ((int64_t *)sorted.bytes)[((int64_t *)starts.bytes)[place[set[at]]]++] = row[at];
    start = 0;
    for (Py_ssize_t at = 0; at < present; at++) {
        Py_ssize_t size = (Py_ssize_t)((int64_t *)counts.bytes)[at], taken = size < most ? size : most;
        const int64_t *own = (int64_t *)sorted.bytes + start;
        for (Py_ssize_t one = 0; one < most; one++)
            if (!push64(&last, one < taken ? own[size - taken + one] : -1))
                goto done;
        start += size;
        order = PyMemoryView_FromMemory((char *)own, 8 * size, PyBUF_READ);
        PyObject *given = order == NULL ? NULL : Py_BuildValue("OOOOOLL", data, ends, streams, offsets, order,
                                                               (long long)base[((int64_t *)found.bytes)[at]], first_line);
        PyObject *added = given == NULL ? NULL : Facts_add(self, given);
        Py_XDECREF(given);
        Py_CLEAR(order);
        if (added == NULL)
            goto done;
        Py_DECREF(added);
    }
    PyObject *columns[3] = {released(&found), released(&counts), released(&last)};
    if (columns[0] && columns[1] && columns[2])
        result = Py_BuildValue("OOO", columns[0], columns[1], columns[2]);
    for (int at = 0; at < 3; at++)
        Py_XDECREF(columns[at]);
done:
    PyMem_Free(place);
    PyMem_Free(found.bytes);
    PyMem_Free(counts.bytes);
    PyMem_Free(last.bytes);
    PyMem_Free(sorted.bytes);
    PyMem_Free(starts.bytes);
    PyBuffer_Release(&rows);
    PyBuffer_Release(&sets);
    PyBuffer_Release(&bases);
    return result;
}

PyDoc_STRVAR(facts_keys_doc, "Return the keys in order of appearance, bytes of 64-bit integers.");

static PyObject *Facts_keys(Facts *self, PyObject *unused) {
    PyObject *keys = PyBytes_FromStringAndSize(NULL, self->count * 8);
    for (Py_ssize_t at = 0; keys != NULL && at < self->count; at++)
        memcpy(PyBytes_AS_STRING(keys) + 8 * at, &self->facts[at].key, 8);
    return keys;
}

PyDoc_STRVAR(facts_columns_doc, "Return (keys, counts, first lines, last lines, bytes of first and of last lines);\n"
                                "numbers are bytes of 64-bit integers.\n\n"
                                "Args:\n    order: the places of the keys in order of appearance, 64-bit integers.");

static PyObject *Facts_columns(Facts *self, PyObject *args) {
    Py_buffer order;
    if (!PyArg_ParseTuple(args, "y*", &order))
        return NULL;
    const int64_t *wanted = order.buf;
    Py_ssize_t count = order.len / 8;
    PyObject *columns[6] = {0}, *result = NULL;
    for (int at = 0; at < 6; at++) {
        columns[at] = PyBytes_FromStringAndSize(NULL, count * (at < 4 ? 8 : WINDOW));
        if (columns[at] == NULL)
            goto done;
    }
    for (Py_ssize_t place = 0; place < count; place++) {
        if (wanted[place] < 0 || wanted[place] >= self->count) {
            PyErr_SetString(PyExc_IndexError, "no such key");
            goto done;
        }
        const Fact *fact = self->facts + wanted[place];
        for (int at = 0; at < 4; at++)
            memcpy(PyBytes_AS_STRING(columns[at]) + 8 * place, &fact->key + at, 8);
        memcpy(PyBytes_AS_STRING(columns[4]) + WINDOW * place, fact->first_window, WINDOW);
        memcpy(PyBytes_AS_STRING(columns[5]) + WINDOW * place, fact->last_window, WINDOW);
    }
    result = Py_BuildValue("OOOOOO", columns[0], columns[1], columns[2], columns[3], columns[4], columns[5]);
done:
    for (int at = 0; at < 6; at++)
        Py_XDECREF(columns[at]);
    PyBuffer_Release(&order);
    return result;
}

PyDoc_STRVAR(facts_firsts_doc, "Return the first lines of the keys from `least` up to `most` that came as number `from` or later,\n"
                               "in order of appearance, bytes of 64-bit integers.");

static PyObject *Facts_firsts(Facts *self, PyObject *args) {
    Py_ssize_t from;
    long long least, most;
    if (!PyArg_ParseTuple(args, "nLL", &from, &least, &most))
        return NULL;
    Growing firsts = {0};
    for (Py_ssize_t at = from < 0 ? 0 : from; at < self->count; at++) {
        const Fact *fact = self->facts + at;
        if (fact->key >= least && fact->key < most && !push64(&firsts, fact->first)) {
            PyMem_Free(firsts.bytes);
            return NULL;
        }
    }
    return released(&firsts);
}

static int Facts_init(Facts *self, PyObject *args, PyObject *kwargs) {
    static char *names[] = {NULL};
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "", names))
        return -1;
    self->count = 0;
    self->mask = 63;
    PyMem_Free(self->slots);
    self->slots = PyMem_Malloc((size_t)(self->mask + 1) * sizeof *self->slots);
    if (self->slots == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(self->slots, -1, (size_t)(self->mask + 1) * sizeof *self->slots);
    return 0;
}

static void Facts_dealloc(Facts *self) {
    PyMem_Free(self->facts);
    PyMem_Free(self->slots);
    Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_ssize_t Facts_length(Facts *self) { return self->count; }

static PyMethodDef Facts_methods[] = {
    {"add", (PyCFunction)Facts_add, METH_VARARGS, facts_add_doc},
    {"add_sets", (PyCFunction)Facts_add_sets, METH_VARARGS, facts_add_sets_doc},
    {"firsts", (PyCFunction)Facts_firsts, METH_VARARGS, facts_firsts_doc},
    {"keys", (PyCFunction)Facts_keys, METH_NOARGS, facts_keys_doc},
    {"columns", (PyCFunction)Facts_columns, METH_VARARGS, facts_columns_doc},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods Facts_sequence = {.sq_length = (lenfunc)Facts_length};

static PyTypeObject FactsType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "rerail.log_parsers._line_tables.Facts",
    .tp_basicsize = sizeof(Facts),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_doc = PyDoc_STR("Facts about lines by key."),
    .tp_new = PyType_GenericNew,
    .tp_init = (initproc)Facts_init,
    .tp_dealloc = (destructor)Facts_dealloc,
    .tp_methods = Facts_methods,
    .tp_as_sequence = &Facts_sequence,
};

#endif
