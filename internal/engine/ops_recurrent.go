package engine

import (
	"fmt"
	"slices"

	"anemone/internal/engine/kernels"
)

// activations are the functions of gates. MIL's documentation does not say
// which constants the last two have; these are the ones that other
// definitions of recurrent layers have in common.
var activations = map[string]func(float32) float32{
	"tanh":         kernels.Tanh,
	"sigmoid":      kernels.Sigmoid,
	"relu":         func(x float32) float32 { return maxF(x, 0) },
	"linear":       func(x float32) float32 { return x },
	"hard_sigmoid": func(x float32) float32 { return sigmoidHard(x, 0.2, 0.5) },
	"sigmoid_hard": func(x float32) float32 { return sigmoidHard(x, 0.2, 0.5) },
	"scaled_tanh":  func(x float32) float32 { return 1.7159 * kernels.Tanh(x*2/3) },
}

func (o *opCtx) activation(name, def string) (func(float32) float32, error) {
	s, err := o.strOr(name, def)
	if err != nil {
		return nil, err
	}
	f := activations[lower(s)]
	if f == nil {
		return nil, fmt.Errorf("argument %q is %q, which is no activation", name, s)
	}
	return f, nil
}

// recurrence is one direction of a recurrent layer. The products of the
// input with the weights, of all steps at once, are in xw.
type recurrence struct {
	steps, batch, hidden, gates int
	reverse                     bool
	xw, whh                     *val
	h, c, rec                   *val // state, cell, and the products of a step with whh
	c0                          int  // cells of this direction in initial_c begin here
	col, cols                   int  // columns of the results
}

// buildRecurrent plans rnn, gru and lstm.
func buildRecurrent(o *opCtx) error {
	ts, err := o.infer()
	if err != nil {
		return err
	}
	x, err := o.dense32(o.x("x"))
	if err != nil {
		return err
	}
	whh := o.x("weight_hh")
	l := recurrence{steps: x.shape()[0], batch: x.shape()[1], hidden: whh.shape()[1]}
	gates := map[string]int{"rnn": 1, "gru": 3, "lstm": 4}[o.op.Type]
	l.gates = gates
	direction, err := o.strOr("direction", "forward")
	if err != nil {
		return err
	}
	sequence, err := o.boolOr("output_sequence", false)
	if err != nil {
		return err
	}
	ways := []string{""}
	if direction == "bidirectional" {
		ways = append(ways, "_back")
	}
	l.cols = l.hidden * len(ways)
	var initial [2]*val
	for i, name := range []string{"initial_h", "initial_c"} {
		if o.x(name) == nil {
			continue
		}
		if initial[i], err = o.dense32(o.x(name)); err != nil {
			return err
		}
		if initial[i].size() != l.batch*l.cols {
			return fmt.Errorf("argument %q has the shape %v, want [%d, %d]", name, initial[i].shape(), l.batch, l.cols)
		}
	}
	outs := make([]*val, len(ts))
	for i, t := range ts {
		if !t.Static() {
			return fmt.Errorf("result %d: %w", i, errNeedsValue)
		}
		if outs[i], err = o.p.fresh(x.dt, t.Shape, o.constant); err != nil {
			return err
		}
	}
	if l.batch*l.hidden > 0 {
		for k, way := range ways {
			l.col, l.reverse = k*l.hidden, direction == "reverse" || way != ""
			if err := o.recurrence(l, x, initial, way, sequence, outs); err != nil {
				return err
			}
		}
	}
	for _, v := range outs {
		if err := o.give(v, true); err != nil {
			return err
		}
	}
	return nil
}

