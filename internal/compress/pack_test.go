package compress

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// TestPackByHand: element i at bit i*N from the lowest bit of the first byte.
func TestPackByHand(t *testing.T) {
	for _, c := range []struct {
		nbits int
		in    []uint8
		want  []byte
	}{
		{1, []uint8{1, 0, 1, 1, 0, 0, 0, 1, 1}, []byte{0b1000_1101, 0b1}},
		{2, []uint8{2, 3, 3, 0, 1}, []byte{0b00_11_11_10, 0b01}},
		// 3 bits cross bytes: 7 | 1<<3 | 2<<6 | 4<<9 | 5<<12 = 0x5000+0x800+0x80+8+7
		{3, []uint8{7, 1, 2, 4, 5}, []byte{0x8f, 0x58}},
		{4, []uint8{1, 2, 3, 15, 9}, []byte{0x21, 0xf3, 0x09}},
		// 6 bits: 1 | 2<<6 | 63<<12 | 32<<18 = 0x80_0000 + 0x3_f000 + 0x80 + 1
		{6, []uint8{1, 2, 63, 32, 5}, []byte{0x81, 0xf0, 0x83, 0x05}},
		{8, []uint8{0, 255, 7}, []byte{0, 255, 7}},
		{4, nil, nil},
	} {
		if got := pack(nil, c.in, c.nbits); !bytes.Equal(got, c.want) {
			t.Errorf("%d bits %v: % x, want % x", c.nbits, c.in, got, c.want)
		}
	}
}

// unpack reads packed indices bit by bit.
func unpack(p []byte, n, nbits int) []uint8 {
	out := make([]uint8, n)
	for bit := range n * nbits {
		if p[bit/8]>>(bit%8)&1 != 0 {
			out[bit/nbits] |= 1 << (bit % nbits)
		}
	}
	return out
}

func TestPackInPieces(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, nbits := range []int{1, 2, 3, 4, 6, 8} {
		for range 50 {
			var all []uint8
			var out bytes.Buffer
			w := &bitWriter{w: &out}
			for range r.IntN(6) {
				piece := make([]uint8, r.IntN(40))
				for i := range piece {
					piece[i] = uint8(r.IntN(1 << nbits))
				}
				all = append(all, piece...)
				if err := w.write(pack(nil, piece, nbits), int64(len(piece)*nbits)); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.flush(); err != nil {
				t.Fatal(err)
			}
			if out.Len() != packedLen(len(all), nbits) || w.n != int64(out.Len()) {
				t.Fatalf("%d elements of %d bits made %d bytes, counted %d", len(all), nbits, out.Len(), w.n)
			}
			if got := unpack(out.Bytes(), len(all), nbits); !bytes.Equal(got, all) {
				t.Fatalf("%d bits: got %v, want %v", nbits, got, all)
			}
		}
	}
}
