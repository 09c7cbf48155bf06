package predict

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
	"testing"

	"anemone/internal/float16"
	"anemone/mil"
)

// stored makes an array of little-endian elements.
func stored[T any](t testing.TB, d mil.DType, shape []int, elements ...T) *Array {
	t.Helper()
	b, err := binary.Append(nil, binary.LittleEndian, elements)
	if err != nil {
		t.Fatal(err)
	}
	return &Array{Name: "x", File: "f", DType: d, Shape: shape, load: func() ([]byte, error) { return b, nil }}
}

// text makes an array of JSON.
func text(t testing.TB, s string) *Array {
	t.Helper()
	arrays, err := parseJSON([]byte(`{"x": ` + s + `}`))
	if err != nil {
		t.Fatal(err)
	}
	return arrays[0]
}

var inf = float32(math.Inf(1))

func TestFloats(t *testing.T) {
	for _, c := range []struct {
		name string
		a    *Array
		half bool
		want []float32
		c    Conversion
	}{
		{"fp32", stored(t, mil.Float32, []int{3}, float32(1.1), inf, -3e38), false, []float32{1.1, inf, -3e38}, Conversion{}},
		{"fp16", stored(t, mil.Float16, []int{3}, uint16(0x3c01), uint16(1), uint16(0xfc00)), false, []float32{1 + 0x1p-10, 0x1p-24, -inf}, Conversion{}},
		{"fp16 as fp16", stored(t, mil.Float16, []int{1}, uint16(0x3c01)), true, []float32{1 + 0x1p-10}, Conversion{}},
		{"bf16", stored(t, mil.BFloat16, []int{1}, uint16(0xc040)), false, []float32{-3}, Conversion{}},
		// 2049 lies between the fp16 values 2048 and 2050: ties to even.
		{"fp32 as fp16", stored(t, mil.Float32, []int{5}, float32(2049), 2051, 65519, 65520, 0x1p-26), true, []float32{2048, 2052, 65504, inf, 0}, Conversion{3, 1, 1}},
		// Just above the middle of 2048 and 2050, by less than fp32 can tell.
		{"fp64 as fp16", stored(t, mil.Float64, []int{4}, 2049+0x1p-40, 2049-0x1p-40, -2049-0x1p-40, 1e300), true, []float32{2050, 2048, -2050, inf}, Conversion{3, 1, 0}},
		{"fp64", stored(t, mil.Float64, []int{5}, 0.1, 0.5, 1e39, -1e-60, math.Inf(-1)), false, []float32{0.1, 0.5, inf, float32(math.Copysign(0, -1)), -inf}, Conversion{1, 1, 1}},
		{"int64", stored(t, mil.Int64, []int{2}, int64(1<<24), int64(-3)), false, []float32{1 << 24, -3}, Conversion{}},
		{"int8 as fp16", stored(t, mil.Int8, []int{2}, int8(-128), int8(127)), true, []float32{-128, 127}, Conversion{}},
		{"uint64", stored(t, mil.UInt64, []int{1}, uint64(1<<63)), false, []float32{1 << 63}, Conversion{}},
		{"bool", stored(t, mil.Bool, []int{3}, uint8(0), uint8(1), uint8(7)), false, []float32{0, 1, 1}, Conversion{}},
		{"empty", stored[float32](t, mil.Float32, []int{0, 3}), false, []float32{}, Conversion{}},
		// Decimals become the nearest value; only the range counts.
		{"JSON", text(t, `[0.1, 16777217, 1e39, -1e-60, "-inf", 1e400, -0]`), false, []float32{0.1, 1 << 24, inf, float32(math.Copysign(0, -1)), -inf, inf, float32(math.Copysign(0, -1))}, Conversion{0, 2, 1}},
		// By way of fp64, this decimal would be rounded to the other neighbour.
		{"JSON, rounded once", text(t, `7.038531e-26`), false, []float32{math.Float32frombits(0x15ae43fd)}, Conversion{}},
		{"JSON as fp16", text(t, `[0.1, 2049.0000000001, 1e5, 1e-9]`), true, []float32{0x1.998p-4, 2050, inf, 0}, Conversion{0, 1, 1}},
		{"JSON bools", text(t, `[true, false]`), true, []float32{1, 0}, Conversion{}},
	} {
		got, conv, err := c.a.floats(c.half)
		if err != nil || !slices.EqualFunc(got, c.want, func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }) || conv != c.c {
			t.Errorf("%s: %v %+v %v, want %v %+v", c.name, got, conv, err, c.want, c.c)
		}
	}
	if got, _, err := text(t, `["NaN", NaN, "nan"]`).floats(false); err != nil || got[0] == got[0] || got[1] == got[1] || got[2] == got[2] {
		t.Errorf("NaN: %v, %v", got, err)
	}
}

