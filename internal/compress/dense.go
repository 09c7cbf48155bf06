package compress

import (
	"encoding/binary"
	"io"
	"math"

	"anemone/internal/float16"
	"anemone/mil"
)

// Dense returns the promise of src as plain fp16 in the given shape, which
// has as many elements as src. Of opts, Method and Importance do not matter.
func Dense(src Source, shape []int, opts Options) (mil.Weight, error) {
	if err := checkShape(src, shape); err != nil {
		return nil, opts.wrap(err)
	}
	j := &job{Options: opts, src: src, shape: append([]int(nil), shape...), report: opts.Report.reserve()}
	j.indices = promise{t: mil.TensorOf(mil.Float16, j.shape...), j: j, write: j.writeDense}
	return &j.indices, nil
}

func (j *job) writeDense(w io.Writer) error {
	cols := j.src.Cols()
	step := max(1, blockSize/cols)
	blocks := (j.src.Rows() + step - 1) / step
	wide, _ := j.src.(Float32Source)
	type memory struct {
		w []uint16
		f []float32
	}
	mem := make([]memory, j.workers())
	var total figures
	var size int64
	err := ordered(j.context(), len(mem), blocks, func(worker, b int) (part, error) {
		m := &mem[worker]
		first := b * step
		m.w = grow(m.w, min(step, j.src.Rows()-first)*cols)
		p := part{n: len(m.w)}
		var err error
		if p.loss, err = j.read(m.w, first); err != nil {
			return p, err
		}
		if wide != nil {
			m.f = grow(m.f, len(m.w))
			if err := wide.Float32(m.f, first); err != nil {
				return p, err
			}
			for i, f := range m.f {
				x := float64(f)
				if math.IsInf(x, 0) {
					continue // counted as an overflow
				}
				d := x - float64(float16.ToFloat32(m.w[i]))
				p.squared += float64(d * d)
				p.energy += float64(x * x)
				p.maxError = max(p.maxError, math.Abs(d))
			}
		}
		p.packed = make([]byte, 2*len(m.w))
		for i, h := range m.w {
			binary.LittleEndian.PutUint16(p.packed[2*i:], h)
		}
		return p, nil
	}, func(_ int, p part) error {
		total.add(p.figures)
		n, err := w.Write(p.packed)
		size += int64(n)
		if err == nil {
			j.progress(p.n)
		}
		return err
	})
	if err != nil {
		return err
	}
	e := Entry{
		Name:     j.Name,
		Shape:    j.shape,
		Encoding: "fp16",
		Elements: int64(j.src.Rows()) * int64(cols),
		Bytes:    size,
	}
	total.fill(&e)
	j.report(e)
	return nil
}
