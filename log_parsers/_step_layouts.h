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

#define MOST_DIGITS 15 /* of a whole number that a real one holds exactly */

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                       1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Read a number of a layout as Python's `float` does. Up to fifteen digits and a power of ten that is exact, one
   division or multiplication rounds as the whole conversion would; what is longer is left to Python's own. */
static int value_of(const Number *number, double *out) {
    uint64_t digits = 0;
    int count = 0, scale = 0, pointed = 0, whole = 0;
    const unsigned char *at = number->start, *stop = number->stop;
    if (at == NULL) {
        *out = Py_NAN;
        return 1;
    }
    int negative = *at == '-';
    at += *at == '-' || *at == '+';
    for (; at < stop; at++) {
        if (is_digit(at, stop)) {
            whole += !pointed;
            if (count < MOST_DIGITS + 1) {
                digits = 10 * digits + (uint64_t)(*at - '0');
                count += digits != 0;
            }
            scale -= pointed;
        } else if (*at == '.') {
            pointed = 1;
        } else if (*at != ',') {
            break;
        }
    }
    if (number->kind == 0 && whole > MOST_DIGITS)
        return 0;
    if (at < stop) { /* an exponent */
        int sign = 1, power = 0;
        at++;
        if (*at == '-' || *at == '+')
            sign = *at++ == '-' ? -1 : 1;
        for (; at < stop && power < 1000; at++)
            power = 10 * power + *at - '0';
        scale += sign * power;
    }
    double value;
    if (count <= MOST_DIGITS && scale >= -22 && scale <= 22) {
        value = scale < 0 ? (double)digits / powers_of_ten[-scale] : (double)digits * powers_of_ten[scale];
        value = negative ? -value : value;
    } else {
        char text[LONGEST_LINE + 1];
        Py_ssize_t size = 0;
        for (at = number->start; at < stop; at++)
            if (*at != ',')
                text[size++] = (char)*at;
        text[size] = 0;
        value = PyOS_string_to_double(text, NULL, NULL);
        if (value == -1.0 && PyErr_Occurred())
            return -1;
    }
    *out = number->kind == 2 ? value / 1000.0 : value;
    return 1;
}

static int pushed(Growing *array, const void *from, Py_ssize_t size) {
    if (array->size + size > array->room && !grown(array, size))
        return 0;
    memcpy(array->bytes + array->size, from, (size_t)size);
    array->size += size;
    return 1;
}

PyDoc_STRVAR(step_lines_doc,
             "Read the lines of a text that have one of some layouts: (rows, layouts, values, rows of the others).\n\n"
             "Args:\n    text: lines; the last one may lack its end.\n    programs: a list of layouts, the first that fits counts.\n\n"
             "All are bytes: rows of 64-bit integers, layouts of 32-bit ones, values of reals, ten for each row, NaN for none.\n"
             "A line with a whole number of more digits than a real one holds is one of the others.");

static PyObject *step_lines(PyObject *module, PyObject *args) {
    Py_buffer data;
    PyObject *programs, *result = NULL;
    if (!PyArg_ParseTuple(args, "y*O!", &data, &PyList_Type, &programs))
        return NULL;
    Growing rows = {0}, layouts = {0}, values = {0}, others = {0};
    Number numbers[VALUES];
    double row_values[VALUES];
    const unsigned char *at = data.buf, *stop = at + data.len;
    for (Py_ssize_t which = 0; which < PyList_GET_SIZE(programs); which++)
        if (!PyBytes_Check(PyList_GET_ITEM(programs, which))) {
            PyErr_SetString(PyExc_TypeError, "a layout is bytes");
            goto done;
        }
    for (int64_t row = 0; at < stop; row++) {
        const unsigned char *end = memchr(at, '\n', (size_t)(stop - at));
        if (end == NULL)
            end = stop;
        Py_ssize_t which = 0, count = end - at <= LONGEST_LINE ? PyList_GET_SIZE(programs) : 0;
        for (; which < count; which++) {
            PyObject *program = PyList_GET_ITEM(programs, which);
            if (!laid_out((const unsigned char *)PyBytes_AS_STRING(program), PyBytes_GET_SIZE(program), at, end, numbers))
                continue;
            int read = 1;
            for (int place = 0; read == 1 && place < VALUES; place++)
                read = value_of(numbers + place, row_values + place);
            if (read < 0)
                goto done;
            if (read)
                break;
        }
        if (which == count) {
            if (!push64(&others, row))
                goto done;
        } else if (!push64(&rows, row) || !push32(&layouts, (int32_t)which) ||
                   !pushed(&values, row_values, sizeof row_values)) {
            goto done;
        }
        at = end + 1;
    }
    result = Py_BuildValue("NNNN", released(&rows), released(&layouts), released(&values), released(&others));
done:
    PyMem_Free(rows.bytes);
    PyMem_Free(layouts.bytes);
    PyMem_Free(values.bytes);
    PyMem_Free(others.bytes);
    PyBuffer_Release(&data);
    return result;
}

#endif
