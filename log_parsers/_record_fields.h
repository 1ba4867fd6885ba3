/* The fields of records that tell who wrote them, cut out of many lines at once. */

static const char *place_of(const char *at, const char *stop, const char *front, Py_ssize_t size) {
    for (; stop - at >= size && (at = memchr(at, front[0], (size_t)(stop - at - size + 1))) != NULL; at++)
        if (memcmp(at, front, (size_t)size) == 0)
            return at;
    return NULL;
}

static int push(Growing *text, const char *from, Py_ssize_t size) {
    if (text->size + size > text->room && !grown(text, size))
        return 0;
    memcpy(text->bytes + text->size, from, (size_t)size);
    text->size += size;
    return 1;
}

PyDoc_STRVAR(record_fields_doc,
             "Return a text with the fields of a record on each line, and where its lines end.\n\n"
             "A line without all of them is empty.\n\n"
             "Args:\n    data: the piece.\n    ends, rows: 64-bit integers.\n"
             "    fronts: what stands in front of the value of each field, which a quotation mark ends.");

static PyObject *record_fields(PyObject *module, PyObject *args) {
    Py_buffer data, ends, rows;
    PyObject *fronts, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*y*y*O!", &data, &ends, &rows, &PyTuple_Type, &fronts))
        return NULL;
    const int64_t *end = ends.buf, *row = rows.buf;
    Py_ssize_t lines = ends.len / 8, count = rows.len / 8, fields = PyTuple_GET_SIZE(fronts);
    Growing text = {0}, stops = {0};
    for (Py_ssize_t one = 0; one < fields; one++)
        if (!PyBytes_Check(PyTuple_GET_ITEM(fronts, one)) || PyBytes_GET_SIZE(PyTuple_GET_ITEM(fronts, one)) < 1) {
            PyErr_SetString(PyExc_ValueError, "no front");
            goto done;
        }
    for (Py_ssize_t at = 0; at < count; at++) {
        int64_t here = row[at];
        if (here < 0 || here >= lines || end[here] > data.len) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        Py_ssize_t start = here ? (Py_ssize_t)end[here - 1] + 1 : 0, before = text.size, one = 0;
        const char *line = (const char *)data.buf + start, *stop = (const char *)data.buf + end[here];
        if (start < 0 || line > stop) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        if (line < stop && *line == '{' && !push(&text, "{", 1))
            goto done;
        for (; text.size > before && one < fields; one++) {
            PyObject *front = PyTuple_GET_ITEM(fronts, one);
            Py_ssize_t size = PyBytes_GET_SIZE(front);
            const char *found = place_of(line, stop, PyBytes_AS_STRING(front), size);
            const char *quote = found == NULL ? NULL : memchr(found + size, '"', (size_t)(stop - found - size));
            if (quote == NULL)
                break;
            if (!push(&text, " ", 1) || !push(&text, found + 1, quote - found - 1))
                goto done;
        }
        if (one < fields)
            text.size = before;
        if (!push64(&stops, text.size) || !push(&text, "\n", 1))
            goto done;
    }
    PyObject *cut = released(&text), *where = released(&stops);
    result = cut && where ? Py_BuildValue("OO", cut, where) : NULL;
    Py_XDECREF(cut);
    Py_XDECREF(where);
done:
    PyMem_Free(text.bytes);
    PyMem_Free(stops.bytes);
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&rows);
    return result;
}
