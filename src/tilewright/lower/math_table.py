"""tanh, erf, erfc and GELU by look-ups, for vectors whose registers hold a table.

The range is cut into 16 pieces, of one size near 0 and growing from there: the upper bits of
operand + offset number them. Each has a polynomial of the distance from its centre, whose
coefficients every lane looks up for itself: no division, and no second formula of which a select
takes one. Where vectors cannot look up, functions are those of math_exp.py and math_erf.py.
Numbers: tools/fit_functions.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.dtype import f32, i32
from tilewright.ir.expr import Bitcast, Expr, maximum, minimum, select
from tilewright.ir.lanes import Lookup
from tilewright.lower.math_common import absolute, number, sign_bit, whole, with_sign
from tilewright.lower.math_erf import twelve_bits
from tilewright.lower.math_exp import ROUND, exp_times

ENTRIES = 16  # of a table
_SHIFT = 21  # what is left of an f32's bits says the piece, counted modulo ENTRIES


@dataclass(frozen=True)
class PiecewisePolynomial:
    """A function from 0 to `end`. Rows: the pieces' centres, then coefficients, the highest power
    first, each ENTRIES f32. `low` is what the first slope lacks as an f32; it does
    not show in other pieces. Results are `scale` times the function."""

    offset: float
    end: float
    rows: tuple[tuple[float, ...], ...]
    low: float = 0.0
    scale: float = 1.0


def _evaluate(size: Expr, table: PiecewisePolynomial) -> Expr:
    """Horner's rule with each lane's coefficients; NaN gives NaN, whichever they are."""
    bits = Bitcast(i32, size + number(table.offset))
    piece = bits >> whole(_SHIFT)
    scales = (1.0, *[table.scale] * (len(table.rows) - 1))
    found: list[Expr] = [
        Lookup(tuple(f32.round(x * scale) for x in row), f32, piece)
        for row, scale in zip(table.rows, scales, strict=True)
    ]
    centre, total, *rest, slope, constant = found
    distance = size - centre
    for coefficient in rest:
        total = total * distance + coefficient
    if table.low:
        constant = distance * number(table.low) + constant
    return (total * distance + slope) * distance + constant


def tanh(x: Expr) -> Expr:
    """Ends at 1 exactly."""
    size = minimum(number(_TANH.end), absolute(x))
    return with_sign(_evaluate(size, _TANH), sign_bit(x))


def erf(x: Expr) -> Expr:
    """Ends at 1 exactly."""
    size = minimum(number(_ERF.end), absolute(x))
    return with_sign(_evaluate(size, _ERF), sign_bit(x))


def erfc(x: Expr) -> Expr:
    """e**(-x**2) times what the table has, and below 0 taken from 2."""
    size = minimum(number(_ERFC.end), absolute(x))
    head = twelve_bits(size)
    rest = (head - size) * (head + size)  # head**2 - size**2; head**2 is exact
    above = exp_times(-(head * head), rest, _evaluate(size, _ERFC))
    return select(x < number(0.0), number(2.0) - above, above)


def gelu(x: Expr) -> Expr:
    """max(x, 0) - |x| Q(|x|), where Q(s), the normal distribution's share beyond s, is 2**-t times
    what the table has, t = s**2 / (2 ln 2). The roundings of t grow with it: units in the last
    place by as much as x**2. Shares are 2**64 times as large until the last product, which is
    where bits of the least ones are lost."""
    size = minimum(number(_NORMAL.end), absolute(x))
    exponent = size * number(-_HALF_LOG2_E) * size
    shifted = exponent + number(ROUND + 64)
    power = Bitcast(i32, _exp2(exponent - (shifted - number(ROUND + 64))))
    bell = Bitcast(f32, power + (Bitcast(i32, shifted) << whole(23)))
    return maximum(x, number(0.0)) - size * bell * _evaluate(size, _NORMAL)


def _exp2(f: Expr) -> Expr:
    """2**f for |f| <= 1/2, within 2**-23.3; by Estrin's scheme, which waits less than Horner's."""
    a, b, c, d, e = map(number, _EXP2)
    square = f * f
    return ((a * f + b) * square + (c * f + d)) * square + (e * f + number(1.0))


_TANH = PiecewisePolynomial(
    offset=0.64,
    end=9.3,
    rows=(
        (1.6099797, 2.110043, 2.6099806, 3.109996,
         3.8599625, 4.8598742, 5.8598094, 6.8598094,
         8.329618, 0.0, 0.1725047, 0.29749668,
         0.48498842, 0.73499316, 0.9849869, 1.2349824),
        (0.00070287666, 0.0044973767, 0.0024172363, 0.0010038451,
         0.00024381871, 3.3463562e-05, 4.4896674e-06, 6.0940357e-07,
         3.5337557e-08, 0.13073426, 0.10325639, 0.055236865,
         -0.020811467, -0.06325173, -0.04794607, -0.020833975),
        (-0.024924768, -0.01536032, -0.0066593867, -0.0025957671,
         -0.0006148515, -8.3812636e-05, -1.2251459e-05, -2.0620296e-06,
         -1.18135276e-07, 0.00032323558, 0.105442256, 0.15415515,
         0.16540152, 0.104481965, 0.03164842, -0.010759484),
        (0.07669596, 0.034807026, 0.013807096, 0.0052204975,
         0.0011780608, 0.00015994378, 2.1673603e-05, 2.9330674e-06,
         1.5393056e-07, -0.33334675, -0.29528952, -0.22895268,
         -0.1041727, 0.035673916, 0.10183428, 0.10902643),
        (-0.13643272, -0.05544384, -0.02116684, -0.00789349,
         -0.00177031, -0.0002399891, -3.226849e-05, -4.26587e-06,
         -2.044151e-07, 1.6516671e-07, -0.16582955, -0.2648773,
         -0.3589597, -0.3806659, -0.32447907, -0.242769),
        (0.14778095, 0.057098765, 0.021398112, 0.007925483,
         0.0017740496, 0.00024031848, 3.253023e-05, 4.40255e-06,
         2.3283337e-07, 1.0, 0.9708227, 0.9164674,
         0.79729325, 0.6079855, 0.4296479, 0.28763282),
        (0.92315704, 0.971031, 0.9892431, 0.9960294,
         0.9991126, 0.99987984, 0.9999837, 0.9999978,
         0.9999999, 0.0, 0.1708137, 0.28902006,
         0.45022976, 0.6261106, 0.7552166, 0.84401846),
    ),
)  # fmt: skip
_ERF = PiecewisePolynomial(
    offset=0.375,
    end=3.95,
    rows=(
        (1.8750187, 2.3750226, 2.8749735, 3.3750954,
         3.7875953, 0.0, 0.0, 0.0937526,
         0.18750471, 0.31249103, 0.4374932, 0.5625105,
         0.7499774, 0.9999991, 1.25003, 1.5000267),
        (0.010866995, 0.008369292, 0.0017768135, 0.00017393907,
         1.9159366e-05, 0.0, 0.11241607, 0.012879896,
         0.087855436, 0.074871615, 0.026018498, -0.012259426,
         -0.052586753, -0.06883837, -0.047089133, -0.015027713),
        (-0.041893575, -0.013399432, -0.001982017, -0.00010335355,
         0.00027620036, 0.0, 2.9869127e-05, 0.05266545,
         0.09969614, 0.14928168, 0.17759837, 0.1823022,
         0.15011933, 0.069277674, -0.005707236, -0.0441814),
        (0.06745884, 0.013728922, 0.0015005382, 9.230236e-05,
         6.0684115e-06, 0.0, -0.3761271, -0.36614704,
         -0.33756286, -0.27456596, -0.19170271, -0.10063163,
         0.026769431, 0.13836755, 0.16753432, 0.13874887),
        (-0.06290174, -0.009509317, -0.00083258585, -4.601196e-05,
         -1.0129213e-05, 0.0, 4.918971e-09, -0.10486303,
         -0.2042672, -0.3198035, -0.4076638, -0.46255884,
         -0.48219743, -0.41510826, -0.2956385, -0.17838635),
        (0.033543296, 0.0040060505, 0.00029029086, 1.2743534e-05,
         6.639256e-07, 0.0, 1.1283792, 1.1185046,
         1.0893968, 1.0234013, 0.9318177, 0.82231164,
         0.64295286, 0.41510823, 0.23650336, 0.11892076),
        (0.9919907, 0.99921715, 0.99995214, 0.9999982,
         0.99999994, 0.0, 0.0, 0.10547935,
         0.2091228, 0.34145945, 0.4638918, 0.5736831,
         0.7111411, 0.8427004, 0.92290723, 0.9661083),
    ),
    low=-5.8635383e-08,
)  # fmt: skip
_ERFC = PiecewisePolynomial(
    offset=0.75,
    end=10.1,
    rows=(
        (1.4999838, 2.0000248, 2.499963, 2.9999983,
         3.750094, 4.749846, 5.750076, 6.750091,
         8.249997, 9.674925, 0.06250028, 0.18749817,
         0.37500232, 0.6249804, 0.8750174, 1.1249843),
        (-0.0051925704, -0.0018459129, -0.0007374212, -0.00032633689,
         -0.00011235923, -3.3164175e-05, -1.1828752e-05, -4.8416905e-06,
         -1.5733632e-06, -6.1607545e-07, -0.2487954, -0.16556276,
         -0.092567585, -0.0450054, -0.022913244, -0.01229102),
        (0.013543092, 0.005492356, 0.002485481, 0.0012302422,
         0.00049681746, 0.00017608235, 7.356386e-05, 3.4739525e-05,
         1.3538283e-05, 6.1737487e-06, 0.41560736, 0.28948802,
         0.17341423, 0.0909903, 0.050036173, 0.028726604),
        (-0.03293152, -0.015459919, -0.008001959, -0.004479358,
         -0.0021069786, -0.0009081755, -0.0004485587, -0.000244981,
         -0.00011347002, -6.1134975e-05, -0.6382128, -0.4642996,
         -0.29542124, -0.16883777, -0.10091293, -0.06279518),
        (0.07614944, 0.0418006, 0.024938535, 0.015884258,
         0.008877489, 0.004661582, 0.002725123, 0.0017226432,
         0.00096268347, 0.0006037865, 0.86997235, 0.6652111,
         0.4556055, 0.28659552, 0.1879507, 0.12788475),
        (-0.16362537, -0.10679439, -0.07434919, -0.054372314,
         -0.03645459, -0.023504885, -0.016342806, -0.011995587,
         -0.008112994, -0.005933297, -1.0117279, -0.8211886,
         -0.6139841, -0.43237305, -0.31582734, -0.23806252),
        (0.32158807, 0.25539303, 0.21080911, 0.17900124,
         0.1455863, 0.11630633, 0.09669754, 0.082693964,
         0.06789494, 0.05800799, 0.93320596, 0.8191828,
         0.6858558, 0.55682236, 0.4643061, 0.39570183),
    ),
    scale=2.0**-64,
)  # fmt: skip
_EXP2 = (  # (2**f - 1) / f
    0.0013269542250782251,
    0.009671292267739773,
    0.0555071085691452,
    0.24022246897220612,
    0.6931470036506653,
)
_HALF_LOG2_E = 0.7213475  # the one the table was made with
_NORMAL = PiecewisePolynomial(
    offset=1.0,
    end=14.5,
    rows=(
        (1.2500114, 1.7500459, 2.2500408, 2.74996,
         3.499913, 4.5001273, 5.499965, 6.4999733,
         8.000144, 10.000076, 12.000237, 13.74985,
         0.12499824, 0.37499186, 0.6249778, 0.8750067),
        (-0.0019903472, -0.0008314623, -0.00037496016, -0.00018060711,
         -6.860636e-05, -2.1937842e-05, -8.205346e-06, -3.45937e-06,
         -1.151931e-06, -3.3201104e-07, -1.17135244e-07, -5.329227e-08,
         -0.019910336, -0.011418078, -0.006725655, -0.004047191),
        (0.006155249, 0.0028435607, 0.0014148871, 0.00075072335,
         0.00032505137, 0.00012201511, 5.268196e-05, 2.5340016e-05,
         1.0009644e-05, 3.5069893e-06, 1.463693e-06, 7.546825e-07,
         0.04824391, 0.02915371, 0.01809766, 0.011523268),
        (-0.017529331, -0.009074922, -0.005031027, -0.0029569252,
         -0.001459215, -0.0006517359, -0.00032806513, -0.00018090373,
         -8.427786e-05, -3.6276953e-05, -1.7991646e-05, -1.0601794e-05,
         -0.10551097, -0.067819364, -0.044748403, -0.030250065),
        (0.046321124, 0.027175691, 0.016946597, 0.011119923,
         0.006387656, 0.0034155585, 0.0020133236, 0.0012765706,
         0.00071353745, 0.0003766285, 0.00022170396, 0.00014878063,
         0.20550776, 0.14169271, 0.100166894, 0.072446965),
        (-0.110490814, -0.074784376, -0.053224042, -0.039450154,
         -0.026735356, -0.017326148, -0.012057606, -0.008840461,
         -0.005961708, -0.0038752847, -0.0027145247, -0.0020775266,
         -0.34221885, -0.25659293, -0.19684912, -0.15414207),
        (0.23075905, 0.18522823, 0.15364976, 0.13072631,
         0.10634747, 0.084801175, 0.0703431, 0.060015894,
         0.049121667, 0.039506372, 0.033018295, 0.02886317,
         0.45379382, 0.37960652, 0.32336053, 0.27976954),
    ),
    scale=2.0**-64,
)  # fmt: skip
