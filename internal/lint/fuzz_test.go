package lint

import (
	"errors"
	"io"
	"strings"
	"testing"

	"anemone/coreml"
	"anemone/mil"
	"anemone/mil/miltext"
)

// FuzzCheck lints whatever parses: rules take no argument, type or dimension
// for granted.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{
		`tensor<fp16, [1, 3]> r = read_state(input = s)[name = string("r")]; write_state(data = r, input = s)[name = string("w")];`,
		`tensor<fp16, [4, 4]> w = constexpr_lut_to_dense(indices = tensor<uint4, [4, 4]>(BLOBFILE(path = string("@model_path/w.bin"), offset = uint64(64))), lut = tensor<fp16, [2, 1, 16, 1]>(BLOBFILE(path = string("@model_path/w.bin"), offset = uint64(128))))[name = string("w")]; tensor<fp16, [1, 4]> g = gather(x = w, indices = i)[name = string("g")];`,
		`tensor<fp16, [0, 4]> w = constexpr_blockwise_shift_scale(data = tensor<int8, [0, 4]>(BLOBFILE(path = string("@model_path/w.bin"), offset = uint64(64))), scale = i)[name = string("w")];`,
		`tensor<fp16, [1, 4]> c = conv(x = x, weight = x, groups = i)[name = string("c")]; tensor<fp16, []> m = mul(x = c, y = c)[name = string("m")];`,
		`tensor<fp32, [1, 3]> u = slice_update(x = s, update = i)[name = string("u")]; tensor<fp16, [1]> b = slice_by_index(x = u, begin = tensor<int32, [2]>([-1, 5000]))[name = string("b")];`,
		`tensor<fp16, [?, 4]> y = cumsum(x = x)[name = string("y")]; tensor<fp16, [4]> z = concat(values = (y, y))[name = string("z")]; coreml_update_state(state = s, value = z)[name = string("q")];`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, ops string) {
		text := "program(1.3)\n{\n func main<ios18>(tensor<int32, [1]> i, state<tensor<fp16, [1, 3]>> s, tensor<fp16, [1, 4]> x) {\n" + ops + "\n } -> (x);\n}"
		p, err := miltext.Parse([]byte(text), miltext.ParseOptions{Weight: func(_ miltext.BlobRef, typ mil.Type) (mil.Weight, error) {
			n, ok := typ.ByteSize()
			if !ok || n > 1<<16 {
				return nil, errors.New("too large")
			}
			return mil.PromiseWeight(typ, func(w io.Writer) error { _, err := w.Write(make([]byte, n)); return err }), nil
		}})
		if err != nil {
			return
		}
		m := &coreml.Model{SpecVersion: 9, Program: p}
		for _, fn := range p.Functions {
			m.Functions = append(m.Functions, coreml.Describe(fn))
		}
		fs, err := Check(t.Context(), Target{Models: []Model{{Part: "p", Content: m, LUT: 4, Head: true}}}, Options{Deep: true, OS: OS{Name: "iOS 15", Spec: 6, Format: 5, Phone: true}})
		if err != nil {
			t.Fatal(err)
		}
		if Count(fs, Error) == 0 {
			t.Errorf("no error for a state of 3 on iOS 15 in\n%s", text)
		}
	})
}

// FuzzParseOS takes any name of a system.
func FuzzParseOS(f *testing.F) {
	for _, s := range []string{"ios18", "macOS 15.2", "visionos1", "tvos", "watchos99", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		o, err := ParseOS(s)
		if (err == nil) == o.IsZero() {
			t.Errorf("%q: %+v, %v", s, o, err)
		}
		if err == nil && (o.Spec < 6 || o.Format < 5 || !strings.Contains(o.Name, " ")) {
			t.Errorf("%q: %+v", s, o)
		}
	})
}
