# mypy: ignore-errors
"""The mathematical functions of the language, written in the language.

Each is elementwise on f32 and uses only operations that every device rounds alike: + - * fma,
rint, integers, bits and `where`. So their results have the same bits everywhere. docs/numerics.md
gives the methods and the measured error bounds; coefficients are minimax fits rounded to float32.
A result that would be subnormal is 0 with the sign of the true result. There are no branches.
"""

from __future__ import annotations

from ferro.dsl import language as tl
from ferro.dsl.kernel import KernelDefinition, kernel

# --------------------------------------------------------------------------------- float fields


@kernel
def sign_bit(x):
    return tl.bitcast(x, tl.i32) & -2147483648


@kernel
def magnitude(x):
    """The bits of abs(x): ordered as abs(x) is, 0x7F800000 for inf, more for NaN."""
    return tl.bitcast(x, tl.i32) & 0x7FFFFFFF


@kernel
def with_sign(bits, sign):
    """The float of the magnitude ``bits``, or 0 where it is subnormal, with a sign bit."""
    return tl.bitcast(tl.where(bits < 0x00800000, 0, bits) | sign, tl.f32)


@kernel
def normal(bits):
    """Bits of a normal number and e with: number * 2^e = the number of magnitude ``bits``."""
    subnormal = bits < 0x00800000
    whole = tl.bitcast(bits.to(tl.f32), tl.i32)
    return tl.where(subnormal, whole, bits), tl.where(subnormal, -149, 0)


@kernel
def times_power(x, n):
    """x * 2^n, if x and the result are normal."""
    return tl.bitcast(tl.bitcast(x, tl.i32) + (n << 23), tl.f32)


# --------------------------------------------------------------------------- quotients and roots


@kernel
def reciprocal_guess(x):
    """1 / x for normal x > 0, within 2^-25: a seed from the bits, then Newton steps."""
    y = tl.bitcast(0x7EF311C3 - tl.bitcast(x, tl.i32), tl.f32)
    e = tl.fma(-x, y, 1.0)
    y = tl.fma(tl.fma(e, e, e), y, y)
    e = tl.fma(-x, y, 1.0)
    return tl.fma(e, y, y)


@kernel
def mantissa_quotient(a, b):
    """a / b correctly rounded, for a and b in [1, 2)."""
    y = reciprocal_guess(b)
    y = tl.fma(tl.fma(-b, y, 1.0), y, y)
    # y is 1 / b correctly rounded, but for the one b whose reciprocal is next to a tie
    y = tl.where(y == 0.5, 0.500000060, y)
    q = a * y
    q = tl.fma(tl.fma(-b, q, a), y, q)
    return tl.fma(tl.fma(-b, q, a), y, q)


@kernel
def div(a, b):
    """a / b, correctly rounded."""
    sign = sign_bit(a) ^ sign_bit(b)
    top, bottom = magnitude(a), magnitude(b)
    x, x_shift = normal(top)
    y, y_shift = normal(bottom)
    exponent = ((x >> 23) + x_shift) - ((y >> 23) + y_shift)
    ma = tl.bitcast(x & 0x007FFFFF | 0x3F800000, tl.f32)
    mb = tl.bitcast(y & 0x007FFFFF | 0x3F800000, tl.f32)
    q = tl.bitcast(mantissa_quotient(ma, mb), tl.i32)
    field = (q >> 23) + exponent
    finite = tl.where(field < 1, 0, q + (exponent << 23))
    result = tl.where(field > 254, 0x7F800000, finite)
    # 0, inf and NaN: the product with 1/0 = inf or 1/inf = 0 has the right special value
    factor = tl.where(bottom == 0, tl.inf, tl.where(bottom == 0x7F800000, 0.0, tl.abs(b)))
    product = tl.bitcast(tl.abs(a) * factor, tl.i32)
    special = (top == 0) | (top >= 0x7F800000) | (bottom == 0) | (bottom >= 0x7F800000)
    return tl.bitcast(tl.where(special, product, result) | sign, tl.f32)


@kernel
def root_parts(bits):
    """m in [1, 4) and n with: m * 4^n = the number of magnitude ``bits``."""
    x, shift = normal(bits)
    exponent = (x >> 23) + shift - 127
    odd = exponent & 1
    m = tl.bitcast((x & 0x007FFFFF | 0x3F800000) + (odd << 23), tl.f32)
    return m, (exponent - odd) >> 1


