"""`dataclass` whose methods are made when one first needs them: a start pays for the records that it builds.

The standard decorator writes and compiles the source of up to seven methods for every class, which was a
sixth of a small diagnosis; most of the classes that are imported get no instance in one run.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import dataclasses
    from operator import attrgetter
    from reprlib import recursive_repr
    from types import MemberDescriptorType

    def dataclass(cls=None, /, *, frozen=False, slots=False, eq=True):
        """Do what `dataclasses.dataclass` does, with the methods made late; fields are there at once."""

        def decorate(plain):
            return _made(plain, frozen=frozen, slots=slots, eq=eq)

        return decorate if cls is None else decorate(cls)

    def _made(plain, *, frozen, slots, eq):
        own = vars(plain)
        if not plain.__doc__:
            plain.__doc__ = plain.__name__  # the standard decorator would write out a signature
        made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(plain)
        if "__init__" not in own:
            made.__init__ = _first_init(made, frozen=frozen)
        if "__repr__" not in own:
            made.__repr__ = _repr
        if eq:
            _add_equality(made, own, frozen=frozen)
        if frozen:
            made.__setattr__, made.__delattr__ = _no_setattr, _no_delattr
            if slots and "__getstate__" not in own:
                made.__getstate__, made.__setstate__ = _getstate, _setstate
        return made

    def _first_init(cls, *, frozen):
        """Return what stands for `__init__` until the first call, which puts the real one in its place."""

        def __init__(self, /, *args, **kwargs):
            real = _init(cls, frozen=frozen)
            if cls.__init__ is __init__:
                cls.__init__ = real
            real(self, *args, **kwargs)

        return __init__

    def _init(cls, *, frozen):
        fields = [one for one in dataclasses.fields(cls) if one.init or _has_default(one)]
        names = {"_set": object.__setattr__, "_given": _NOT_GIVEN}
        parameters, body = [], []
        for one in fields:
            name = one.name
            if one.default_factory is not dataclasses.MISSING:
                names[f"_make_{name}"] = one.default_factory
                value, default = f"_make_{name}()", "=_given"
                if one.init:
                    value = f"{value} if {name} is _given else {name}"
            elif one.default is not dataclasses.MISSING:
                names[f"_default_{name}"] = one.default
                value, default = name if one.init else f"_default_{name}", f"=_default_{name}"
            else:
                value, default = name, ""
            if one.init:
                parameters.append(name + default)
            if not frozen:
                body.append(f"self.{name} = {value}")
            elif type(slot := getattr(cls, name, None)) is MemberDescriptorType:
                names[f"_set_{name}"] = slot.__set__  # two thirds of the time of object.__setattr__
                body.append(f"_set_{name}(self, {value})")
            else:
                body.append(f"_set(self, {name!r}, {value})")
        if hasattr(cls, "__post_init__"):
            body.append("self.__post_init__()")
        source = f"def __init__({', '.join(['self', *parameters])}):\n  " + "\n  ".join(
            body or ["pass"]
        )
        exec(source, names)  # noqa: S102 - as the standard decorator does, of names that Python took
        made = names["__init__"]
        made.__qualname__, made.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
        return made

    def _has_default(one):
        return one.default_factory is not dataclasses.MISSING or (
            one.default is not dataclasses.MISSING
        )

    _NOT_GIVEN = object()

    @recursive_repr()
    def _repr(self):
        shown = (f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr)
        return f"{type(self).__qualname__}({', '.join(shown)})"

    def _add_equality(cls, own, *, frozen):
        compared = [one.name for one in dataclasses.fields(cls) if one.compare]
        get = attrgetter(*compared) if len(compared) > 1 else _few(compared)

        if "__eq__" not in own:

            def __eq__(self, other):
                if other.__class__ is self.__class__:
                    return get(self) == get(other)
                return NotImplemented

            cls.__eq__ = __eq__
        if "__hash__" in own and own["__hash__"] is not None:
            return
        if frozen:

            def __hash__(self):
                return hash(get(self))

            cls.__hash__ = __hash__
        else:
            cls.__hash__ = None

    def _few(names):
        return (lambda self: (getattr(self, names[0]),)) if names else (lambda self: ())

    def _no_setattr(self, name, value):
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

    def _no_delattr(self, name):
        raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

    def _getstate(self):
        return [getattr(self, one.name) for one in dataclasses.fields(self)]

    def _setstate(self, state):
        for one, value in zip(dataclasses.fields(self), state, strict=True):
            object.__setattr__(self, one.name, value)
