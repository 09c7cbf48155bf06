package dense

import (
	"context"
	"fmt"
)

// maxLogits is the number of logits that are computed at a time (32 MB).
const maxLogits = 8 << 20

// Head multiplies the wanted rows of x, the states after the final norm, by
// the weight of the head, [vocab, x.Cols], and calls visit with the number of
// the row and its logits, in order. A nil want wants all. visit may change the
// logits but not keep them. see, if not nil, sees the rows before each product:
// there may be several.
func Head(ctx context.Context, x Matrix, w Weight, vocab int, want func(i int) bool, see func(x Matrix), visit func(i int, logits []float32) error) error {
	if vocab < 1 {
		return fmt.Errorf("a head of %d tokens", vocab)
	}
	var wanted []int
	for i := range x.Rows {
		if want == nil || want(i) {
			wanted = append(wanted, i)
		}
	}
	block := min(len(wanted), max(1, maxLogits/vocab))
	in, logits := New(block, x.Cols), New(block, vocab)
	for len(wanted) > 0 {
		now := wanted[:min(block, len(wanted))]
		wanted = wanted[len(now):]
		in, logits := in.Slice(0, len(now)), logits.Slice(0, len(now))
		for j, i := range now {
			copy(in.Row(j), x.Row(i))
		}
		if see != nil {
			see(in)
		}
		if err := Linear(ctx, logits, in, w, nil); err != nil {
			return err
		}
		for j, i := range now {
			if err := visit(i, logits.Row(j)); err != nil {
				return err
			}
		}
	}
	return nil
}
