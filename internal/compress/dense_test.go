package compress

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"anemone/mil"
)

func TestDense(t *testing.T) {
	// 1.0003 rounds to 1 (spacing 2^-10), 70000 is clamped, 1e-9 vanishes.
	data := []float32{1, -2, 0.5, 1.0003, 70000, 1e-9, float32(math.Inf(-1)), 0}
	var r Report
	w, err := Dense(FromFloat32(data, 4), []int{2, 4, 1, 1}, Options{Name: "norm", Report: &r})
	if err != nil {
		t.Fatal(err)
	}
	if want := mil.TensorOf(mil.Float16, 2, 4, 1, 1); !w.Type().Equal(want) {
		t.Errorf("type %v, want %v", w.Type(), want)
	}
	want := []byte{0, 0x3c, 0, 0xc0, 0, 0x38, 0, 0x3c, 0xff, 0x7b, 0, 0, 0xff, 0xfb, 0, 0}
	for range 2 {
		if got := stored(t, w); !bytes.Equal(got, want) {
			t.Errorf("% x, want % x", got, want)
		}
	}
	s := r.Summary()
	if len(s.Weights) != 1 || s.Elements != 8 || s.Bytes != 16 {
		t.Fatalf("report: %+v", s)
	}
	e := s.Weights[0]
	if e.Name != "norm" || e.Encoding != "fp16" || e.Group != 0 || e.Overflow != 2 || e.Underflow != 1 || e.MaxError != 70000-65504 {
		t.Errorf("report: %+v", e)
	}
	// The error of the clamped value rules: 4496^2 / 70000^2.
	if got := e.RelativeError; math.Abs(got-4496.0*4496/(70000.0*70000)) > 1e-8 {
		t.Errorf("relative error %g", got)
	}

	half, err := Dense(FromFloat16(patterns(1, 2, 3), 1), []int{3}, Options{Report: &r})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := stored(t, half), []byte{0, 0x3c, 0, 0x40, 0, 0x42}; !bytes.Equal(got, want) {
		t.Errorf("% x, want % x", got, want)
	}
	if e := r.Summary().Weights[1]; e.RelativeError != 0 || e.MaxError != 0 {
		t.Errorf("report: %+v", e)
	}
}

func TestDenseErrors(t *testing.T) {
	if _, err := Dense(FromFloat16(make([]uint16, 6), 2), []int{7}, Options{Name: "w"}); err == nil || !strings.Contains(err.Error(), "shape [7]") {
		t.Errorf("error %v", err)
	}
	w, err := Dense(FromFloat32([]float32{1, 2, 3, float32(math.NaN())}, 2), []int{2, 2}, Options{Name: "w"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteTo(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "weight w: row 1, column 1 is not a number") {
		t.Errorf("error %v", err)
	}
	w, err = Dense(FromFloat16([]uint16{0, 0x7c00}, 2), []int{2}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteTo(&bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "row 0, column 1 is +Inf") {
		t.Errorf("error %v", err)
	}
	w, err = Dense(FromFloat16(make([]uint16, 100), 2), []int{100}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.WriteTo(&limitedWriter{10}); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("error %v", err)
	}
}

// TestReportJSON: the order is that of the promises, and weights that have
// not been written are left out.
func TestReportJSON(t *testing.T) {
	var r Report
	src := FromFloat16(patterns(1, 2, 3, 4), 2)
	a, _ := Dense(src, []int{4}, Options{Name: "a", Report: &r})
	if _, err := Dense(src, []int{4}, Options{Name: "b", Report: &r}); err != nil {
		t.Fatal(err)
	}
	c := mustPalettize(t, src, []int{2, 2}, Encoding{1, 8}, Options{Name: "c", Report: &r})
	stored(t, c.Indices)
	stored(t, a)
	got, err := json.Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	// Table {1.5, 3.5}: error 4 * 0.25 of 1 + 4 + 9 + 16.
	const want = `{"weights":[` +
		`{"name":"a","shape":[4],"encoding":"fp16","elements":4,"bytes":8,"relative_error":0,"max_error":0},` +
		`{"name":"c","shape":[2,2],"encoding":"lut1","method":"kmeans","group":2,"group_asked":8,"elements":4,"bytes":5,"relative_error":0.03333333333333333,"max_error":0.5}` +
		`],"elements":8,"bytes":13}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
