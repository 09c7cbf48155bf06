package nn

import (
	"fmt"

	"anemone/internal/checkpoint"
	"anemone/mil"
)

// Embeddings builds the function of an embeddings model with one table
// [vocab, H]: input_ids [1, T], for any T, to hidden_states [1, T, H].
func Embeddings(table *Weight) (*mil.Function, error) {
	b := mil.NewBuilder("main", mil.CoreML8)
	ids := b.Input("input_ids", mil.TensorOf(mil.Int32, 1, mil.Dynamic))
	b.Output("hidden_states", Gather(b, table, Index(b, ids, table.Rows())))
	return b.Build()
}

// Head builds the function of an LM head [vocab, H] in parts of the given
// widths, which add up to vocab: hidden_states [1, 1, H], normed already, to
// logits1, logits2 and so on, each [1, 1, width], bounded by softcap unless
// that is 0.
func Head(head *checkpoint.Tensor, widths []int, softcap float64) (*mil.Function, error) {
	b := mil.NewBuilder("main", mil.CoreML8)
	x := b.Input("hidden_states", mil.TensorOf(mil.Float16, 1, 1, head.Shape[1]))
	if softcap > 0 {
		// The soft cap's division is done here: behind the products it would be
		// a constant that compilers fold into the weights.
		x = Scale(b, x, 1/softcap)
	}
	x = ToChannels(b, x)
	from := 0
	for i, n := range widths {
		if n == 0 {
			return nil, fmt.Errorf("a vocabulary of %d does not split into %d parts", head.Shape[0], len(widths))
		}
		y := Project(b, x, Linear(head, from, from+n), nil)
		if softcap > 0 {
			y = Softcap(b, y, softcap)
		}
		b.Output(fmt.Sprintf("logits%d", i+1), FromChannels(b, y))
		from += n
	}
	return b.Build()
}