@kernel
def mantissa_rsqrt(m):
    """1 / sqrt(m) within 1 ulp, for m in [1, 4)."""
    y = tl.bitcast(0x5F375A86 - (tl.bitcast(m, tl.i32) >> 1), tl.f32)
    e = tl.fma(-m * y, y, 1.0)
    y = tl.fma(y * e, tl.fma(0.375, e, 0.5), y)
    # The last step needs 1 - m*y*y itself exactly: m*y is split into a rounded part and its rest.
    h = m * y
    e = tl.fma(-h, y, 1.0) - tl.fma(m, y, -h) * y
    return tl.fma(y * e, tl.fma(0.375, e, 0.5), y)


@kernel
def sqrt(x):
    """The square root, correctly rounded; NaN below -0."""
    bits = magnitude(x)
    m, n = root_parts(bits)
    y = mantissa_rsqrt(m)
    s = m * y
    s = tl.fma(tl.fma(-s, s, m), 0.5 * y, s)
    special = (bits == 0) | (bits >= 0x7F800000)
    return tl.where(x < 0.0, tl.nan, tl.where(special, x, times_power(s, n)))


@kernel
def rsqrt(x):
    """1 / sqrt(x); NaN below -0, an infinity for a zero."""
    bits = magnitude(x)
    m, n = root_parts(bits)
    y = times_power(mantissa_rsqrt(m), -n)
    y = tl.where(bits == 0, tl.bitcast(sign_bit(x) | 0x7F800000, tl.f32), y)
    y = tl.where(bits == 0x7F800000, 0.0, y)
    return tl.where((x < 0.0) | (bits > 0x7F800000), tl.nan, y)


# ------------------------------------------------------------------------ exponential, logarithm


@kernel
def exp_normal(x):
    """exp(x) where it is a normal number: 2^n * exp(r), abs(r) <= ln(2) / 2."""
    # 1.5 * 2^23: the sum is rounded to a whole number, which its lowest bits are
    shifted = x * 1.44269502 + 12582912.0
    n = shifted - 12582912.0
    r = tl.fma(n, -0.693145752, x)
    r = tl.fma(n, -1.42860677e-06, r)
    p = tl.fma(0.0013818359, r, 0.00836871564)
    p = tl.fma(p, r, 0.0416682959)
    p = tl.fma(p, r, 0.166665211)
    p = tl.fma(p, r, 0.49999994)
    p = tl.fma(tl.fma(p, r, 1.0), r, 1.0)
    # what a NaN has in its lowest bits must not make a number of it
    return times_power(p, tl.where(x == x, tl.bitcast(shifted, tl.i32), 0))


@kernel
def exp(x):
    """e^x; inf above 88.72283, 0 below -87.33654."""
    y = exp_normal(x)
    return tl.where(x > 88.7228317, tl.inf, tl.where(x < -87.3365402, 0.0, y))


@kernel
def log(x):
    """The natural logarithm; -inf for a zero, NaN below."""
    bits = magnitude(x)
    y, shift = normal(bits)
    # m in [sqrt(1/2), sqrt(2)), so that the result near 1 comes from the polynomial alone
    y = y + 0x004AFB0D
    k = ((y >> 23) - 127 + shift).to(tl.f32)
    f = tl.bitcast((y & 0x007FFFFF) + 0x3F3504F3, tl.f32) - 1.0
    p = tl.fma(-0.0763750747, f, 0.127644107)
    p = tl.fma(p, f, -0.13160263)
    p = tl.fma(p, f, 0.142013207)
    p = tl.fma(p, f, -0.166233137)
    p = tl.fma(p, f, 0.20001249)
    p = tl.fma(p, f, -0.250008225)
    p = tl.fma(p, f, 0.333333313)
    p = tl.fma(p, f, -0.5)
    rest = tl.fma(k, 1.42860677e-06, f * f * p)
    result = tl.fma(k, 0.693145752, f + rest)
    result = tl.where(bits == 0, -tl.inf, tl.where(bits == 0x7F800000, tl.inf, result))
    return tl.where((x < 0.0) | (bits > 0x7F800000), tl.nan, result)


# ------------------------------------------------------------------------------- sine and cosine


