package engine

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"anemone/internal/float16"
	"anemone/internal/runner"
	"anemone/mil"
	"anemone/mil/blob"
)

// holes leaves holes where whole pieces of zeros are written.
type holes struct{ f *os.File }

func (h holes) Write(b []byte) (int, error) {
	if len(b) == cap(zeroPiece) {
		_, err := h.f.Seek(int64(len(b)), io.SeekCurrent)
		return len(b), err
	}
	return h.f.Write(b)
}

var zeroPiece = make([]byte, 1<<20)

// resident returns the process's resident memory in bytes, 0 where the system
// does not say.
func resident() (n int64) {
	b, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			fmt.Sscan(rest, &n)
		}
	}
	return n << 10
}

// TestTableBeyond4GiB looks rows up in a table of 5.4 GB, that of Gemma 4 E4B's
// per-layer embeddings, behind another blob: rows on both sides of 2^31
// elements and of 2^32 bytes. The file is sparse, and only the pages of the
// rows that are asked for come into memory.
func TestTableBeyond4GiB(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a sparse file of 5.6 GB")
	}
	const rows, cols = 262144, 10752
	table := mil.PromiseWeight(mil.TensorOf(mil.Float16, rows, cols), func(w io.Writer) error {
		for left := rows * cols * 2; left > 0; left -= len(zeroPiece) {
			if _, err := w.Write(zeroPiece[:min(left, len(zeroPiece))]); err != nil {
				return err
			}
		}
		return nil
	})
	var plan blob.Plan
	first := stored(t, mil.TensorOf(mil.Float16, 3), halfBytes([]float32{1, 2, 3}))
	if _, err := plan.Add("first", first); err != nil {
		t.Fatal(err)
	}
	record, err := plan.Add("table", table)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "weight.bin")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := plan.Write(context.Background(), holes{f}, nil); err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(plan.Size()); err != nil {
		t.Fatal(err)
	}

	// A row says its number at three places, zeros elsewhere: all exact in fp16.
	// 99864 is the row with byte 2^31, 199728 the one with element 2^31 and
	// byte 2^32.
	ids := []int32{0, 1, 99863, 99864, 99865, 199727, 199728, 199729, 262142, 262143}
	value := func(id int32, k int) float32 { return float32(id/512) + float32(k*500) }
	low := func(id int32) float32 { return float32(id % 512) }
	places := []int{0, 5000, cols - 2}
	rec, _ := plan.Record(1)
	for _, id := range ids {
		for k, p := range places {
			b := binary.LittleEndian.AppendUint16(nil, float16.FromFloat32(value(id, k)))
			b = binary.LittleEndian.AppendUint16(b, float16.FromFloat32(low(id)))
			if _, err := f.WriteAt(b, int64(rec.Data)+2*(int64(id)*cols+int64(p))); err != nil {
				t.Fatal(err)
			}
		}
	}

	r, err := blob.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w, err := r.Weight(record, table.Type())
	if err != nil {
		t.Fatal(err)
	}
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("ids", mil.TensorOf(mil.Int32, 1, mil.Dynamic))
	b.Output("rows", b.Op("gather", mil.A("x", b.Weight("table", w)), mil.A("indices", x), mil.A("axis", b.Const(mil.Int(0)))))
	fn, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, numerics := range []Numerics{Float32, Float16} {
		runtime.GC()
		before := resident()
		m := modelOf(t, fn, Options{Numerics: numerics})
		for _, call := range [][]int32{ids, ids[9:], ids[3:6]} {
			out := predict(t, m, "main", runner.Values{"ids": runner.Ints(call, 1, len(call))}, nil)["rows"]
			if !slices.Equal(out.Shape, []int{1, len(call), cols}) {
				t.Fatalf("shape %v", out.Shape)
			}
			for i, id := range call {
				row := out.Float[i*cols:][:cols]
				want := make([]float32, cols)
				for k, p := range places {
					want[p], want[p+1] = value(id, k), low(id)
				}
				if !slices.Equal(row, want) {
					t.Errorf("row %d is not what the file has", id)
				}
			}
		}
		// Two results of 400 kB and some pages; 100 MB is what a package's
		// embeddings may take.
		if grown := resident() - before; grown > 100<<20 {
			t.Errorf("looking up %d rows took %d MB of memory", len(ids), grown>>20)
		}
	}
}