func TestInts(t *testing.T) {
	for _, c := range []struct {
		name string
		a    *Array
		d    mil.DType
		want []int32
	}{
		{"int32", stored(t, mil.Int32, []int{2}, int32(math.MinInt32), int32(math.MaxInt32)), mil.Int32, []int32{math.MinInt32, math.MaxInt32}},
		{"int64", stored(t, mil.Int64, []int{2}, int64(math.MinInt32), int64(math.MaxInt32)), mil.Int32, []int32{math.MinInt32, math.MaxInt32}},
		{"uint8", stored(t, mil.UInt8, []int{1}, uint8(255)), mil.Int32, []int32{255}},
		{"uint64", stored(t, mil.UInt64, []int{1}, uint64(7)), mil.Int8, []int32{7}},
		{"fp32", stored(t, mil.Float32, []int{2}, float32(-3), float32(1e6)), mil.Int32, []int32{-3, 1e6}},
		{"fp16", stored(t, mil.Float16, []int{1}, float16.FromFloat32(-2)), mil.Int16, []int32{-2}},
		{"bool", stored(t, mil.Bool, []int{2}, uint8(1), uint8(0)), mil.Int32, []int32{1, 0}},
		{"JSON", text(t, `[1, -2, 3.0, 4e2]`), mil.Int32, []int32{1, -2, 3, 400}},
		{"to bool", text(t, `[1, 0, 1.0]`), mil.Bool, []int32{1, 0, 1}},
		{"to uint8", text(t, `[0, 255]`), mil.UInt8, []int32{0, 255}},
		{"to int16", text(t, `[-32768, 32767]`), mil.Int16, []int32{-32768, 32767}},
	} {
		if got, err := c.a.ints(c.d); err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, %v, want %v", c.name, got, err, c.want)
		}
	}
}

func TestConversionErrors(t *testing.T) {
	for _, c := range []struct {
		err string
		a   *Array
		d   mil.DType
	}{
		{"2147483648 at [1] is not an integer from -2147483648 to 2147483647, as int32", stored(t, mil.Int64, []int{2}, int64(1), int64(1<<31)), mil.Int32},
		{"-2147483649 at [0 1] is not", stored(t, mil.Int64, []int{1, 2}, int64(1), int64(-1<<31-1)), mil.Int32},
		{"18446744073709551615 at [0] is not", stored(t, mil.UInt64, []int{1}, uint64(math.MaxUint64)), mil.Int32},
		{"0.5 at [1 0] is not", stored(t, mil.Float32, []int{2, 1}, float32(1), float32(0.5)), mil.Int32},
		{"NaN is not", stored(t, mil.Float64, nil, math.NaN()), mil.Int32},
		{"+Inf at [0] is not", stored(t, mil.Float64, []int{1}, math.Inf(1)), mil.Int32},
		{"1e+300 at [0] is not", stored(t, mil.Float64, []int{1}, 1e300), mil.Int32},
		{"2 at [0] is not an integer from 0 to 1, as bool", text(t, `[2]`), mil.Bool},
		{"-1 at [0] is not an integer from 0 to 65535, as uint16", text(t, `[-1]`), mil.UInt16},
		{"128 at [0] is not an integer from -128 to 127, as int8", text(t, `[128]`), mil.Int8},
		{"1e+30 at [0]", text(t, `[1000000000000000000000000000000]`), mil.Int32},
		{"16777217 at [0] is an integer that fp32 cannot hold", stored(t, mil.Int32, []int{1}, int32(1<<24+1)), mil.Float32},
		{"9223372036854775807 at [0] is an integer that fp32", stored(t, mil.Int64, []int{1}, int64(math.MaxInt64)), mil.Float32},
		{"18446744073709551615 at [0] is an integer that fp32", stored(t, mil.UInt64, []int{1}, uint64(math.MaxUint64)), mil.Float32},
		{"2049 at [0] is an integer that fp16 cannot hold", stored(t, mil.Int32, []int{1}, int32(2049)), mil.Float16},
		{"70000 at [0] is an integer that fp16 cannot hold", stored(t, mil.Int32, []int{1}, int32(70000)), mil.Float16},
		{"4 bytes for shape [2] and type fp32", stored(t, mil.Float32, []int{2}, float32(1)), mil.Float32},
	} {
		var err error
		if c.d.IsFloat() {
			_, _, err = c.a.floats(c.d == mil.Float16)
		} else {
			_, err = c.a.ints(c.d)
		}
		if err == nil || !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v to %v: error %v does not say %q", c.a.DType, c.d, err, c.err)
		}
	}
}

// TestToHalf holds the rounding of float64 to fp16 to a search for the
// nearest value, around every middle of two neighbours.
func TestToHalf(t *testing.T) {
	for h := uint16(0); h < float16.Inf-1; h += 7 {
		lo, hi := float64(float16.ToFloat32(h)), float64(float16.ToFloat32(h+1))
		mid := (lo + hi) / 2 // exact
		even := lo
		if h%2 == 1 {
			even = hi
		}
		for _, c := range []struct{ x, want float64 }{
			{mid, even}, {math.Nextafter(mid, 0), lo}, {math.Nextafter(mid, 1e9), hi}, {lo, lo}, {math.Nextafter(lo, 1e9), lo}, {math.Nextafter(hi, 0), hi},
		} {
			if got := float64(toHalf(c.x)); got != c.want {
				t.Fatalf("toHalf(%v) = %v, want %v", c.x, got, c.want)
			}
			if got := float64(toHalf(-c.x)); got != -c.want {
				t.Fatalf("toHalf(%v) = %v, want %v", -c.x, got, -c.want)
			}
		}
	}
	for _, x := range []float64{65520, 1e10, 1e300, math.Inf(1)} {
		if got := toHalf(x); got != inf {
			t.Errorf("toHalf(%v) = %v", x, got)
		}
	}
	if got := toHalf(65519.999999999); got != 65504 {
		t.Errorf("just below the limit: %v", got)
	}
	if got := toHalf(math.NaN()); got == got {
		t.Errorf("NaN became %v", got)
	}
}
