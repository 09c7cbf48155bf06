package lint

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"

	"anemone/internal/inspect/stored"
	"anemone/mil"
)

// bytesOf returns the stored bytes of a weight, nil (and a finding) if they
// cannot be read.
func (p *pass) bytesOf(m *model, t *stored.Tensor, w mil.Weight) []byte {
	if p.ctx.Err() != nil {
		return nil
	}
	b, err := mil.WeightBytes(w)
	if err != nil {
		p.reportAs(Error, m.in(t), "cannot be read: %v", err)
		return nil
	}
	return b
}

// kinds of floating-point values.
type kinds struct{ nan, inf, negInf int }

// scan counts what is not finite, and calls zero with every run of elements
// (of the given length) that are all zero.
func scan(d mil.DType, b []byte, run int, zero func(i int)) (k kinds) {
	n := map[mil.DType]int{mil.Float16: 2, mil.BFloat16: 2, mil.Float32: 4, mil.Float64: 8}[d]
	if n == 0 || run <= 0 {
		return k
	}
	// The exponent of what is not finite is all ones.
	var sign, exp uint64
	switch d {
	case mil.Float16:
		sign, exp = 1<<15, 0x7c00
	case mil.BFloat16:
		sign, exp = 1<<15, 0x7f80
	case mil.Float32:
		sign, exp = 1<<31, 0x7f800000
	case mil.Float64:
		sign, exp = 1<<63, 0x7ff0000000000000
	}
	for i := 0; len(b) >= n*run; i++ {
		row := b[:n*run]
		b = b[n*run:]
		all := uint64(0)
		for len(row) >= n {
			var v uint64
			switch n {
			case 2:
				v = uint64(binary.LittleEndian.Uint16(row))
			case 4:
				v = uint64(binary.LittleEndian.Uint32(row))
			default:
				v = binary.LittleEndian.Uint64(row)
			}
			row = row[n:]
			all |= v &^ sign
			if v&exp == exp {
				switch {
				case v&^sign != exp:
					k.nan++
				case v&sign != 0:
					k.negInf++
				default:
					k.inf++
				}
			}
		}
		if all == 0 && zero != nil {
			zero(i)
		}
	}
	return k
}

// isMask reports whether a weight is only added or selected, as masks are.
func (m *model) isMask(t *stored.Tensor) bool {
	is, used := true, false
	m.use(t, func(_ *function, op *mil.Operation, arg string) {
		used = true
		switch op.Type {
		case "add", "select", "where", "slice_by_index", "slice_by_size", "expand_dims", "gather", "concat", "maximum", "minimum":
		default:
			is = false
		}
	})
	return is && used
}

func weightNonFinite(p *pass, m *model) {
	for i := range m.weights {
		t := &m.weights[i]
		for _, piece := range t.Pieces {
			wt := piece.Weight.Type()
			n, ok := wt.NumElements()
			if !wt.DType.IsFloat() || !ok || n == 0 {
				continue
			}
			k := scan(wt.DType, p.bytesOf(m, t, piece.Weight), n, nil)
			where := ""
			if piece.Role != "" {
				where = " of its " + piece.Role
			}
			switch {
			case k.nan > 0:
				p.report(m.in(t), "%d of %d values%s are NaN", k.nan, n, where)
			case k.inf > 0, k.negInf > 0 && !m.isMask(t):
				p.report(m.in(t), "%d of %d values%s are infinite", k.inf+k.negInf, n, where)
			}
		}
	}
}

func weightZero(p *pass, m *model) {
	for i := range m.weights {
		t := &m.weights[i]
		n, ok := t.Type.NumElements()
		if !ok || n == 0 || t.Type.Rank() == 0 || p.ctx.Err() != nil {
			continue
		}
		if m.lookup(t) == positions {
			continue // the sine of position 0
		}
		rows := t.Type.Shape[0]
		if t.Type.Rank() == 1 {
			rows = 1 // a bias or a gain
		}
		zero := p.zeroRows(m, t, rows, n/rows)
		switch {
		case len(zero) == 0:
		case t.Type.Rank() == 1 && !m.scales(t):
			// A bias of zeros does no harm.
		case len(zero) == rows:
			p.report(m.in(t), "%v: all zero", t.Type.Shape)
		case m.lookedUp(t):
			p.reportAs(Info, m.in(t), "%d of %d rows are zero, the first is %d", len(zero), rows, zero[0])
		default:
			p.report(m.in(t), "%d of %d rows are zero, the first is %d", len(zero), rows, zero[0])
		}
	}
}

