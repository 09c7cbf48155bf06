package nn

import (
	"anemone/internal/checkpoint"
)

// Made returns a weight of the given stored shape whose rows fill makes: the
// first dimension counts the rows of a Matrix or Table, a Vector is one row.
// name stands for what the weight holds, in the program and in reports.
// release, if not nil, gives back what was read for it.
//
// fill is called from several goroutines at once and for rows in any order.
func Made(name string, kind Kind, shape []int, fill func(dst []float32, row int), release func()) *Weight {
	rows, cols := 1, 1
	for i, d := range shape {
		if i == 0 && kind != Vector {
			rows = d
		} else {
			cols *= d
		}
	}
	return &Weight{name: name, kind: kind, shape: shape, rows: rows, cols: cols, fill: fill, release: release}
}

// Constant returns a small fp16 tensor of the graph, such as a mask: fill sets
// its elements.
func Constant(name string, shape []int, fill func(dst []float32)) *Weight {
	return Made(name, Vector, shape, func(dst []float32, _ int) { fill(dst) }, nil)
}

// LinearRows returns n rows of the tensor [out, in], those that row chooses,
// as the weight [n, in, 1, 1] of a 1x1 convolution.
func LinearRows(t *checkpoint.Tensor, name string, n int, row func(i int) int) *Weight {
	in := t.Shape[1]
	return Made(name, Matrix, []int{n, in, 1, 1}, func(dst []float32, i int) { t.Float32(dst, row(i)*in) }, t.Release)
}

// Plain returns the weight as one that stays fp16 whatever the rest of its
// part is stored as: small matrices whose errors cost more than their bytes.
func (w *Weight) Plain() *Weight {
	c := *w
	c.kind = Vector
	return &c
}

// Named returns the weight under another name.
func (w *Weight) Named(name string) *Weight {
	c := *w
	c.name = name
	return &c
}

// Shaped returns the weight with another stored shape of as many elements.
func (w *Weight) Shaped(shape ...int) *Weight {
	c := *w
	c.shape = shape
	return &c
}

// Mapped returns the weight with f applied to every element.
func (w *Weight) Mapped(f func(float32) float32) *Weight {
	c := *w
	c.fill = func(dst []float32, row int) {
		w.fill(dst, row)
		for i, v := range dst {
			dst[i] = f(v)
		}
	}
	return &c
}

// PlusOne returns 1 + w, computed in float32: the factor of a norm whose
// weights are stored around zero.
func (w *Weight) PlusOne() *Weight { return w.Mapped(func(v float32) float32 { return 1 + v }) }