// recurrence plans one direction.
func (o *opCtx) recurrence(l recurrence, x *val, initial [2]*val, way string, sequence bool, outs []*val) error {
	cols, hidden, batch := l.gates*l.hidden, l.hidden, l.batch
	bias, err := o.optional32("bias"+way, cols)
	if err != nil {
		return err
	}
	extra, err := o.optional32("input_bias", cols)
	if err != nil {
		return err
	}
	after, err := o.boolOr("reset_after", false)
	if err != nil {
		return err
	}
	// What the sum of the input's products begins with. Where the reset
	// gate works on products, the bias of the state is theirs.
	add := bias
	inner := (*val)(nil)
	if extra != nil {
		if add = extra; bias != nil && !after {
			if add, err = pairs(o, bias, extra, bias.dt, addF); err != nil {
				return err
			}
		}
	} else if after {
		add = nil
	}
	if after {
		inner = bias
	}
	peep, err := o.optional32("peephole"+way, 3*hidden)
	if err != nil {
		return err
	}
	var clip float32
	if o.x("clip") != nil {
		if clip, err = o.floatOr("clip", 0); err != nil {
			return err
		}
	}
	first := "recurrent_activation"
	if o.op.Type == "rnn" {
		first = "activation"
	}
	gate, err := o.activation(first, "sigmoid")
	if err != nil {
		return err
	}
	act, err := o.activation("activation", "tanh")
	if err != nil {
		return err
	}
	cell, err := o.activation("cell_activation", "tanh")
	if err != nil {
		return err
	}
	// All products of the input.
	wih := o.x("weight_ih" + way)
	if l.xw, err = o.p.fresh(x.dt, []int{l.steps, batch, cols}, o.constant); err != nil {
		return err
	}
	if l.steps > 0 && wih.shape()[1] > 0 {
		m, ok, err := o.p.matrix(wih, cols)
		if err == nil && !ok {
			if wih, err = o.dense32(wih); err == nil {
				m, ok, err = o.p.matrix(wih, cols)
			}
		}
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("argument %q: %w", "weight_ih"+way, errNeedsValue)
		}
		if add != nil {
			if add, err = o.p.straight(add); err != nil {
				return err
			}
		}
		if err := o.product(l.xw, x, l.steps*batch, m, add); err != nil {
			return err
		}
	} else if err := o.fill(l.xw, 0, 0); err != nil {
		return err
	} else if add != nil {
		if l.xw, err = pairs(o, l.xw, add, x.dt, addF); err != nil {
			return err
		}
		if l.xw, err = o.p.straight(l.xw); err != nil {
			return err
		}
	}
	if l.whh, err = o.dense32(o.x("weight_hh" + way)); err != nil {
		return err
	}
	for _, t := range []struct {
		v **val
		n int
	}{{&l.h, batch * hidden}, {&l.c, batch * hidden}, {&l.rec, batch * cols}} {
		if *t.v, err = o.p.fresh(x.dt, []int{t.n}, o.constant); err != nil {
			return err
		}
	}
	var turn func(c *call, xw, h, cells, rec []float32)
	whh := l.whh
	dot := func(c *call, rec, h []float32) {
		kernels.MulNT(rec, cols, h, hidden, batch, c.f32of(whh), hidden, cols, hidden)
	}
	switch o.op.Type {
	case "rnn":
		turn = func(c *call, xw, h, _, rec []float32) {
			dot(c, rec, h)
			for i := range h {
				h[i] = act(xw[i] + rec[i])
			}
		}
	case "gru":
		turn = func(c *call, xw, h, scratch, rec []float32) {
			if after {
				dot(c, rec, h)
				if inner != nil {
					for b := range batch {
						addTo(rec[b*cols:(b+1)*cols], c.f32of(inner))
					}
				}
			} else { // the reset and update gates; then the other with what they leave
				w := c.f32of(whh)
				kernels.MulNT(rec, cols, h, hidden, batch, w, hidden, hidden, hidden)
				kernels.MulNT(rec[2*hidden:], cols, h, hidden, batch, w[2*hidden*hidden:], hidden, hidden, hidden)
			}
			for b := range batch {
				a, r := xw[b*cols:(b+1)*cols], rec[b*cols:(b+1)*cols]
				hb := h[b*hidden : (b+1)*hidden]
				for i := range hidden {
					r[i] = gate(a[i] + r[i])
					r[2*hidden+i] = gate(a[2*hidden+i] + r[2*hidden+i])
				}
				if after {
					for i := range hidden {
						r[hidden+i] = act(a[hidden+i] + r[i]*r[hidden+i])
					}
				} else {
					s := scratch[:hidden]
					for i := range s {
						s[i] = r[i] * hb[i]
					}
					kernels.MulNT(r[hidden:], cols, s, hidden, 1, c.f32of(whh)[hidden*hidden:], hidden, hidden, hidden)
					for i := range hidden {
						r[hidden+i] = act(a[hidden+i] + r[hidden+i])
					}
				}
				for i := range hb {
					z := r[2*hidden+i]
					hb[i] = (1-z)*r[hidden+i] + z*hb[i]
				}
			}
		}
	default: // lstm, gates in the order input, forget, output, cell
		turn = func(c *call, xw, h, cells, rec []float32) {
			dot(c, rec, h)
			var p []float32
			if peep != nil {
				p = c.f32of(peep)
			}
			for b := range batch {
				a, r := xw[b*cols:(b+1)*cols], rec[b*cols:(b+1)*cols]
				hb, cb := h[b*hidden:(b+1)*hidden], cells[b*hidden:(b+1)*hidden]
				for i := range hb {
					in, forget := a[i]+r[i], a[hidden+i]+r[hidden+i]
					out, z := a[2*hidden+i]+r[2*hidden+i], cell(a[3*hidden+i]+r[3*hidden+i])
					if p != nil {
						in += p[i] * cb[i]
						forget += p[hidden+i] * cb[i]
					}
					v := gate(forget)*cb[i] + gate(in)*z
					if clip > 0 {
						v = min(max(v, -clip), clip)
					}
					cb[i] = v
					if p != nil {
						out += p[2*hidden+i] * v
					}
					hb[i] = gate(out) * act(v)
				}
			}
		}
	}
	reads := []*val{l.xw, l.whh, initial[0], initial[1], peep, inner}
	writes := append(slices.Clone(outs), l.h, l.c, l.rec)
	return o.p.emit(bufsOf(append(reads, writes...)...), bufsOf(writes...), func(c *call) {
		h, cells, rec, xw := c.f32(l.h.buf), c.f32(l.c.buf), c.f32(l.rec.buf), c.f32of(l.xw)
		load := func(dst []float32, v *val) {
			for b := range batch {
				copy(dst[b*hidden:(b+1)*hidden], c.f32of(v)[b*l.cols+l.col:])
			}
		}
		save := func(dst []float32, v []float32) {
			for b := range batch {
				copy(dst[b*l.cols+l.col:], v[b*hidden:(b+1)*hidden])
			}
		}
		load(h, initial[0])
		if initial[1] != nil {
			load(cells, initial[1])
		}
		for k := range l.steps {
			t := k
			if l.reverse {
				t = l.steps - 1 - k
			}
			turn(c, xw[t*batch*cols:(t+1)*batch*cols], h, cells, rec)
			if sequence {
				// The reverse direction gives its states in the order of
				// its own steps when it is alone.
				at := t
				if l.reverse && way == "" {
					at = k
				}
				save(c.f32(outs[0].buf)[at*batch*l.cols:], h)
			}
		}
		if !sequence {
			save(c.f32(outs[0].buf), h)
		}
		save(c.f32(outs[1].buf), h)
		if len(outs) > 2 {
			save(c.f32(outs[2].buf), cells)
		}
	})
}