@kernel
def quarter_turns(x):
    """n, r, rest with x = n * pi/2 + r + rest and abs(r) <= pi/4, where abs(x) <= 2^20.

    pi/2 is given by three float32 numbers. x - n * C1 is exact, since it is a multiple of 2^-24
    below 1; the rounding errors of the next difference are collected in ``rest``.
    """
    n = tl.rint(x * 0.636619747)
    a = tl.fma(n, -1.57079637, x)
    b = n * 4.37113883e-08
    r = a + b
    t = r - a
    rest = (a - (r - t)) + (b - t) + tl.fma(n, 4.37113883e-08, -b)
    return n.to(tl.i32), r, tl.fma(n, 1.71512451e-15, rest)


@kernel
def sine_or_cosine(quarter, r, rest):
    """sin(quarter * pi/2 + r + rest)."""
    z = r * r
    p = tl.fma(tl.fma(-0.00019507877, z, 0.00833210628), z, -0.166666538)
    sine = r + tl.fma(r * z, p, rest)
    q = tl.fma(tl.fma(2.44312014e-05, z, -0.00138873036), z, 0.0416666456)
    half = 0.5 * z
    u = 1.0 - half
    cosine = u + (((1.0 - u) - half) + tl.fma(z * z, q, -r * rest))
    value = tl.where((quarter & 1) == 1, cosine, sine)
    return tl.bitcast(tl.bitcast(value, tl.i32) ^ ((quarter & 2) << 30), tl.f32)


@kernel
def sin(x):
    """The sine of an angle in radians, abs(x) <= 2^20; NaN beyond."""
    n, r, rest = quarter_turns(x)
    bits = magnitude(x)
    small = with_sign(bits, sign_bit(x))
    y = tl.where(bits < 0x39800000, small, sine_or_cosine(n, r, rest))
    return tl.where(bits > 0x49800000, tl.nan, y)


@kernel
def cos(x):
    """The cosine of an angle in radians, abs(x) <= 2^20; NaN beyond."""
    n, r, rest = quarter_turns(x)
    return tl.where(magnitude(x) > 0x49800000, tl.nan, sine_or_cosine(n + 1, r, rest))


# ---------------------------------------------------------------------------------- activations


@kernel
def sigmoid(x):
    """1 / (1 + e^-x) = z / (1 + z) with z = e^x where x < 0."""
    t = tl.abs(x)
    z = exp_normal(tl.where(t > 87.3365402, -87.3365402, -t))
    d = 1.0 + z
    rest = z - (d - 1.0)
    top = tl.where(x < 0.0, z, 1.0)
    y = reciprocal_guess(d)
    q = top * y
    q = tl.fma(tl.fma(-rest, q, tl.fma(-d, q, top)), y, q)
    return tl.where(x < -87.3365402, 0.0, q)


@kernel
def tanh(x):
    """The hyperbolic tangent: a polynomial below 0.6, else 1 - 2 / (e^2x + 1)."""
    t = tl.abs(x)
    z = t * t
    p = tl.fma(-0.00566571392, z, 0.0206048712)
    p = tl.fma(p, z, -0.0537295304)
    p = tl.fma(p, z, 0.133313239)
    p = tl.fma(p, z, -0.333332777)
    low = tl.fma(p, t * z, t)
    d = exp_normal(tl.where(t > 10.0, 20.0, 2.0 * t)) + 1.0
    y = reciprocal_guess(d)
    high = tl.fma(y, -2.0, 1.0)
    return with_sign(magnitude(tl.where(t < 0.6, low, high)), sign_bit(x))


@kernel
def erf(x):
    """The error function: a polynomial below 0.92, else 1 - e^(polynomial)."""
    t = tl.abs(x)
    z = t * t
    p = tl.fma(-0.00059595838, z, 0.00498735253)
    p = tl.fma(p, z, -0.0267629661)
    p = tl.fma(p, z, 0.11281731)
    p = tl.fma(p, z, -0.376124889)
    p = tl.fma(p, z, 0.128379151)
    low = tl.fma(p, t, t)
    u = tl.where(t > 4.0, 4.0, t)
    q = tl.fma(-0.000213991167, u, 0.00321499095)
    q = tl.fma(q, u, -0.0228900388)
    q = tl.fma(q, u, 0.105261914)
    q = tl.fma(q, u, 0.635718286)
    q = tl.fma(q, u, 0.128514364)
    high = 1.0 - exp_normal(tl.fma(-q, u, -u))
    return with_sign(magnitude(tl.where(t < 0.92, low, high)), sign_bit(x))


FUNCTIONS: dict[str, KernelDefinition] = {
    f.name: f for f in (div, sqrt, rsqrt, exp, log, sin, cos, tanh, erf, sigmoid)
}
