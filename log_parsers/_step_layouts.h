/* Step lines by their layouts: what is between numbers stands as it stood, numbers vary (`step_layouts.py`).

   A program is a row of parts: `L` and two bytes of length and so many bytes; `S` for one or more blanks; `A` for
   any number; `N` for one that is wanted, with its sign or 0, whether it has commas, a point, an exponent, which
   value it is, and its kind (0 whole, 1 real, 2 thousandths). */

#ifndef RERAIL_STEP_LAYOUTS_H
#define RERAIL_STEP_LAYOUTS_H

#define VALUES 10
#define LONGEST_LINE 4000

typedef struct {
    const unsigned char *start, *stop;
    unsigned char kind;
} Number;

static inline int is_digit(const unsigned char *at, const unsigned char *stop) {
    return at < stop && (unsigned char)(*at - '0') < 10;
}

static const unsigned char *past_digits(const unsigned char *at, const unsigned char *stop) {
    while (is_digit(at, stop))
        at++;
    return at;
}

static const unsigned char *past_thousands(const unsigned char *at, const unsigned char *stop) {
    while (stop - at >= 4 && *at == ',' && is_digit(at + 1, stop) && is_digit(at + 2, stop) && is_digit(at + 3, stop))
        at += 4;
    return at;
}

/* Return where the exponent ends; `at` itself where there is none. */
static const unsigned char *past_exponent(const unsigned char *at, const unsigned char *stop) {
    if (at >= stop || (*at | 32) != 'e')
        return at;
    const unsigned char *sign = at + 1;
    if (sign < stop && (*sign == '+' || *sign == '-'))
        sign++;
    return is_digit(sign, stop) ? past_digits(sign, stop) : at;
}

static const unsigned char *past_any(const unsigned char *at, const unsigned char *stop) {
    if (at < stop && (*at == '+' || *at == '-'))
        at++;
    if (!is_digit(at, stop))
        return NULL;
    at = past_thousands(past_digits(at, stop), stop);
    if (at < stop && *at == '.')
        at++;
    return past_exponent(past_digits(at, stop), stop);
}

static const unsigned char *past_wanted(const unsigned char *how, const unsigned char *at, const unsigned char *stop) {
    if (how[0] && (at >= stop || *at++ != how[0]))
        return NULL;
    if (!is_digit(at, stop))
        return NULL;
    at = past_digits(at, stop);
    if (how[1])
        at = past_thousands(at, stop);
    if (how[2]) {
        if (at >= stop || *at != '.')
            return NULL;
        at = past_digits(at + 1, stop);
    }
    if (how[3]) {
        const unsigned char *end = past_exponent(at, stop);
        if (end == at)
            return NULL;
        at = end;
    }
    return at;
}

/* Tell whether a line has this layout, and where its numbers stand; a broken program fits no line. */
static int laid_out(const unsigned char *part, Py_ssize_t size, const unsigned char *at, const unsigned char *stop,
                    Number *numbers) {
    const unsigned char *end = part + size;
    memset(numbers, 0, VALUES * sizeof *numbers);
    while (part < end) {
        unsigned char what = *part++;
        if (what == 'L') {
            if (end - part < 2)
                return 0;
            Py_ssize_t length = part[0] | part[1] << 8;
            part += 2;
            if (length > end - part || length > stop - at || memcmp(part, at, (size_t)length) != 0)
                return 0;
            part += length;
            at += length;
        } else if (what == 'S') {
            if (at >= stop || *at != ' ')
                return 0;
            while (at < stop && *at == ' ')
                at++;
        } else if (what == 'A') {
            at = past_any(at, stop);
            if (at == NULL)
                return 0;
        } else if (what == 'N') {
            if (end - part < 6 || part[4] >= VALUES)
                return 0;
            const unsigned char *start = at;
            at = past_wanted(part, at, stop);
            if (at == NULL)
                return 0;
            numbers[part[4]] = (Number){start, at, part[5]};
            part += 6;
        } else {
            return 0;
        }
    }
    return at == stop;
}

static PyObject *value_of(const Number *number) {
    char text[LONGEST_LINE + 1];
    Py_ssize_t size = 0;
    if (number->start == NULL)
        Py_RETURN_NONE;
    for (const unsigned char *at = number->start; at < number->stop; at++)
        if (*at != ',')
            text[size++] = (char)*at;
    text[size] = 0;
    if (number->kind == 0)
        return PyLong_FromString(text, NULL, 10);
    double value = PyOS_string_to_double(text, NULL, NULL);
    if (value == -1.0 && PyErr_Occurred())
        return NULL;
    return PyFloat_FromDouble(number->kind == 2 ? value / 1000.0 : value);
}

PyDoc_STRVAR(step_lines_doc,
             "Read the lines of a text that have one of some layouts: ([(row, layout, values)], rows of the others).\n\n"
             "Args:\n    text: lines; the last one may lack its end.\n    programs: a list of layouts, the first that fits counts.\n\n"
             "Rows of the others are bytes of 64-bit integers.");

static PyObject *step_lines(PyObject *module, PyObject *args) {
    Py_buffer data;
    PyObject *programs, *found = NULL, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*O!", &data, &PyList_Type, &programs))
        return NULL;
    Growing others = {0};
    Number numbers[VALUES];
    const unsigned char *at = data.buf, *stop = at + data.len;
    found = PyList_New(0);
    for (int64_t row = 0; found != NULL && at < stop; row++) {
        const unsigned char *end = memchr(at, '\n', (size_t)(stop - at));
        if (end == NULL)
            end = stop;
        Py_ssize_t which = 0, count = end - at <= LONGEST_LINE ? PyList_GET_SIZE(programs) : 0;
        for (; which < count; which++) {
            PyObject *program = PyList_GET_ITEM(programs, which);
            if (!PyBytes_Check(program)) {
                PyErr_SetString(PyExc_TypeError, "a layout is bytes");
                goto done;
            }
            if (laid_out((const unsigned char *)PyBytes_AS_STRING(program), PyBytes_GET_SIZE(program), at, end, numbers))
                break;
        }
        if (which == count) {
            if (!push64(&others, row))
                goto done;
        } else {
            PyObject *values = PyTuple_New(VALUES);
            for (int place = 0; values != NULL && place < VALUES; place++) {
                PyObject *value = value_of(numbers + place);
                if (value == NULL)
                    Py_CLEAR(values);
                else
                    PyTuple_SET_ITEM(values, place, value);
            }
            PyObject *one = values == NULL ? NULL : Py_BuildValue("LnN", (long long)row, which, values);
            if (one == NULL || PyList_Append(found, one) < 0) {
                Py_XDECREF(one);
                goto done;
            }
            Py_DECREF(one);
        }
        at = end + 1;
    }
    PyObject *rows = found == NULL ? NULL : released(&others);
    result = rows == NULL ? NULL : Py_BuildValue("ON", found, rows);
done:
    PyMem_Free(others.bytes);
    Py_XDECREF(found);
    PyBuffer_Release(&data);
    return result;
}

#endif
