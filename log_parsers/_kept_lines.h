/* Copies some lines of a piece into a dict by their numbers. */

#ifndef RERAIL_KEPT_LINES_H
#define RERAIL_KEPT_LINES_H

/* Return a line, or head and end of one that is too long. */
static PyObject *bounded(const char *line, Py_ssize_t size, Py_ssize_t longest) {
    if (size <= longest)
        return PyBytes_FromStringAndSize(line, size);
    Py_ssize_t half = longest / 2;
    PyObject *made = PyBytes_FromStringAndSize(NULL, 2 * half);
    if (made != NULL) {
        memcpy(PyBytes_AS_STRING(made), line, (size_t)half);
        memcpy(PyBytes_AS_STRING(made) + half, line + size - half, (size_t)half);
    }
    return made;
}

PyDoc_STRVAR(kept_doc,
             "Put lines of a piece into a dict by their numbers, and return how many bytes were added.\n\n"
             "Args:\n    lines: the dict; what it holds stays.\n    data, ends: the piece and where its lines end.\n"
             "    rows: which lines, 64-bit integers as `ends`; rows behind the last are left out.\n"
             "    first: the number of the first line.\n    room: once more bytes were added, no more are.\n"
             "    longest: of a longer line head and end are kept.");

static PyObject *kept(PyObject *module, PyObject *args) {
    PyObject *lines, *result = NULL;
    Py_buffer data, ends, rows;
    long long first;
    Py_ssize_t room, longest, added = 0;
    if (!PyArg_ParseTuple(args, "O!y*y*y*Lnn", &PyDict_Type, &lines, &data, &ends, &rows, &first, &room, &longest))
        return NULL;
    const char *text = data.buf;
    const int64_t *end = ends.buf, *row = rows.buf;
    Py_ssize_t whole = ends.len / 8, count = rows.len / 8;
    int open = data.len == 0 || text[data.len - 1] != '\n';
    for (Py_ssize_t at = 0; at < count && added <= room; at++) {
        Py_ssize_t line = (Py_ssize_t)row[at];
        if (line >= whole + open)
            continue;
        Py_ssize_t start = line > 0 ? (Py_ssize_t)end[line - 1] + 1 : 0;
        Py_ssize_t stop = line < 0 ? -1 : line < whole ? (Py_ssize_t)end[line] : data.len;
        if (start < 0 || stop < start || stop > data.len) {
            PyErr_SetString(PyExc_IndexError, "no such line");
            goto done;
        }
        PyObject *number = PyLong_FromLongLong(first + line);
        int known = number == NULL ? -1 : PyDict_Contains(lines, number);
        if (known == 0) {
            PyObject *raw = bounded(text + start, stop - start, longest);
            known = raw == NULL ? -1 : PyDict_SetItem(lines, number, raw);
            added += raw == NULL ? 0 : PyBytes_GET_SIZE(raw);
            Py_XDECREF(raw);
        }
        Py_XDECREF(number);
        if (known < 0)
            goto done;
    }
    result = PyLong_FromSsize_t(added);
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&rows);
    return result;
}

#endif