// scales reports whether a vector multiplies.
func (m *model) scales(t *stored.Tensor) bool {
	is := false
	m.use(t, func(_ *function, op *mil.Operation, arg string) { is = is || op.Type == "mul" || arg == "gamma" })
	return is
}

func (m *model) lookedUp(t *stored.Tensor) bool {
	is := false
	m.use(t, func(_ *function, op *mil.Operation, arg string) {
		is = is || strings.HasPrefix(op.Type, "gather") && arg == "x"
	})
	return is
}

// zeroRows returns the rows of a weight that are all zero, of those encodings
// where that can be told without arithmetic.
func (p *pass) zeroRows(m *model, t *stored.Tensor, rows, cols int) (zero []int) {
	piece := func(role string) *stored.Piece {
		i := slices.IndexFunc(t.Pieces, func(q stored.Piece) bool { return q.Role == role })
		if i < 0 {
			return nil
		}
		return &t.Pieces[i]
	}
	switch t.Encoding.Kind {
	case stored.Dense:
		if w := piece(""); w != nil && t.Encoding.DType.IsFloat() {
			scan(w.Weight.Type().DType, p.bytesOf(m, t, w.Weight), cols, func(i int) { zero = append(zero, i) })
		}
	case stored.LUT:
		lut, idx := piece("lut"), piece("indices")
		if lut == nil || idx == nil || t.Encoding.Tables < 1 || t.Encoding.Rows < 1 && t.Encoding.Tables > 1 {
			return nil
		}
		lt := lut.Weight.Type()
		size, ok := lt.NumElements()
		if !ok || size%t.Encoding.Tables != 0 || !lt.DType.IsFloat() {
			return nil
		}
		entries := size / t.Encoding.Tables
		// Which entries are zero; mostly none is.
		isZero := make([]bool, size)
		any := false
		scan(lt.DType, p.bytesOf(m, t, lut.Weight), 1, func(i int) { isZero[i], any = true, true })
		bits := idx.Weight.Type().DType.Bits()
		if lt.Rank() == 1 && idx.Weight.Type().DType == mil.UInt8 {
			bits = t.Encoding.Bits // the form before iOS 18: packed
		}
		if !any || bits < 1 || bits > 8 || 1<<bits < entries {
			return nil
		}
		b := p.bytesOf(m, t, idx.Weight)
		if len(b) < (rows*cols*bits+7)/8 {
			return nil
		}
		perTable := rows
		if t.Encoding.Tables > 1 {
			perTable = t.Encoding.Rows
		}
		for r := range rows {
			table := isZero[min(r/perTable, t.Encoding.Tables-1)*entries:][:entries]
			if allIn(table, b, r*cols, cols, bits) {
				zero = append(zero, r)
			}
		}
	}
	return zero
}

// allIn reports whether n packed indices, from the given one on, are all of
// entries that are marked.
func allIn(marked []bool, b []byte, from, n, bits int) bool {
	for i := from; i < from+n; i++ {
		at := i * bits
		v := uint(b[at/8])
		if at/8+1 < len(b) {
			v |= uint(b[at/8+1]) << 8
		}
		v = v >> (at % 8) & (1<<bits - 1)
		if v >= uint(len(marked)) || !marked[v] {
			return false
		}
	}
	return true
}

// minDuplicate is the size from which pieces are compared.
const minDuplicate = 4096

func weightDuplicate(p *pass, m *model) {
	type piece struct {
		t *stored.Tensor
		b []byte
	}
	seed := maphash.MakeSeed()
	seen := map[uint64][]piece{}
	weights := map[mil.Weight]bool{}
	for i := range m.weights {
		t := &m.weights[i]
		for _, q := range t.Pieces {
			if q.Bytes < minDuplicate || weights[q.Weight] || p.ctx.Err() != nil {
				continue
			}
			weights[q.Weight] = true
			b := p.bytesOf(m, t, q.Weight)
			if len(b) == 0 {
				continue
			}
			h := maphash.Bytes(seed, b)
			dup := slices.IndexFunc(seen[h], func(o piece) bool {
				// The same place, read as two types, is stored once.
				return &o.b[0] != &b[0] && bytes.Equal(o.b, b)
			})
			if dup >= 0 {
				p.report(m.in(t), "the same %s as %s", size(q.Bytes), seen[h][dup].t.Name)
			}
			seen[h] = append(seen[h], piece{t, b})
		}
	}
}
